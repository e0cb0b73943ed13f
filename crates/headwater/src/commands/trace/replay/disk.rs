//! The disks that a trace is replayed on: any server's, over NBD or iSCSI.
use std::collections::HashMap;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use iscsi::initiator::{Command, Initiator, Wish};
use nbd::client::{
    ChangeOptions, Client, ConnectOptions, Cookie, Event, Request as NbdRequest, ServerAddress,
};
use trace::{Kind, Request};

/// How long a server may be silent.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest write; the data of all of them is one buffer of this size.
const MAX_WRITE_BYTES: u64 = 32 << 20;

/// What is written: bytes that no server takes for a hole.
const WRITTEN: u8 = 0x5A;

const NBD_PORT: u16 = 10809;
const ISCSI_PORT: u16 = 3260;

/// How the address of a disk is written.
const FORMS: &str =
    "nbd://HOST[:PORT]/EXPORT, nbd+unix:///EXPORT?socket=PATH or iscsi://HOST[:PORT]/TARGET[/LUN]";

/// A connection to a disk, with requests in flight.
pub(super) trait Disk: Send {
    /// Its size.
    fn size_bytes(&self) -> u64;
    /// The unit of offsets and lengths.
    fn block_bytes(&self) -> u64;
    /// Whether the server takes another request now.
    fn has_room(&self) -> bool;
    /// Sends a request that fits; its tag.
    fn submit(&mut self, request: &Request) -> anyhow::Result<u64>;
    /// Waits for answers: their tags, and whether they are good.
    fn receive(&mut self) -> anyhow::Result<Vec<(u64, bool)>>;
}

/// Where a disk is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Nbd { server: ServerAddress, export: String },
    Iscsi { address: SocketAddr, target: String, lun: u16 },
}

impl Place {
    /// Reads the address of a disk.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let bad = || anyhow!("\"{text}\" names no disk: it is {FORMS}");
        if let Some(rest) = text.strip_prefix("nbd+unix:///") {
            let (export, socket) = rest.split_once("?socket=").ok_or_else(bad)?;
            let server = ServerAddress::Unix(socket.into());
            return Ok(Self::Nbd { server, export: export.to_owned() });
        }
        if let Some(rest) = text.strip_prefix("nbd://") {
            let (host, export) = rest.split_once('/').unwrap_or((rest, ""));
            let server = ServerAddress::Ip(resolve(host, NBD_PORT)?);
            return Ok(Self::Nbd { server, export: export.to_owned() });
        }
        let rest = text.strip_prefix("iscsi://").ok_or_else(bad)?;
        let (host, target) = rest.split_once('/').ok_or_else(bad)?;
        let (target, lun) = match target.split_once('/') {
            Some((target, lun)) => (target, lun.parse().map_err(|_| bad())?),
            None => (target, 1),
        };
        ensure!(!target.is_empty(), bad());
        Ok(Self::Iscsi { address: resolve(host, ISCSI_PORT)?, target: target.to_owned(), lun })
    }

    /// Connects client `number` to it, over iSCSI under this name or one of its own.
    pub(super) fn connect(&self, number: u32, initiator: Option<&str>) -> anyhow::Result<Box<dyn Disk>> {
        match self {
            Self::Nbd { server, export } => {
                let options = ConnectOptions {
                    export: export.clone(),
                    patience: PATIENCE,
                    ..ConnectOptions::default()
                };
                let client = Client::connect(server, &options)
                    .with_context(|| format!("NBD export \"{export}\" cannot be used"))?;
                Ok(Box::new(Nbd { client, tags: HashMap::new(), next_tag: 0, data: Vec::new() }))
            }
            Self::Iscsi { address, target, lun } => {
                let wish = Wish {
                    initiator: initiator
                        .map_or_else(|| format!("iqn.2026-11.org.headwater:replay-{number}"), str::to_owned),
                    target: target.clone(),
                    lun: *lun,
                    number,
                    patience: PATIENCE,
                };
                let initiator = Initiator::connect(*address, &wish)
                    .with_context(|| format!("iSCSI target {target} at {address} cannot be used"))?;
                Ok(Box::new(Iscsi { initiator, data: Vec::new() }))
            }
        }
    }
}

fn resolve(host: &str, port: u16) -> anyhow::Result<SocketAddr> {
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let with_port = if has_port && !host.ends_with(']') { host.to_owned() } else { format!("{host}:{port}") };
    let found = with_port.to_socket_addrs().with_context(|| format!("{host} is no host"))?.next();
    found.ok_or_else(|| anyhow!("{host} has no address"))
}

/// The data of a write.
fn written(buffer: &mut Vec<u8>, length: u64) -> anyhow::Result<&[u8]> {
    ensure!(length <= MAX_WRITE_BYTES, "a recorded write of {length} bytes is longer than {MAX_WRITE_BYTES}");
    let length = usize::try_from(length)?;
    if buffer.len() < length {
        buffer.resize(length, WRITTEN);
    }
    buffer.get(..length).context("the buffer was just made that long")
}

struct Nbd {
    client: Client,
    tags: HashMap<Cookie, u64>,
    next_tag: u64,
    data: Vec<u8>,
}

impl Disk for Nbd {
    fn size_bytes(&self) -> u64 {
        self.client.export().size_bytes
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.client.export().minimum_block).max(1)
    }

    fn has_room(&self) -> bool {
        true
    }

    fn submit(&mut self, request: &Request) -> anyhow::Result<u64> {
        let Request { offset, length, .. } = *request;
        let options = ChangeOptions::default();
        let request = match request.kind {
            Kind::Read => NbdRequest::Read { offset, length: u32::try_from(length)?, unfragmented: false },
            Kind::Write => NbdRequest::Write { offset, data: written(&mut self.data, length)?, options },
            Kind::Flush => NbdRequest::Flush,
            Kind::Discard => NbdRequest::Trim { offset, length, options },
        };
        let cookie = self.client.submit(&request)?;
        self.client.send()?;
        self.next_tag = self.next_tag.wrapping_add(1);
        self.tags.insert(cookie, self.next_tag);
        Ok(self.next_tag)
    }

    fn receive(&mut self) -> anyhow::Result<Vec<(u64, bool)>> {
        let mut done = Vec::new();
        let Self { client, tags, .. } = self;
        while done.is_empty() {
            client.receive(&mut |event| {
                if let Event::Finished { cookie, result } = event
                    && let Some(tag) = tags.remove(&cookie)
                {
                    done.push((tag, result.is_ok()));
                }
            })?;
        }
        Ok(done)
    }
}

struct Iscsi {
    initiator: Initiator,
    data: Vec<u8>,
}

impl Disk for Iscsi {
    fn size_bytes(&self) -> u64 {
        self.initiator.size_bytes()
    }

    fn block_bytes(&self) -> u64 {
        self.initiator.block_bytes().into()
    }

    fn has_room(&self) -> bool {
        self.initiator.has_room()
    }

    fn submit(&mut self, request: &Request) -> anyhow::Result<u64> {
        let block = self.block_bytes();
        let lba = request.offset.checked_div(block).unwrap_or(0);
        let blocks = request.length.checked_div(block).unwrap_or(0);
        let blocks = u32::try_from(blocks).context("a request of more than 2^32 blocks")?;
        let command = match request.kind {
            Kind::Read => Command::Read { lba, blocks },
            Kind::Write => Command::Write { lba, data: written(&mut self.data, request.length)? },
            Kind::Flush => Command::Flush,
            Kind::Discard => Command::Unmap { lba, blocks },
        };
        Ok(self.initiator.submit(&command)?.into())
    }

    fn receive(&mut self) -> anyhow::Result<Vec<(u64, bool)>> {
        let answer = self.initiator.receive()?;
        Ok(vec![(answer.tag.into(), answer.status == 0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_disks_are_read_with_and_without_their_ports() {
        let ip = |text: &str| text.parse().unwrap();
        let nbd = |server, export: &str| Place::Nbd { server, export: export.to_owned() };
        let parse = |text: &str| Place::parse(text).unwrap();
        let one = ServerAddress::Ip(ip("127.0.0.1:10809"));
        assert_eq!(parse("nbd://127.0.0.1/vdisk/debian"), nbd(one.clone(), "vdisk/debian"));
        assert_eq!(parse("nbd://127.0.0.1"), nbd(one, ""));
        assert_eq!(parse("nbd://[::1]:7/x"), nbd(ServerAddress::Ip(ip("[::1]:7")), "x"));
        assert_eq!(parse("nbd+unix:///x?socket=/run/s"), nbd(ServerAddress::Unix("/run/s".into()), "x"));
        let iscsi =
            |address, lun| Place::Iscsi { address: ip(address), target: "iqn.2026-01.x:y".to_owned(), lun };
        assert_eq!(parse("iscsi://127.0.0.1/iqn.2026-01.x:y"), iscsi("127.0.0.1:3260", 1));
        assert_eq!(parse("iscsi://127.0.0.1:99/iqn.2026-01.x:y/0"), iscsi("127.0.0.1:99", 0));
        for bad in [
            "",
            "http://x/y",
            "iscsi://127.0.0.1",
            "iscsi://127.0.0.1/",
            "iscsi://127.0.0.1/t/x",
            "nbd+unix:///x",
        ] {
            assert!(Place::parse(bad).is_err(), "{bad}");
        }
    }
}
