//! Boots, restarts of the server and of the host, and two openings at once.
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::sync::Arc;

use block::conformance::pattern;
use block::{BlockDevice, BlockError, LogicalBlockSize, Patience};
use vdisk::{BadConfig, ImageFingerprint, OpenError, ResumeError, Volume, stored_boot, sweep};

use crate::fixture::{Fixture, Zeros, boot_id, image, read, write};

fn fixture(directory: &tempfile::TempDir) -> Fixture {
    Fixture::new(directory.path(), image(pattern(1 << 20), LogicalBlockSize::B512))
}

/// Changes bytes of the file's header and makes its checksum right again.
fn patch_header(fixture: &Fixture, at: usize, bytes: &[u8]) {
    let file = std::fs::File::options().read(true).write(true).open(fixture.config.path()).unwrap();
    let start = file.metadata().unwrap().len() - 4096;
    let mut header = [0; 4096];
    file.read_exact_at(&mut header, start).unwrap();
    header[at..at + bytes.len()].copy_from_slice(bytes);
    header[12..16].fill(0);
    let crc = crc32c::crc32c(&header);
    header[12..16].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&header, start).unwrap();
}

/// As if the host had been restarted since.
pub(crate) fn restart_host(fixture: &Fixture) {
    patch_header(fixture, 64, &[0x11; 16]);
}

#[test]
fn new_boot_starts_with_the_image_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory);
    assert_eq!(stored_boot(&fixture.config).unwrap(), None);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 8192]).unwrap();
    volume.abandon();
    assert_eq!(stored_boot(&fixture.config).unwrap(), Some(boot_id("boot-1")));
    let volume = fixture.begin("boot-2").unwrap();
    assert_eq!(read(&volume, 0, 1 << 20).unwrap(), pattern(1 << 20));
    assert_eq!(volume.usage().used.get(), 0);
    assert_eq!(volume.boot(), &boot_id("boot-2"));
    assert_eq!(stored_boot(&fixture.config).unwrap(), Some(boot_id("boot-2")));
    let mode = std::fs::metadata(fixture.config.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    drop(volume);
    assert!(
        matches!(fixture.resume("boot-1"), Err(ResumeError::OtherBoot(boot)) if boot == boot_id("boot-2"))
    );
    std::fs::remove_file(fixture.config.path()).unwrap();
    assert!(matches!(fixture.resume("boot-2"), Err(ResumeError::NoCache { .. })));
}

#[test]
fn write_cache_in_use_is_refused_and_its_process_named() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 0, &[1; 512]).unwrap();
    let own = std::process::id();
    assert!(matches!(fixture.begin("boot-2"), Err(OpenError::InUse(error)) if error.pid == Some(own)));
    let error = fixture.resume("boot-1").unwrap_err();
    assert!(matches!(&error, ResumeError::InUse(error) if error.pid == Some(own)));
    assert!(error.to_string().contains(&format!("in use by process {own}")), "{error}");
    assert_eq!(read(&volume, 0, 512).unwrap(), [1; 512]);
    volume.close().unwrap();
    assert_eq!(read(&fixture.resume("boot-1").unwrap(), 0, 512).unwrap(), [1; 512]);
}

#[test]
fn closed_volume_answers_closed_and_cannot_touch_the_next_boot() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory);
    let old = Arc::new(fixture.begin("boot-1").unwrap());
    write(&*old, 0, &[1; 512]).unwrap();
    old.abandon();
    let new = fixture.begin("boot-2").unwrap();
    assert!(matches!(write(&*old, 0, &[2; 512]), Err(BlockError::Closed)));
    assert!(matches!(read(&*old, 0, 512), Err(BlockError::Closed)));
    assert!(matches!(old.flush(Patience::Now), Err(BlockError::Closed)));
    old.close().unwrap();
    drop(old);
    assert_eq!(read(&new, 0, 512).unwrap(), pattern(1 << 20)[..512]);
    assert!(
        matches!(fixture.resume("boot-2"), Err(ResumeError::InUse(_))),
        "the old volume freed the new lock"
    );
}

#[test]
fn host_crash_loses_a_write_cache_in_use_and_keeps_a_closed_one() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory);
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, 4096, &[1; 512]).unwrap();
    volume.close().unwrap();
    restart_host(&fixture);
    let volume = fixture.resume("boot-1").unwrap();
    assert_eq!(read(&volume, 4096, 512).unwrap(), [1; 512]);
    volume.abandon();
    restart_host(&fixture);
    let error = fixture.resume("boot-1").unwrap_err();
    assert!(matches!(&error, ResumeError::Lost { boot, .. } if *boot == boot_id("boot-1")), "{error}");
    assert_eq!(stored_boot(&fixture.config).unwrap(), Some(boot_id("boot-1")));
    // Refused for good, until the device boots anew.
    assert!(matches!(fixture.resume("boot-1"), Err(ResumeError::Lost { .. })));
    fixture.begin("boot-2").unwrap();
}

#[test]
fn other_image_below_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory);
    fixture.begin("boot-1").unwrap().abandon();
    let resume_on = |image: Arc<dyn BlockDevice>, fingerprint| {
        let observer = Arc::clone(&fixture.heard);
        Volume::resume(image, fingerprint, &fixture.config, boot_id("boot-1"), observer).unwrap_err()
    };
    let same = ImageFingerprint([7; 32]);
    let changed = [
        resume_on(Arc::clone(&fixture.image), ImageFingerprint([8; 32])),
        resume_on(Zeros::of_size(1 << 21), same),
        resume_on(image(pattern(1 << 20), LogicalBlockSize::B4096), same),
    ];
    for error in changed {
        assert!(matches!(error, ResumeError::ImageChanged { .. }), "{error}");
    }
    fixture.resume("boot-1").unwrap();
}

#[test]
fn half_made_files_are_swept_and_others_kept() {
    let directory = tempfile::tempdir().unwrap();
    let fixture = fixture(&directory);
    let volume = fixture.begin("boot-1").unwrap();
    let half_made = directory.path().join("lab-08.cache.new");
    std::fs::write(&half_made, "x").unwrap();
    std::fs::write(directory.path().join("lab-09.cache"), "x").unwrap();
    assert_eq!(sweep(directory.path()).unwrap(), [half_made]);
    assert_eq!(sweep(directory.path()).unwrap().len(), 0);
    assert!(directory.path().join("lab-09.cache").exists());
    volume.close().unwrap();
    fixture.resume("boot-1").unwrap();
    // A leftover of the device itself is in nobody's way either.
    std::fs::write(directory.path().join("lab-07.cache.new"), "x").unwrap();
    fixture.begin("boot-2").unwrap();
}

#[test]
fn unusable_configuration_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let mut fixture = fixture(&directory);
    fixture.config.warn_percent = 0;
    assert!(matches!(fixture.begin("b"), Err(OpenError::Config(BadConfig::WarnPercent(0)))));
    fixture.config.warn_percent = 100;
    fixture.config.device = "../x".into();
    assert!(matches!(fixture.begin("b"), Err(OpenError::Config(BadConfig::Device(name))) if name == "../x"));
    assert!(stored_boot(&fixture.config).is_err());
    fixture.config.device = "x".into();
    fixture.config.directory = directory.path().join("absent");
    let error = fixture.begin("b").unwrap_err().to_string();
    assert!(error.contains("absent/"), "{error}");
    let image = Zeros::of_size(u64::MAX / 512 * 512);
    let fixture = Fixture::new(directory.path(), image);
    assert!(matches!(fixture.begin("b"), Err(OpenError::TooLarge { .. })));
}

#[test]
fn huge_volume_is_begun_written_and_resumed_in_little_space() {
    let directory = tempfile::tempdir().unwrap();
    let size = 8 << 40;
    let fixture = Fixture::new(directory.path(), Zeros::of_size(size));
    let volume = fixture.begin("boot-1").unwrap();
    write(&volume, size - 512, &[1; 512]).unwrap();
    write(&volume, size / 3 / 512 * 512, &[2; 1024]).unwrap();
    volume.close().unwrap();
    let volume = fixture.resume("boot-1").unwrap();
    assert_eq!(read(&volume, size - 1024, 1024).unwrap()[512..], [1; 512]);
    assert_eq!(read(&volume, size / 3 / 512 * 512, 1024).unwrap(), [2; 1024]);
    assert_eq!(volume.usage().used.get(), 2 * 4096);
}
