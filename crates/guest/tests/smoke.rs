//! Damaged disks: whatever is changed in them, a survey ends, and what it names can be opened or is refused.
use std::fs;
use std::process::Command;

use mutate::Mutator;

fn look(bytes: &[u8]) {
    // How many entries are left does not matter here.
    let _ = guest::fuzzing::disk(bytes);
}

fn file_system(program: &str, arguments: &[&str], size: u64) -> Vec<u8> {
    let scratch = tempfile::tempdir().expect("a directory");
    let image = scratch.path().join("image");
    fs::File::create(&image).and_then(|file| file.set_len(size)).expect("a file");
    let status = Command::new(program)
        .args(arguments)
        .arg(&image)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap_or_else(|error| {
            panic!("{program} cannot be started ({error}): `cargo xtask test` installs it")
        });
    assert!(status.success(), "{program}");
    fs::read(&image).expect("the image")
}

const MENU: &str = "set default=\"1>a\"\nif [ x$a = x -o -s /b ]; then set root='hd0,gpt1'; else search --set=root --file /k; fi\n\
    submenu 'S' { menuentry \"a $b\" --id a { linux ($root)/k ro ${c}\ninitrd /k /k } }\nmenuentry b { linux /k x }\n";

#[test]
fn damaged_ext4_is_looked_over_without_a_panic() {
    let source = tempfile::tempdir().expect("a directory");
    fs::create_dir_all(source.path().join("boot/grub")).expect("a directory");
    fs::write(source.path().join("boot/grub/grub.cfg"), MENU).expect("a file");
    fs::write(source.path().join("k"), vec![7; 5000]).expect("a file");
    let tree = source.path().to_str().expect("a path");
    let plain = &["-q", "-b", "1024", "-d", tree][..];
    let old = &["-q", "-b", "1024", "-O", "^has_journal,^extent,^64bit,^metadata_csum", "-d", tree];
    // Small: changes meet what matters, and a fuzzer can afford many. Checksums would keep it out of all the rest.
    let small =
        &["-q", "-b", "1024", "-N", "32", "-O", "^has_journal,^resize_inode,^metadata_csum", "-d", tree];
    let seeds = vec![
        file_system("mkfs.ext4", plain, 2 << 20),
        file_system("mkfs.ext4", old, 2 << 20),
        file_system("mkfs.ext4", small, 256 << 10),
    ];
    Mutator::new(seeds, 2 << 20).seeding("guest_disk").run(300, look);
}

#[test]
fn damaged_fat_is_looked_over_without_a_panic() {
    let seeds: Vec<Vec<u8>> = ["12", "16", "32"]
        .iter()
        .zip([512_u64 << 10, 5 << 20, 34 << 20])
        .map(|(width, size)| {
            let mut image = file_system("mkfs.vfat", &["-F", width, "-s", "1", "-n", "X"], size);
            // What follows the root directory is empty, and not needed.
            image.truncate(1 << 20);
            image
        })
        .collect();
    Mutator::new(seeds, 1 << 20).seeding("guest_disk").run(1500, look);
}

/// A FAT12 of 64 KiB with one file, as the rules have it: small, so that changes meet what matters.
fn small_fat(file: &[u8], name: &[u8; 11]) -> Vec<u8> {
    let mut disk = vec![0_u8; 64 << 10];
    disk[..3].copy_from_slice(&[0xEB, 0x3C, 0x90]);
    disk[11..13].copy_from_slice(&512_u16.to_le_bytes());
    (disk[13], disk[14], disk[16]) = (1, 1, 1);
    disk[17..19].copy_from_slice(&16_u16.to_le_bytes());
    disk[19..21].copy_from_slice(&128_u16.to_le_bytes());
    (disk[21], disk[22]) = (0xF8, 1);
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    // Clusters 2, 3, ... in a chain.
    let clusters = file.len().div_ceil(512);
    let mut set = |cluster: usize, next: u16| {
        let at = 512 + cluster * 3 / 2;
        let shift = if cluster % 2 == 1 { 4 } else { 0 };
        disk[at] |= (next << shift) as u8;
        disk[at + 1] |= (next << shift >> 8) as u8;
    };
    (2..2 + clusters)
        .for_each(|cluster| set(cluster, if cluster == 1 + clusters { 0xFFF } else { cluster as u16 + 1 }));
    let entry = &mut disk[1024..1056];
    entry[..11].copy_from_slice(name);
    // Written small.
    entry[12] = 0x18;
    entry[26..28].copy_from_slice(&2_u16.to_le_bytes());
    entry[28..32].copy_from_slice(&(file.len() as u32).to_le_bytes());
    disk[1536..1536 + file.len()].copy_from_slice(file);
    disk
}

#[test]
fn damaged_chains_of_clusters_end() {
    let disk = small_fat(&[9; 5000], b"VMLINUZ-6  ");
    assert_eq!(guest::fuzzing::disk(&disk), Some(1), "its kernel is found");
    Mutator::new(vec![disk], 64 << 10).seeding("guest_disk").run(5000, look);
}
