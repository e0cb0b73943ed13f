//! Serves one disk over iSCSI, for tests and quick trials:
//!
//! ```text
//! cargo run --release -p iscsi --example iscsi_serve -- 127.0.0.1:3260 64M
//! cargo run --release -p iscsi --example iscsi_serve -- 127.0.0.1:3260 disk.raw alice secret-of-12b
//! ```
//!
//! The disk is LUN 1 of `iqn.2026-01.io.headwater:serve`; what is no size (64M, 2G) is a raw image file.
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use block::{
    Access, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, Geometry, LogicalBlockSize,
    MemoryDevice, Patience,
};
use iscsi::directory::{
    Authentication, ChapCredentials, Coexistence, Directory, Grant, IscsiName, LoginAttempt, Refusal,
    RequestKind, SessionEnd, SessionObserver,
};
use iscsi::server::{ServerConfig, TargetServer};
use rustix::io::ReadWriteFlags;

const TARGET: &str = "iqn.2026-01.io.headwater:serve";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (address, disk, chap) = match arguments.as_slice() {
        [address, disk] => (address, disk, None),
        [address, disk, user, secret] => {
            (address, disk, Some(ChapCredentials::one_way(user.as_str(), secret.as_bytes())))
        }
        _ => return Err("usage: serve ADDRESS:PORT SIZE|FILE [CHAP-USER CHAP-SECRET]".into()),
    };
    let device: Arc<dyn BlockDevice> = match parse_size(disk) {
        Some(size) => Arc::new(
            MemoryDevice::zeroed(size, LogicalBlockSize::B512).ok_or("not a whole number of blocks")?,
        ),
        None => Arc::new(FileDevice::open(disk)?),
    };
    let identity = scsi::UnitIdentity { serial: "serve".to_owned(), uuid: *b"headwater-serve!" };
    let unit = Arc::new(scsi::LogicalUnit::new(device, identity));
    let target = IscsiName::parse(TARGET).ok_or("target name")?;
    let directory = Arc::new(OneDisk { target, unit, chap });
    let listener = std::net::TcpListener::bind(address)?;
    connections::allow_open_files(4096)?;
    let server = TargetServer::start(vec![listener], ServerConfig::default(), directory)?;
    for address in server.local_addresses() {
        println!("iscsi://{address}/{TARGET}/1");
    }
    // Until standard input ends or says something.
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        loop {
            std::thread::park();
        }
    }
    server.shutdown(Duration::from_secs(3));
    Ok(())
}

fn parse_size(text: &str) -> Option<ByteLength> {
    let (digits, shift) = match text.as_bytes().last()? {
        b'M' => (&text[..text.len() - 1], 20),
        b'G' => (&text[..text.len() - 1], 30),
        _ => return None,
    };
    Some(ByteLength::new(digits.parse::<u64>().ok()? << shift))
}

struct OneDisk {
    target: IscsiName,
    unit: Arc<scsi::LogicalUnit>,
    chap: Option<ChapCredentials>,
}

impl Directory for OneDisk {
    fn discover(&self, _: &LoginAttempt) -> Vec<IscsiName> {
        vec![self.target.clone()]
    }

    fn authentication(&self, attempt: &LoginAttempt) -> Result<Authentication, Refusal> {
        Ok(match &self.chap {
            Some(credentials) if attempt.target.is_some() => Authentication::Chap(credentials.clone()),
            _ => Authentication::None,
        })
    }

    fn open(&self, attempt: &LoginAttempt) -> Result<Grant, Refusal> {
        if attempt.target.as_ref() != Some(&self.target) {
            return Err(Refusal::NotFound("there is only one target".to_owned()));
        }
        Ok(Grant {
            units: vec![(1, Arc::clone(&self.unit))],
            coexistence: Coexistence::Shared,
            observer: Arc::new(Quiet),
            account: meter::Account::default(),
        })
    }
}

struct Quiet;

impl SessionObserver for Quiet {
    fn request_done(&self, _: RequestKind, _: ByteRange, _: Duration, _: bool) {}
    fn ended(&self, _: SessionEnd) {}
}

/// A raw image file.
#[derive(Debug)]
struct FileDevice {
    file: File,
    geometry: Geometry,
}

impl FileDevice {
    fn open(path: &str) -> std::io::Result<Self> {
        let file = File::options().read(true).write(true).open(path)?;
        let size = ByteLength::new(file.metadata()?.len() / 512 * 512);
        let geometry = Geometry {
            size,
            logical_block: LogicalBlockSize::B512,
            physical_block: 4096,
            discard_granularity: None,
            access: Access::ReadWrite,
        };
        Ok(Self { file, geometry })
    }
}

impl BlockDevice for FileDevice {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn read(&self, at: ByteOffset, buffer: &mut [u8], patience: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check(at, ByteLength::of(buffer))?;
        let failed = |source| BlockError::Storage { range, source };
        if patience == Patience::Blocking {
            return self.file.read_exact_at(buffer, at.get()).map_err(failed);
        }
        let wanted = buffer.len();
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.file, &mut slices, at.get(), ReadWriteFlags::NOWAIT) {
            Ok(count) if count == wanted => Ok(()),
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Err(BlockError::WouldBlock),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn write(&self, at: ByteOffset, data: &[u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check(at, ByteLength::of(data))?;
        self.file.write_all_at(data, at.get()).map_err(|source| BlockError::Storage { range, source })
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        if patience == Patience::Now {
            return Err(BlockError::WouldBlock);
        }
        let range = ByteRange::new(ByteOffset::ZERO, self.geometry.size).ok_or(BlockError::Closed)?;
        self.file.sync_data().map_err(|source| BlockError::Storage { range, source })
    }

    fn discard(&self, _: ByteRange, _: Patience) -> Result<(), BlockError> {
        Ok(())
    }

    fn write_zeroes(&self, range: ByteRange, patience: Patience) -> Result<(), BlockError> {
        let zeros = vec![0; 1 << 20];
        let mut at = range.start().get();
        while at < range.end().get() {
            let bytes =
                usize::try_from(range.end().get() - at).map_or(zeros.len(), |left| left.min(zeros.len()));
            self.write(ByteOffset::new(at), &zeros[..bytes], patience)?;
            at += bytes as u64;
        }
        Ok(())
    }
}
