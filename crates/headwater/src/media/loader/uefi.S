# BOOTX64.EFI of boot media whose iPXE reads no autoexec.ipxe (Debian's, of 2019): starts iPXE and types for it.
#
# Such an iPXE takes neither a script file nor a command line; but it opens `file:` URIs on the volume that it was loaded
# from, and it has a shell behind Ctrl-B. So this application loads \EFI\BOOT\IPXE.EFI from its own volume, puts a keyboard
# of its own in place of the console's (UEFI 2.10 §12.3, EFI_SIMPLE_TEXT_INPUT_PROTOCOL), starts iPXE, and that keyboard
# types Ctrl-B and the command at the end of this file. With the last key the real keyboard is back for good: menus, shell,
# and what boots afterwards find the firmware's own.
#
# The whole PE file stands here: the headers, one page of code and one of data, at the same places in file and memory;
# everything is relative to RIP, so that there is nothing to relocate.
#
# Assembled by: as --64 uefi.S -o uefi.o && ld -m elf_x86_64 -Ttext 0 --oformat binary uefi.o -o uefi.bin
        .intel_syntax noprefix
        .globl  _start
        .set    CODE, 0x1000
        .set    DATA, 0x2000
        .set    END, 0x3000
        .set    PATH_BYTES, 1024                # the longest device path of a volume, with the file's part
        # Boot services and system table: offsets in bytes (UEFI 2.10 §4.3, §4.4).
        .set    CONSOLE_IN_HANDLE, 0x28
        .set    CON_IN, 0x30
        .set    BOOT_SERVICES, 0x60
        .set    CREATE_EVENT, 0x50
        .set    SIGNAL_EVENT, 0x68
        .set    INSTALL_PROTOCOL, 0x80
        .set    HANDLE_PROTOCOL, 0x98
        .set    LOAD_IMAGE, 0xc8
        .set    START_IMAGE, 0xd0
        .set    LOADED_IMAGE_DEVICE, 0x18
_start:
        # PE/COFF: MS-DOS stub, COFF header, optional header (PE32+), section table.
        .ascii  "MZ"
        .org    0x3c
        .long   pe
pe:     .ascii  "PE\0\0"
        .word   0x8664, 2                       # x64, two sections
        .long   0, 0, 0
        .word   sections - optional, 0x022e     # executable, large addresses, no line numbers, symbols, debug
optional:
        .word   0x020b
        .byte   0, 0
        .long   DATA - CODE, END - DATA, 0, entry, CODE
        .quad   0                               # image base
        .long   0x1000, 0x1000                  # alignment in memory and file
        .word   0, 0, 0, 0, 0, 0
        .long   0, END, CODE, 0                 # size of image, of headers; checksum
        .word   10, 0x0100                      # EFI application; NX compatible
        .quad   0x10000, 0x10000, 0x10000, 0
        .long   0, 6
        .fill   6, 8, 0
sections:
        .ascii  ".text\0\0\0"
        .long   DATA - CODE, CODE, DATA - CODE, CODE, 0, 0, 0, 0x60000020
        .ascii  ".data\0\0\0"
        .long   END - DATA, DATA, END - DATA, DATA, 0, 0, 0, 0xc0000040

        .org    CODE
# EFI_STATUS entry(RCX: our handle, RDX: system table), Microsoft's calling convention.
entry:
        push    rbx
        push    rsi
        push    rdi
        sub     rsp, 0x40                       # 32 bytes of home space, two arguments, 16-byte alignment
        mov     [rip + image], rcx
        mov     [rip + system_table], rdx
        mov     rbx, [rdx + BOOT_SERVICES]

        # Our own volume's device path, with the file's name added: iPXE's DeviceHandle becomes ours.
        lea     rdx, [rip + loaded_image_guid]
        lea     r8, [rip + interface]
        call    [rbx + HANDLE_PROTOCOL]
        test    rax, rax
        js      return
        mov     rcx, [rip + interface]
        mov     rcx, [rcx + LOADED_IMAGE_DEVICE]
        lea     rdx, [rip + device_path_guid]
        lea     r8, [rip + interface]
        call    [rbx + HANDLE_PROTOCOL]
        test    rax, rax
        js      return
        mov     rsi, [rip + interface]
        lea     rdi, [rip + path]
        lea     rdx, [rip + path + PATH_BYTES - (file_path_end - file_path)]
next_node:
        cmp     byte ptr [rsi], 0x7f            # UEFI 2.10 §10.3.1: the end
        je      nodes_done
        movzx   ecx, word ptr [rsi + 2]
        mov     rax, 0x8000000000000005         # EFI_BUFFER_TOO_SMALL
        cmp     ecx, 4
        jb      return
        lea     r8, [rdi + rcx]
        cmp     r8, rdx
        ja      return
        cld
        rep movsb
        jmp     next_node
nodes_done:
        lea     rsi, [rip + file_path]
        mov     ecx, file_path_end - file_path
        rep movsb

        xor     ecx, ecx                        # LoadImage(FALSE, us, path, NULL, 0, &child)
        mov     rdx, [rip + image]
        lea     r8, [rip + path]
        xor     r9d, r9d
        mov     [rsp + 0x20], r9
        lea     rax, [rip + child]
        mov     [rsp + 0x28], rax
        call    [rbx + LOAD_IMAGE]
        test    rax, rax
        js      return

        # The keyboard: an event that is signalled whenever somebody looks (iPXE looks twice before it takes a key), and a
        # handle that has nothing but the plain protocol, since iPXE would rather ask for the extended one.
        mov     ecx, 0x100                      # CreateEvent(EVT_NOTIFY_WAIT, TPL_NOTIFY, has_key, NULL, &event)
        mov     edx, 16
        lea     r8, [rip + has_key]
        xor     r9d, r9d
        lea     rax, [rip + wait_for_key]
        mov     [rsp + 0x20], rax
        call    [rbx + CREATE_EVENT]
        test    rax, rax
        js      return
        lea     rax, [rip + reset]
        mov     [rip + keyboard], rax
        lea     rax, [rip + read_key]
        mov     [rip + keyboard + 8], rax
        lea     rcx, [rip + keyboard_handle]    # InstallProtocolInterface(&handle, GUID, native, keyboard)
        lea     rdx, [rip + simple_text_input_guid]
        xor     r8d, r8d
        lea     r9, [rip + keyboard]
        call    [rbx + INSTALL_PROTOCOL]
        test    rax, rax
        js      return
        mov     rdx, [rip + system_table]
        mov     rax, [rdx + CON_IN]
        mov     [rip + console], rax
        mov     rax, [rdx + CONSOLE_IN_HANDLE]
        mov     [rip + console_handle], rax
        lea     rax, [rip + keyboard]
        mov     [rdx + CON_IN], rax
        mov     rax, [rip + keyboard_handle]
        mov     [rdx + CONSOLE_IN_HANDLE], rax

        mov     rcx, [rip + child]              # StartImage(child, NULL, NULL)
        xor     edx, edx
        xor     r8d, r8d
        call    [rbx + START_IMAGE]
        mov     rsi, rax
        call    restore
        mov     rax, rsi
return:
        add     rsp, 0x40
        pop     rdi
        pop     rsi
        pop     rbx
        ret

# Gives the console its own keyboard back. Changes RAX and RDX alone.
restore:
        mov     rdx, [rip + system_table]
        mov     rax, [rip + console]
        mov     [rdx + CON_IN], rax
        mov     rax, [rip + console_handle]
        mov     [rdx + CONSOLE_IN_HANDLE], rax
        ret

# EFI_STATUS reset(this, extended)
reset:
        xor     eax, eax
        ret

# has_key(RCX: event, RDX: context)
has_key:
        mov     rax, [rip + system_table]
        mov     rax, [rax + BOOT_SERVICES]
        jmp     [rax + SIGNAL_EVENT]

# EFI_STATUS read_key(RCX: this, RDX: key): 16 bits scan code, 16 bits character
read_key:
        lea     r8, [rip + keys]
        mov     r9d, [rip + next_key]
        movzx   eax, byte ptr [r8 + r9]
        test    eax, eax
        jz      not_ready
        shl     eax, 16
        mov     [rdx], eax
        inc     r9d
        mov     [rip + next_key], r9d
        cmp     byte ptr [r8 + r9], 0
        jne     more_keys
        call    restore
more_keys:
        xor     eax, eax
        ret
not_ready:
        mov     rax, 0x8000000000000006         # EFI_NOT_READY
        ret

loaded_image_guid:
        .long   0x5b1b31a1
        .word   0x9562, 0x11d2
        .byte   0x8e, 0x3f, 0x00, 0xa0, 0xc9, 0x69, 0x72, 0x3b
device_path_guid:
        .long   0x09576e91
        .word   0x6d3f, 0x11d2
        .byte   0x8e, 0x39, 0x00, 0xa0, 0xc9, 0x69, 0x72, 0x3b
simple_text_input_guid:
        .long   0x387477c1
        .word   0x69c7, 0x11d2
        .byte   0x8e, 0x39, 0x00, 0xa0, 0xc9, 0x69, 0x72, 0x3b
file_path:                                      # UEFI 2.10 §10.3.5.4: a file's name; then the path's end
        .byte   4, 4
        .word   file_path_name_end - file_path
        .string16 "\\EFI\\BOOT\\IPXE.EFI"
file_path_name_end:
        .byte   0x7f, 0xff, 4, 0
file_path_end:

        .org    DATA
image:          .quad 0
system_table:   .quad 0
interface:      .quad 0
child:          .quad 0
console:        .quad 0
console_handle: .quad 0
keyboard_handle: .quad 0
keyboard:       .quad 0, 0                      # Reset, ReadKeyStroke
wait_for_key:   .quad 0
next_key:       .long 0
keys:           .byte 2                         # Ctrl-B
                .asciz "chain file:/autoexec.ipxe && exit || exit\r"
        .balign 8
path:           .fill PATH_BYTES, 1, 0
        .org    END
