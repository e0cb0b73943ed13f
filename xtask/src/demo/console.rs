//! `cargo xtask demo --console`: a browser on this machine looks on.
//!
//! The server of the demo is in a network namespace of its own; a port of loopback leads there, and the token of the first
//! log-in stands in the server's log.
use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::{Context, Result};
use lab::{Firmware, GOLDEN_READY_WITHIN, Guest, Network, SERVER_ADDRESS, Server};

use super::{MACHINES, Machine, headwater, say, spec};
use crate::run::output;

/// Where the console is, in the namespace as on loopback, if the port is free there.
pub(super) const PORT: u16 = 8443;

/// What stands before the token in the server's log.
const WELCOME: &str = "sets a password with the token ";

/// How long the server may take to open its database.
const WELCOMES_WITHIN: Duration = Duration::from_secs(60);

/// Lets browsers in, and says how.
///
/// # Errors
/// Where no port can be had, or the server gives no token.
pub(super) fn open(network: &Network, server: &mut Server) -> Result<()> {
    let to = format!("{SERVER_ADDRESS}:{PORT}").parse()?;
    let port = network.forward(PORT, to).or_else(|_| network.forward(0, to))?;
    let line = server.service().wait_for_log(WELCOME, WELCOMES_WITHIN)?;
    let token = line.split(WELCOME).nth(1).and_then(|rest| rest.split_whitespace().next());
    let token = token.context("the server's log has no token")?;
    println!("the console:     https://localhost:{port}/first-log-in");
    println!("one-time log-in: {token}");
    println!(
        "It asks for the token and a new password of user admin. The browser does not know the server's certificate yet;"
    );
    println!("it is {}", network.folder().join("state/api/certificate.pem").display());
    if port != PORT {
        println!("(port {PORT} of this machine is taken, so it is another one)");
    }
    Ok(())
}

/// Has both machines run again, and stays until somebody presses Enter or ends this program.
///
/// # Errors
/// Where the machine that made the version does not boot again.
pub(super) fn stay(network: &Network, program: &std::path::Path, guests: &mut Vec<Guest>) -> Result<()> {
    let maintainer: &Machine = &MACHINES[0];
    debug_assert_eq!(maintainer.firmware, Firmware::BiosIpxeRom);
    output(&mut headwater(network, program, &["device", "set", maintainer.name, "kind=production"]))?;
    // What was its first life is over: the machine was switched off.
    guests.remove(0);
    println!("{} is switched on again, as a production device", maintainer.name);
    let mut guest = Guest::start(network, &spec(maintainer))?;
    guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN)?;
    guests.insert(0, guest);
    say("The console stays open");
    if !std::io::stdin().is_terminal() {
        println!("both machines run; end this program to end them");
        loop {
            std::thread::park();
        }
    }
    println!("both machines run; press Enter to end the demo");
    let _ = std::io::stdin().read(&mut [0])?;
    Ok(())
}
