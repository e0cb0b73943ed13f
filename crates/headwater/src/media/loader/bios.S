# Boot sector of all boot media on BIOS machines: a Linux boot protocol loader for iPXE (ipxe.lkrn) and its script.
#
# The firmware loads these 512 bytes to 0x7c00 (a disk's first sector, or an El Torito boot image) and passes the drive in
# DL. It reads three extents from that drive by INT 13h AH=42h into a buffer below 1 MiB, and lets INT 15h AH=87h move them
# to where the protocol wants them (Linux x86 boot protocol, "Loading The Rest of The Kernel"): the kernel's real-mode part
# to 0x90000, its rest to 0x100000, and the initial ramdisk, which is the script, to the top of the memory below 4 GiB (INT
# 15h E820h): iPXE puts itself below its ramdisk. Whoever writes the media (bios.rs) fills in the extents at offset 0x198
# and patches what is known beforehand into the kernel's header.
#
# Assembled by: as --32 bios.S -o bios.o && ld -m elf_i386 -Ttext 0x7c00 --oformat binary bios.o -o bios.bin
        .code16
        .intel_syntax noprefix
        .globl  _start
        .set    BUFFER_SEGMENT, 0x1000          # 32 KiB at 0x10000
        .set    CHUNK_BYTES, 0x8000
        .set    SETUP_SEGMENT, 0x9000
        .set    STACK, 0xb000                   # in SETUP_SEGMENT, below the extended BIOS data area
        .set    MAP_ENTRY, 0x600
        .set    SMAP, 0x534d4150
_start:
        jmp     short begin
        nop
begin:
        cli
        xor     ax, ax
        mov     ds, ax
        mov     es, ax
        mov     ss, ax
        mov     sp, 0x7c00
        sti
        cld
        ljmp    0, offset at_zero               # some firmware starts us at 07c0:0000
at_zero:
        mov     drive, dl

        # EBP: the highest end of usable memory below 4 GiB.
        xor     ebp, ebp
        xor     ebx, ebx
next_range:
        mov     eax, 0xe820
        mov     edx, SMAP
        mov     ecx, 20
        mov     di, MAP_ENTRY
        int     0x15
        jc      ranges_done
        cmp     eax, SMAP
        jne     ranges_done
        cmp     dword ptr [MAP_ENTRY + 16], 1   # usable memory
        jne     range_done
        mov     eax, [MAP_ENTRY + 4]
        or      eax, [MAP_ENTRY + 12]           # begins, or is, beyond 4 GiB
        jnz     range_done
        mov     eax, [MAP_ENTRY]
        add     eax, [MAP_ENTRY + 8]
        jc      range_done
        cmp     eax, ebp
        jbe     range_done
        mov     ebp, eax
range_done:
        test    ebx, ebx
        jnz     next_range
ranges_done:
        mov     si, offset memory_message
        cmp     ebp, 0x2000000                  # 32 MiB: iPXE and what it loads
        jb      fail
        movzx   eax, word ptr ramdisk_chunks
        shl     eax, 15
        sub     ebp, eax
        and     ebp, 0xfffff000
        mov     ramdisk_destination, ebp

        mov     di, offset extents
next_extent:
        mov     eax, [di]
        mov     packet_lba, eax
        mov     ebx, [di + 4]
        mov     cx, [di + 8]
next_chunk:
        push    cx
        push    di
        mov     ax, chunk_sectors               # firmware may write how much it read into the packet
        mov     packet_sectors, ax
        mov     ah, 0x42
        mov     dl, drive
        mov     si, offset packet
        int     0x13
        mov     si, offset read_message
        jc      fail
        mov     target_low, bx
        mov     eax, ebx
        shr     eax, 16
        mov     target_middle, al
        mov     target_high, ah
        mov     ah, 0x87
        mov     cx, CHUNK_BYTES / 2             # words
        mov     si, offset descriptors
        int     0x15
        mov     si, offset move_message
        jc      fail
        movzx   eax, word ptr chunk_sectors
        add     packet_lba, eax
        add     ebx, CHUNK_BYTES
        pop     di
        pop     cx
        loop    next_chunk
        add     di, 10
        cmp     di, offset extents_end
        jb      next_extent

        # "The real-mode code entry point": all segments the same, a stack, interrupts off.
        mov     ebx, ramdisk_destination
        cli
        mov     ax, SETUP_SEGMENT
        mov     ds, ax
        mov     es, ax
        mov     fs, ax
        mov     gs, ax
        mov     ss, ax
        mov     sp, STACK
        mov     [0x218], ebx                    # ramdisk_image
        ljmp    SETUP_SEGMENT + 0x20, 0

fail:
        lodsb
        test    al, al
        jz      give_up
        mov     ah, 0x0e
        mov     bx, 7
        int     0x10
        jmp     fail
give_up:
        int     0x18                            # the firmware's next boot device
hang:
        hlt
        jmp     hang

read_message:   .asciz "cannot read"
memory_message: .asciz "low memory"
move_message:   .asciz "INT 15h"
drive:          .byte 0

        .balign 4
packet:         .byte 16, 0                     # INT 13h AH=42h: disk address packet
packet_sectors: .word 0
                .word 0, BUFFER_SEGMENT
packet_lba:     .long 0, 0
descriptors:    .fill 16, 1, 0                  # INT 15h AH=87h: source and target among six descriptors
                .word 0xffff, (BUFFER_SEGMENT << 4) & 0xffff
                .byte BUFFER_SEGMENT >> 12, 0x93, 0, 0
                .word 0xffff
target_low:     .word 0
target_middle:  .byte 0, 0x93, 0
target_high:    .byte 0
                .fill 16, 1, 0

        .org    0x198
chunk_sectors:  .word 0                         # sectors in 32 KiB: 64 on a disk, 16 on a CD
extents:                                        # each: first sector, where in memory, how many times 32 KiB
                .long 0, SETUP_SEGMENT << 4
                .word 0
                .long 0, 0x100000
                .word 0
                .long 0
ramdisk_destination:
                .long 0
ramdisk_chunks: .word 0
extents_end:
        .org    0x1fe
        .word   0xaa55
