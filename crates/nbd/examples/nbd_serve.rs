//! Serves one disk over NBD, for tests, benches and quick trials:
//!
//! ```text
//! cargo run --release -p nbd --bin nbd_serve -- 127.0.0.1:10809 64M
//! cargo run --release -p nbd --bin nbd_serve -- 127.0.0.1:10809 disk.raw --read-only
//! cargo run --release -p nbd --bin nbd_serve -- /run/disk.sock disk.raw --tls CERTIFICATES
//! cargo run --release -p nbd --bin nbd_serve -- --activated disk.raw
//! cargo run --release -p nbd --bin nbd_serve -- 127.0.0.1:10809 disk.raw --limit 100
//! ```
//!
//! The export has the empty name and the name `disk`; with `--limit` the same disk has the name `limited` as well, by
//! which it moves so many MiB a second. What is no size (64M, 2G) is a raw image file; what begins with
//! `/` and is no address is the path of a socket; with `--activated` the sockets come from systemd. `--tls` demands
//! client certificates; the folder holds `ca-cert.pem`, `server-cert.pem` and `server-key.pem`, as for QEMU and nbdkit.
use std::fs::File;
use std::io::IoSliceMut;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use block::{
    Access, Allocation, BlockDevice, BlockError, ByteLength, ByteOffset, ByteRange, FileSpan, Geometry,
    LogicalBlockSize, MemoryDevice, Patience,
};
use nbd::exports::{
    ConnectionEnd, Export, ExportObserver, Exports, Listed, Peer, Purpose, Refusal, RequestDone,
};
use nbd::server::{ClientCertificates, ListenAddress, Listener, NbdServer, ServerConfig, Tls, TlsServer};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::ReadWriteFlags;

/// How far a limited client that was idle may go beyond its rate.
const LIMIT_BURST: Duration = Duration::from_millis(100);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let read_only = take_flag(&mut arguments, "--read-only");
    let limit =
        take_value(&mut arguments, "--limit").map(|mebibytes| mebibytes.parse::<u64>()).transpose()?;
    let tls = match take_value(&mut arguments, "--tls") {
        Some(folder) => Tls::Required(certificates(Path::new(&folder))?),
        None => Tls::Off,
    };
    let [place, disk] = arguments.as_slice() else {
        return Err(
            "usage: serve ADDRESS:PORT|/SOCKET|--activated SIZE|FILE [--read-only] [--tls FOLDER] [--limit MIB]"
                .into()
        );
    };
    let listeners = match place.as_str() {
        "--activated" => Listener::from_service_manager()?,
        path if path.starts_with('/') => {
            let _ = std::fs::remove_file(path);
            vec![Listener::Unix(std::os::unix::net::UnixListener::bind(path)?)]
        }
        address => vec![Listener::Tcp(std::net::TcpListener::bind(address)?)],
    };
    let device: Arc<dyn BlockDevice> = match parse_size(disk) {
        Some(size) => Arc::new(
            MemoryDevice::zeroed(size, LogicalBlockSize::B512).ok_or("not a whole number of blocks")?,
        ),
        None => Arc::new(FileDevice::open(disk, read_only)?),
    };
    // A bench comes with many from one address.
    connections::allow_open_files(4096)?;
    let config = ServerConfig { tls, max_connections_per_address: 4096, ..ServerConfig::default() };
    let server = NbdServer::start(listeners, config, Arc::new(OneDisk::new(device, read_only, limit)))?;
    for address in server.local_addresses() {
        match address {
            ListenAddress::Ip(address) => println!("nbd://{address}/disk"),
            ListenAddress::Unix(path) => {
                println!("nbd+unix:///disk?socket={}", path.as_deref().unwrap_or(Path::new("")).display());
            }
        }
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

fn take_flag(arguments: &mut Vec<String>, flag: &str) -> bool {
    let before = arguments.len();
    arguments.retain(|argument| argument != flag);
    arguments.len() < before
}

fn take_value(arguments: &mut Vec<String>, flag: &str) -> Option<String> {
    let at = arguments.iter().position(|argument| argument == flag).filter(|at| at + 1 < arguments.len())?;
    arguments.drain(at..at + 2).nth(1)
}

fn certificates(folder: &Path) -> Result<TlsServer, nbd::server::TlsError> {
    let [authority, certificate, key] =
        ["ca-cert.pem", "server-cert.pem", "server-key.pem"].map(|name| folder.join(name));
    TlsServer::from_pem_files(&authority, &certificate, &key, ClientCertificates::Required)
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
    device: Arc<dyn BlockDevice>,
    read_only: bool,
    limited: Option<meter::Account>,
}

impl OneDisk {
    fn new(device: Arc<dyn BlockDevice>, read_only: bool, limit_mebibytes: Option<u64>) -> Self {
        let limited = limit_mebibytes.map(|mebibytes| {
            let account = meter::Account::default();
            account.limiter.set(meter::Rates {
                bytes_per_second: Some(mebibytes << 20),
                burst: LIMIT_BURST,
                ..meter::Rates::UNLIMITED
            });
            account
        });
        Self { device, read_only, limited }
    }
}

impl Exports for OneDisk {
    fn list(&self, _: &Peer) -> Vec<Listed> {
        vec![Listed { name: "disk".to_owned(), description: "the disk of this example".to_owned() }]
    }

    fn open(&self, name: &str, _: Purpose, _: &Peer) -> Result<Export, Refusal> {
        let account = match (name, &self.limited) {
            ("" | "disk", _) => meter::Account::default(),
            ("limited", Some(account)) => account.clone(),
            _ => return Err(Refusal::Unknown("there is only \"disk\"".to_owned())),
        };
        Ok(Export {
            device: Arc::clone(&self.device),
            description: "the disk of this example".to_owned(),
            read_only: self.read_only,
            multi_conn: true,
            fast_zero: true,
            observer: Arc::new(Quiet),
            account,
        })
    }
}

struct Quiet;

impl ExportObserver for Quiet {
    fn request_done(&self, _: &RequestDone) {}
    fn ended(&self, _: ConnectionEnd) {}
}

/// A raw image file.
#[derive(Debug)]
struct FileDevice {
    file: Arc<File>,
    geometry: Geometry,
}

impl FileDevice {
    fn open(path: &str, read_only: bool) -> std::io::Result<Self> {
        let file = File::options().read(true).write(!read_only).open(path)?;
        let size = ByteLength::new(file.metadata()?.len() / 512 * 512);
        let geometry = Geometry {
            size,
            logical_block: LogicalBlockSize::B512,
            physical_block: 4096,
            discard_granularity: Some(4096),
            access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
        };
        Ok(Self { file: Arc::new(file), geometry })
    }

    /// Reads what is in memory.
    fn read_now(&self, at: u64, buffer: &mut [u8]) -> Result<bool, rustix::io::Errno> {
        let wanted = buffer.len();
        let mut slices = [IoSliceMut::new(buffer)];
        match rustix::io::preadv2(&self.file, &mut slices, at, ReadWriteFlags::NOWAIT) {
            Ok(count) => Ok(count == wanted),
            Err(rustix::io::Errno::AGAIN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn change(&self, flags: FallocateFlags, range: ByteRange) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(range.start(), range.length())?;
        let flags = flags | FallocateFlags::KEEP_SIZE;
        fallocate(&self.file, flags, range.start().get(), range.length().get())
            .map_err(|error| BlockError::Storage { range, source: error.into() })
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
        match self.read_now(at.get(), buffer) {
            Ok(true) => Ok(()),
            Ok(false) => Err(BlockError::WouldBlock),
            Err(error) => Err(failed(error.into())),
        }
    }

    fn write(&self, at: ByteOffset, data: &[u8], _: Patience) -> Result<(), BlockError> {
        let range = self.geometry.check_writable(at, ByteLength::of(data))?;
        self.file.write_all_at(data, at.get()).map_err(|source| BlockError::Storage { range, source })
    }

    fn flush(&self, patience: Patience) -> Result<(), BlockError> {
        if self.geometry.access == Access::ReadOnly {
            return Ok(());
        }
        if patience == Patience::Now {
            return Err(BlockError::WouldBlock);
        }
        let range = ByteRange::new(ByteOffset::ZERO, self.geometry.size).ok_or(BlockError::Closed)?;
        self.file.sync_data().map_err(|source| BlockError::Storage { range, source })
    }

    fn discard(&self, range: ByteRange, _: Patience) -> Result<(), BlockError> {
        self.change(FallocateFlags::PUNCH_HOLE, range)
    }

    fn write_zeroes(&self, range: ByteRange, _: Patience) -> Result<(), BlockError> {
        self.change(FallocateFlags::PUNCH_HOLE, range)
    }

    fn allocation(&self, range: ByteRange, _: Patience) -> Result<(Allocation, ByteLength), BlockError> {
        let range = self.geometry.check(range.start(), range.length())?;
        let failed = |error: rustix::io::Errno| BlockError::Storage { range, source: error.into() };
        let start = range.start().get();
        let until = |at: u64| ByteLength::new(at.min(range.end().get()) / 512 * 512 - start);
        match seek(&self.file, SeekFrom::Data(start)) {
            // Nothing but a hole behind.
            Err(rustix::io::Errno::NXIO) => Ok((Allocation::Hole, range.length())),
            Err(error) => Err(failed(error)),
            Ok(data) if data >= start + 512 => Ok((Allocation::Hole, until(data))),
            Ok(_) => {
                let hole = seek(&self.file, SeekFrom::Hole(start)).map_err(failed)?;
                Ok((Allocation::Data, until(hole.max(start + 512))))
            }
        }
    }

    fn file_span(&self, range: ByteRange, patience: Patience) -> Option<FileSpan> {
        // Only the bytes of a file that nobody writes do not change.
        if self.geometry.access == Access::ReadWrite {
            return None;
        }
        let range = self.geometry.check(range.start(), range.length()).ok()?;
        let in_memory = |at: u64| self.read_now(at, &mut [0]).unwrap_or(false);
        let hot = || in_memory(range.start().get()) && in_memory(range.end().get() - 1);
        (patience == Patience::Blocking || hot()).then(|| FileSpan {
            file: Arc::clone(&self.file),
            at: range.start(),
            length: range.length(),
        })
    }
}
