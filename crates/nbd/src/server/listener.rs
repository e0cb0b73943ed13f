//! Where the server listens: sockets that its owner opened, or that systemd did.
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
use socket2::{Domain, Socket, Type};

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// Over TCP.
    Tcp(TcpListener),
    /// In the file system.
    Unix(UnixListener),
}

/// Where a [`Listener`] can be reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// Over TCP.
    Ip(SocketAddr),
    /// A path; `None` where the socket has none that can be shown.
    Unix(Option<std::path::PathBuf>),
}

/// The first descriptor that systemd hands over (sd_listen_fds(3), `SD_LISTEN_FDS_START`).
const FIRST_FD: i32 = 3;

/// The most that are taken.
const MAX_FDS: i32 = 64;

impl Listener {
    /// The sockets that systemd, or whoever speaks its protocol, has opened for this process (sd_listen_fds(3)): those of
    /// `LISTEN_FDS`, where `LISTEN_PID` names this process. None where it did not.
    ///
    /// The process keeps the inherited descriptors as well, and so would its children: start none that outlive it.
    ///
    /// # Errors
    /// Where one of them is no listening stream socket, or the kernel (Linux 5.6 and later can) or a sandbox does not let
    /// it be taken.
    pub fn from_service_manager() -> io::Result<Vec<Self>> {
        let variable = |name| std::env::var(name).ok().and_then(|value| value.parse::<i32>().ok());
        let pid = getpid();
        if variable("LISTEN_PID") != Some(pid.as_raw_nonzero().get()) {
            return Ok(Vec::new());
        }
        let count = variable("LISTEN_FDS").unwrap_or(0).clamp(0, MAX_FDS);
        // The way to a descriptor of ours that is known by number alone, and is safe: ask the kernel for a copy of it.
        let this = pidfd_open(pid, PidfdFlags::empty())?;
        (FIRST_FD..FIRST_FD.saturating_add(count))
            .map(|fd| Self::from_fd(pidfd_getfd(&this, fd, PidfdGetfdFlags::empty())?))
            .collect()
    }

    fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let socket = Socket::from(fd);
        let wrong =
            |what| io::Error::new(io::ErrorKind::InvalidInput, format!("an inherited descriptor is {what}"));
        if socket.r#type()? != Type::STREAM || !socket.is_listener()? {
            return Err(wrong("no listening stream socket"));
        }
        match socket.domain()? {
            Domain::IPV4 | Domain::IPV6 => Ok(Self::Tcp(socket.into())),
            Domain::UNIX => Ok(Self::Unix(OwnedFd::from(socket).into())),
            _ => Err(wrong("a socket of an unknown family")),
        }
    }

    pub(super) fn address(&self) -> io::Result<ListenAddress> {
        Ok(match self {
            Self::Tcp(listener) => ListenAddress::Ip(listener.local_addr()?),
            Self::Unix(listener) => {
                ListenAddress::Unix(listener.local_addr()?.as_pathname().map(std::path::Path::to_owned))
            }
        })
    }
}

impl From<TcpListener> for Listener {
    fn from(listener: TcpListener) -> Self {
        Self::Tcp(listener)
    }
}

impl From<UnixListener> for Listener {
    fn from(listener: UnixListener) -> Self {
        Self::Unix(listener)
    }
}
