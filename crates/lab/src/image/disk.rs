//! A bootable GPT disk as one file, made without loop devices or mounts.
//!
//! Each file system is made in the image at its place (`mkfs.ext4 -d` fills it from a folder; the EFI system partition
//! is filled by mtools). BIOS boots through GRUB's `boot.img` in the MBR, which loads one sector from the BIOS boot
//! partition, which knows the list of the sectors that follow. `grub-install` writes these three numbers into running
//! machines; here they are written into the file.
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::run;

const SECTOR_BYTES: u64 = 512;
const SECTORS_PER_MIB: u64 = (1 << 20) / SECTOR_BYTES;
/// The GPT's spare copy lies in the last 33 sectors; a whole MiB keeps everything aligned.
const TAIL_MIB: u64 = 1;
/// The BIOS boot partition: the second MiB of the disk.
const BIOS_BOOT_MIB: u64 = 1;

const TYPE_BIOS_BOOT: &str = "21686148-6449-6E6F-744E-656564454649";
const TYPE_ESP: &str = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B";
const TYPE_LINUX_ROOT_X86_64: &str = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709";

const GRUB_MODULES: &str = "part_gpt part_msdos ext2 fat search search_label search_fs_uuid normal configfile linux \
                            echo serial terminal boot test halt reboot";

/// An ext4 partition.
pub(super) struct Partition<'a> {
    /// The name of both the partition and the file system.
    pub(super) label: &'a str,
    /// Its size.
    pub(super) size_mib: u64,
    /// The folder that fills it; it stays empty without one.
    pub(super) content: Option<&'a Path>,
}

/// What the disk holds after the BIOS boot partition. GRUB looks for its configuration in `root`.
pub(super) struct Disk<'a> {
    /// The size of the EFI system partition.
    pub(super) esp_mib: u64,
    /// The others, in their order.
    pub(super) partitions: &'a [Partition<'a>],
}

impl Disk<'_> {
    /// Makes the disk in the workplace, as VHDX with payload blocks of this size, and gives its path.
    pub(super) fn build(&self, workplace: &Path, payload_block_mib: u64) -> Result<PathBuf> {
        let raw = workplace.join("disk.raw");
        File::create(&raw)?.set_len(self.size_mib() << 20)?;
        let table = workplace.join("partitions");
        fs::write(&table, self.partition_table())?;
        crate::command::output(
            std::process::Command::new("sh")
                .args(["-c", "exec sfdisk --quiet \"$1\" <\"$2\"", "sh"])
                .args([&raw, &table]),
        )?;
        let early = workplace.join("early.cfg");
        fs::write(
            &early,
            "search --no-floppy --label root --set=root\nset prefix=($root)/boot/grub\nconfigfile $prefix/grub.cfg\n",
        )?;
        self.write_esp(workplace, &raw, &early)?;
        self.write_file_systems(&raw)?;
        write_bios_loader(workplace, &raw, &early)?;
        let vhdx = workplace.join("disk.vhdx");
        let options = format!("subformat=dynamic,block_size={payload_block_mib}M");
        run("qemu-img", &["convert", "-f", "raw", "-O", "vhdx", "-o", &options, text(&raw)?, text(&vhdx)?])?;
        fs::remove_file(raw)?;
        Ok(vhdx)
    }

    fn esp_start_mib() -> u64 {
        1 + BIOS_BOOT_MIB
    }

    /// The partitions with the places where they start.
    fn placed(&self) -> impl Iterator<Item = (u64, &Partition<'_>)> {
        let mut next = Self::esp_start_mib() + self.esp_mib;
        self.partitions.iter().map(move |partition| {
            let start = next;
            next += partition.size_mib;
            (start, partition)
        })
    }

    fn size_mib(&self) -> u64 {
        let end = self
            .placed()
            .last()
            .map_or(Self::esp_start_mib() + self.esp_mib, |(start, p)| start + p.size_mib);
        end + TAIL_MIB
    }

    /// In sfdisk's language, sizes and places in sectors.
    fn partition_table(&self) -> String {
        let mut table = "label: gpt\n".to_owned();
        let mut add = |start_mib: u64, size_mib: u64, kind: &str, name: &str| {
            let (start, size) = (start_mib * SECTORS_PER_MIB, size_mib * SECTORS_PER_MIB);
            // Writing to a String cannot fail.
            let _ = writeln!(table, "start={start}, size={size}, type={kind}, name={name}");
        };
        add(1, BIOS_BOOT_MIB, TYPE_BIOS_BOOT, "biosboot");
        add(Self::esp_start_mib(), self.esp_mib, TYPE_ESP, "ESP");
        for (start, partition) in self.placed() {
            add(start, partition.size_mib, TYPE_LINUX_ROOT_X86_64, partition.label);
        }
        table
    }

    fn write_esp(&self, workplace: &Path, raw: &Path, early: &Path) -> Result<()> {
        let loader = workplace.join("BOOTX64.EFI");
        make_grub("x86_64-efi", early, &loader, "efi_gop")?;
        let esp = workplace.join("esp");
        File::create(&esp)?.set_len(self.esp_mib << 20)?;
        run("mkfs.vfat", &["-n", "ESP", text(&esp)?])?;
        run("mmd", &["-i", text(&esp)?, "::/EFI", "::/EFI/BOOT"])?;
        run("mcopy", &["-i", text(&esp)?, text(&loader)?, "::/EFI/BOOT/BOOTX64.EFI"])?;
        File::options().write(true).open(raw)?.write_all_at(&fs::read(&esp)?, Self::esp_start_mib() << 20)?;
        Ok(())
    }

    fn write_file_systems(&self, raw: &Path) -> Result<()> {
        for (start, partition) in self.placed() {
            // An orphan file and a checksum seed are what older GRUBs cannot read.
            let features = "^metadata_csum_seed,^orphan_file";
            let extended =
                format!("offset={},lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", start << 20);
            let size = format!("{}k", partition.size_mib << 10);
            let mut words =
                vec!["-q", "-F", "-L", partition.label, "-O", features, "-E", &extended, "-m", "0"];
            if let Some(content) = partition.content {
                words.extend(["-d", text(content)?]);
            }
            words.extend([text(raw)?, &size]);
            run("mkfs.ext4", &words)?;
        }
        Ok(())
    }
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}

fn make_grub(format: &str, early: &Path, output: &Path, extra_module: &str) -> Result<()> {
    let mut words =
        vec!["-O", format, "-p", "/boot/grub", "-c", text(early)?, "-o", text(output)?, extra_module];
    words.extend(GRUB_MODULES.split_whitespace());
    run("grub-mkimage", &words).map(|_| ())
}

/// Places in GRUB's `boot.img` (grub-core/boot/i386/pc/boot.S) and `diskboot.img` that an installer fills in.
mod patch {
    /// `boot.img`: the sector of the first sector of the core image, 64 bits.
    pub(super) const BOOT_KERNEL_SECTOR: usize = 0x5c;
    /// `boot.img`: a jump that keeps the drive number that the BIOS gave; two NOPs let GRUB check it as a hard disk.
    pub(super) const BOOT_DRIVE_CHECK: usize = 0x66;
    /// The first sector of the core image: its block list, one entry of start (64), count (16), segment (16 bits).
    pub(super) const CORE_BLOCK_LIST: usize = 0x1f4;
    /// Where the second sector of the core image goes in memory (GRUB_BOOT_MACHINE_KERNEL_SEG + 0x20).
    pub(super) const CORE_SEGMENT: u16 = 0x820;
    /// How much of the first sector is code; the partition table follows.
    pub(super) const MBR_CODE_BYTES: usize = 440;
}

fn write_bios_loader(workplace: &Path, raw: &Path, early: &Path) -> Result<()> {
    let core_path = workplace.join("core.img");
    make_grub("i386-pc", early, &core_path, "biosdisk")?;
    let place = SECTORS_PER_MIB;
    let boot = fs::read("/usr/lib/grub/i386-pc/boot.img")?;
    let core = patched_core(fs::read(core_path)?, place)?;
    let file = File::options().write(true).open(raw)?;
    file.write_all_at(&patched_boot(boot, place)?[..patch::MBR_CODE_BYTES], 0)?;
    file.write_all_at(&core, place * SECTOR_BYTES)?;
    (&file).flush()?;
    Ok(())
}

fn patched_boot(mut boot: Vec<u8>, core_sector: u64) -> Result<Vec<u8>> {
    ensure!(boot.len() == 512, "GRUB's boot.img is {} bytes long, expected 512", boot.len());
    boot[patch::BOOT_KERNEL_SECTOR..][..8].copy_from_slice(&core_sector.to_le_bytes());
    boot[patch::BOOT_DRIVE_CHECK..][..2].copy_from_slice(&[0x90, 0x90]);
    Ok(boot)
}

fn patched_core(mut core: Vec<u8>, core_sector: u64) -> Result<Vec<u8>> {
    core.resize(core.len().next_multiple_of(512), 0);
    let sectors = u16::try_from(core.len() / 512).context("GRUB's core image is too large")?;
    ensure!(sectors > 1, "GRUB's core image is empty");
    ensure!(core.len() as u64 <= BIOS_BOOT_MIB << 20, "GRUB's core image does not fit its partition");
    let list = &mut core[patch::CORE_BLOCK_LIST..][..12];
    list[..8].copy_from_slice(&(core_sector + 1).to_le_bytes());
    list[8..10].copy_from_slice(&(sectors - 1).to_le_bytes());
    list[10..].copy_from_slice(&patch::CORE_SEGMENT.to_le_bytes());
    Ok(core)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_table_places_partitions_one_after_another() {
        let partitions = [
            Partition { label: "root", size_mib: 40, content: None },
            Partition { label: "data", size_mib: 16, content: None },
        ];
        let disk = Disk { esp_mib: 4, partitions: &partitions };
        assert_eq!(
            disk.partition_table(),
            format!(
                "label: gpt\nstart=2048, size=2048, type={TYPE_BIOS_BOOT}, name=biosboot\n\
                 start=4096, size=8192, type={TYPE_ESP}, name=ESP\n\
                 start=12288, size=81920, type={TYPE_LINUX_ROOT_X86_64}, name=root\n\
                 start=94208, size=32768, type={TYPE_LINUX_ROOT_X86_64}, name=data\n"
            )
        );
        assert_eq!(disk.size_mib(), 1 + 1 + 4 + 40 + 16 + 1);
    }

    #[test]
    fn core_image_lists_the_sectors_after_its_first() {
        let core = patched_core(vec![7; 1300], 2048).unwrap();
        assert_eq!(core.len(), 1536);
        assert_eq!(&core[0x1f4..0x200], [1, 8, 0, 0, 0, 0, 0, 0, 2, 0, 0x20, 8]);
    }

    #[test]
    fn boot_sector_points_at_the_core_image() {
        let boot = patched_boot(vec![0; 512], 2048).unwrap();
        assert_eq!(&boot[0x5c..0x68], [0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0x90, 0x90]);
        patched_boot(vec![0; 511], 2048).unwrap_err();
    }
}
