//! A port of this machine that leads into a lab network: how a browser on the host reaches a server in a namespace.
//!
//! A socket belongs to the namespace in which it was made, whoever uses it later. So each connection gets a thread that
//! goes into the namespace, connects there, and then carries bytes between a socket of the one network and one of the other.
use std::fs::File;
use std::io::Write;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::network::Network;

/// How long the server in the namespace may take to answer a connection.
const CONNECTS_WITHIN: Duration = Duration::from_secs(10);

impl Network {
    /// Lets this machine's loopback reach a server in the network: who connects to `port` of 127.0.0.1 (0: any free one) is
    /// connected to `to`, for as long as this program runs. The port that it is.
    ///
    /// # Errors
    /// Where the port is taken, or the namespace cannot be opened.
    pub fn forward(&self, port: u16, to: SocketAddr) -> Result<u16> {
        let file = format!("/run/netns/{}", self.namespace());
        let namespace = Arc::new(File::open(&file).with_context(|| format!("cannot open {file}"))?);
        let listener = TcpListener::bind(("127.0.0.1", port))
            .with_context(|| format!("cannot listen on port {port} of 127.0.0.1"))?;
        let port = listener.local_addr()?.port();
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let namespace = Arc::clone(&namespace);
                // A connection that fails is the client's to notice: it is closed.
                std::thread::spawn(move || connect(&namespace, to).and_then(|server| carry(client, server)));
            }
        });
        Ok(port)
    }
}

/// Goes into the namespace for good, and connects there.
fn connect(namespace: &File, to: SocketAddr) -> Result<TcpStream> {
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
    Ok(TcpStream::connect_timeout(&to, CONNECTS_WITHIN)?)
}

/// Both directions, until both have ended.
fn carry(client: TcpStream, server: TcpStream) -> Result<()> {
    let (from, to) = (client.try_clone()?, server.try_clone()?);
    let back = std::thread::spawn(move || one_way(to, from));
    let there = one_way(client, server);
    let _ = back.join();
    there
}

fn one_way(mut from: TcpStream, mut to: TcpStream) -> Result<()> {
    let carried = std::io::copy(&mut from, &mut to);
    to.flush()?;
    // The other side may have closed it already.
    let _ = to.shutdown(Shutdown::Write);
    carried?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn port_of_loopback_reaches_a_server_in_the_namespace() {
        let network = Network::begin("forward").unwrap();
        let folder = network.folder().join("web");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("proof"), "from the namespace").unwrap();
        let mut command = network.command("python3");
        command.args(["-m", "http.server", "8000", "--directory"]).arg(&folder);
        let mut server = network.service("web", command).unwrap();
        server.wait_until_listening(&[8000], &[]).unwrap();
        let to = format!("{}:8000", crate::SERVER_ADDRESS).parse().unwrap();
        let port = network.forward(0, to).unwrap();
        // Two at once, each on a connection of its own.
        let mut clients = [(); 2].map(|()| TcpStream::connect(("127.0.0.1", port)).unwrap());
        for client in &mut clients {
            client.write_all(b"GET /proof HTTP/1.0\r\n\r\n").unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).unwrap();
            assert!(answer.ends_with("from the namespace"), "{answer}");
        }
    }
}
