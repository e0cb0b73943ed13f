//! Two initiators and one disk: any sequence of commands from both is answered, and a refused one changes nothing.
#![no_main]
use std::sync::Arc;

use block::{BlockDevice, ByteLength, ByteOffset, LogicalBlockSize, MemoryDevice, Patience};
use libfuzzer_sys::fuzz_target;
use scsi::{Failure, InitiatorPort, LogicalUnit, Transfer, UnitIdentity, Units};

const DISK_BYTES: usize = 32 << 10;

fn contents(device: &MemoryDevice) -> Vec<u8> {
    let mut bytes = vec![0; DISK_BYTES];
    device.read(ByteOffset::ZERO, &mut bytes, Patience::Blocking).unwrap();
    bytes
}

/// Plays one command; whether it was carried out.
fn play(units: &Units, cdb: &[u8], data: &[u8]) -> bool {
    let Ok(task) = units.task([0; 8], cdb) else { return false };
    match task.transfer() {
        Transfer::In { bytes } => {
            assert!(bytes <= 64 << 10, "{bytes} bytes of Data-In");
            let mut buffer = vec![0; bytes as usize];
            task.read_in(0, &mut buffer, Patience::Now).is_ok()
        }
        Transfer::None | Transfer::Out { .. } => match task.run(data, Patience::Blocking) {
            Ok(()) => true,
            Err(Failure::WouldBlock) => panic!("would block"),
            Err(_) => false,
        },
    }
}

fuzz_target!(|bytes: &[u8]| {
    let size = ByteLength::new(DISK_BYTES as u64);
    let device = Arc::new(MemoryDevice::zeroed(size, LogicalBlockSize::B512).unwrap());
    let identity = UnitIdentity { serial: "fuzz".to_owned(), uuid: [1; 16] };
    let unit = Arc::new(LogicalUnit::new(Arc::clone(&device) as _, identity).removable());
    let session = |number| {
        let port = InitiatorPort::iscsi("iqn.2026-01.fuzz:a", [0, 0, 0, 0, 0, number]);
        Units::new(&port, [(0, Arc::clone(&unit))])
    };
    let mut sessions = [session(0), session(1)];
    // Who, how much data, what it is made of; then the CDB.
    let mut rest = bytes;
    while let Some(([who, length, fill, kind], behind)) = rest.split_first_chunk::<4>() {
        let (cdb, behind) = behind.split_at(behind.len().min(16));
        let own = usize::from(*length).min(behind.len());
        let blocks = [0_usize, 512, 1024, 2048][usize::from(kind & 3)];
        let data = if blocks == 0 { behind[..own].to_vec() } else { vec![*fill; blocks] };
        rest = if blocks == 0 { &behind[own..] } else { behind };
        let who = usize::from(who & 1);
        match kind >> 4 {
            14 => unit.reset(),
            15 => sessions[who] = session(who as u8),
            _ => {
                let before = contents(&device);
                let done = play(&sessions[who], cdb, &data);
                assert!(done || contents(&device) == before, "a refused command changed the disk");
            }
        }
    }
});
