//! `cargo xtask demo`: the whole story on one machine, with nothing simulated but the computers.
//!
//! A golden Debian image is built and converted to VHDX; `headwater serve` streams it in a network namespace; two
//! machines without a disk, one BIOS and one UEFI, boot from it over that network at once; each writes something of
//! its own; one of them makes a new version, which the other boots; and the image file stays what it was. With `--console`
//! a browser on this machine watches all of it, and both machines stay up at the end.
mod console;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;
use lab::{
    Firmware, GOLDEN_READY_WITHIN, Guest, GuestSpec, Image, Network, SERVER_ADDRESS, Server, ServerSpec,
};

use crate::run::{build_program, output, run};

/// How the demo is run.
#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Open the web console to browsers on this machine, print its address and one-time log-in, and stay at the end
    #[arg(long)]
    console: bool,
}

/// A machine of the demo.
struct Machine {
    name: &'static str,
    firmware: Firmware,
    index: u8,
}

const MACHINES: [Machine; 2] = [
    Machine { name: "demo-bios", firmware: Firmware::BiosIpxeRom, index: 0 },
    Machine { name: "demo-uefi", firmware: Firmware::UefiPxe, index: 1 },
];

/// Where each machine writes what is its own.
const PROOF_FILE: &str = "/root/proof";

/// What the new version brings.
const UPDATE_FILE: &str = "/root/update";

/// Runs the demo.
///
/// # Errors
/// Where something cannot be installed, built or booted; the message says what, and where its log is.
pub(crate) fn demo(arguments: &DemoArguments) -> Result<()> {
    let started = Instant::now();
    say("1. Programs from Debian's archive");
    lab::packages::ensure(lab::packages::DEMO)?;
    say("2. Headwater itself");
    let program = build_program()?;
    say("3. A golden image: Debian 12 as a dynamic VHDX");
    let image = lab::golden::golden()?;
    let network = Network::begin("demo")?;
    let golden = store(&network, &image)?;
    let before = hash(&golden)?;
    println!("{}\nSHA-256 {before}", image.vhdx.display());
    say("4. A network of its own, and the server in it");
    let mut server = serve(&network, &program, arguments.console)?;
    println!(
        "namespace {}, server {SERVER_ADDRESS}, log {}",
        network.namespace(),
        server.service().log_path().display()
    );
    if arguments.console {
        console::open(&network, &mut server)?;
    }
    say("5. Two machines boot from it at once");
    let mut guests = boot(&network, &program)?;
    say("6. Each writes what is its own");
    for (machine, guest) in MACHINES.iter().zip(&mut guests) {
        let command = format!("echo 'only on {}' > {PROOF_FILE} && sync && cat {PROOF_FILE}", machine.name);
        println!("{}: {}", machine.name, guest.run(&command)?.trim());
    }
    for (machine, guest) in MACHINES.iter().zip(&mut guests) {
        let kept = guest.run(&format!("cat {PROOF_FILE}"))?;
        if kept.trim() != format!("only on {}", machine.name) {
            bail!("{} reads back something else: {kept}", machine.name);
        }
    }
    run(&mut headwater(&network, &program, &["device", "status"]))?;
    say("7. A new version: one machine makes it, the other boots it");
    make_version(&network, &program, &mut guests)?;
    say("8. Where each boot spent its time");
    for machine in &MACHINES {
        run(&mut headwater(&network, &program, &["boots", "show", machine.name]))?;
        println!();
    }
    if arguments.console {
        console::stay(&network, &program, &mut guests)?;
    }
    drop(guests);
    let status = server.terminate()?;
    let after = hash(&golden)?;
    if after != before {
        bail!("the golden image changed: SHA-256 {after}");
    }
    say("Proof");
    println!("both machines wrote different data to {PROOF_FILE} and read their own back");
    println!("a new version went from one machine to the other, and the server never stopped");
    println!("the golden image is what it was: SHA-256 {after}");
    println!("the server ended with {status}; the whole demo took {} s", started.elapsed().as_secs());
    say("What next");
    println!("{}", next_steps(&program));
    Ok(())
}

/// Starts the server, with the web console where it is asked for.
fn serve(network: &Network, program: &Path, console: bool) -> Result<Server> {
    let mut spec = ServerSpec::new(program, configuration(network));
    if console {
        spec.configuration.push_str(&format!("[api]\nlisten = \"0.0.0.0:{}\"\n", console::PORT));
        spec.tcp_ports.push(console::PORT);
    }
    Server::start(network, spec)
}

/// What to type after the demo.
fn next_steps(program: &Path) -> String {
    let headwater = program.display();
    format!(
        "\
every key with its meaning:  {headwater} serve --print-default-config > headwater.toml
is it right?                 {headwater} serve --config headwater.toml --check-config
stream, as root:             {headwater} serve --config headwater.toml
see everything tested:       cargo xtask test"
    )
}

/// Puts the image into a store of its own, where its versions will lie beside it; the file there.
fn store(network: &Network, image: &Image) -> Result<PathBuf> {
    let store = network.folder().join("store");
    std::fs::create_dir(&store)?;
    let golden = store.join("debian.vhdx");
    std::fs::copy(&image.vhdx, &golden).context("the golden image cannot be copied into its store")?;
    Ok(golden)
}

/// The life of a version in short, while the server and the other machine run: made, changed by the maintenance device,
/// promoted, and booted by a production device.
fn make_version(network: &Network, program: &Path, guests: &mut [Guest]) -> Result<()> {
    let type_in = |words: &[&str]| {
        println!("$ headwater {}", words.join(" "));
        run(&mut headwater(network, program, words))
    };
    let quietly = |words: &[&str]| {
        println!("$ headwater {}", words.join(" "));
        output(&mut headwater(network, program, words)).map(drop)
    };
    let [maintainer, user] = guests else { bail!("the demo has two machines") };
    let [maintainer_name, user_name] = MACHINES.each_ref().map(|machine| machine.name);
    quietly(&["device", "set", maintainer_name, "kind=maintenance"])?;
    quietly(&["version", "create", "debian", "--comment", "updates"])?;
    println!("{maintainer_name} is restarted, and has version 1 read-write");
    maintainer.reset()?;
    maintainer.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN)?;
    maintainer.run(&format!("echo 'brought by version 1' > {UPDATE_FILE} && sync"))?;
    maintainer.shutdown()?;
    println!("{maintainer_name} has installed its updates, and is off");
    quietly(&["device", "reset", maintainer_name, "--yes"])?;
    quietly(&["version", "promote", "debian/1"])?;
    println!("{user_name} is restarted: production devices boot version 1 from now on");
    user.reset()?;
    user.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN)?;
    let found = user.run(&format!("cat {UPDATE_FILE}; cat {PROOF_FILE} 2>/dev/null || true"))?;
    if found.trim() != "brought by version 1" {
        bail!("{user_name} finds something else on version 1: {found}");
    }
    println!("{user_name} finds: {}", found.trim());
    type_in(&["vdisk", "versions", "debian"])?;
    type_in(&["device", "status"])
}

fn say(headline: &str) {
    println!("\n== {headline}");
}

fn configuration(network: &Network) -> String {
    let folder = network.folder().display();
    let mut text = format!(
        r#"state_dir = "{folder}/state"
admin_socket = "{socket}"
[[interface]]
name = "{interface}"
mode = "dhcp"
range = "10.77.0.100-10.77.0.199"
[stores]
images = "{folder}/store"
[[vdisk]]
name = "debian"
file = "debian.vhdx"
"#,
        socket = network.socket("headwater").display(),
        interface = lab::INTERFACE,
    );
    for machine in &MACHINES {
        let spec = spec(machine);
        text.push_str(&format!(
            "[[device]]\nname = \"{}\"\nmac = \"{}\"\nvdisk = \"debian\"\n",
            spec.name, spec.mac
        ));
    }
    text
}

fn spec(machine: &Machine) -> GuestSpec {
    GuestSpec::new(machine.name, machine.firmware, machine.index)
}

/// Boots all machines at once, their progress on the terminal, and waits until all are ready.
fn boot(network: &Network, program: &Path) -> Result<Vec<Guest>> {
    let mut follow = headwater(network, program, &["boots", "--follow"]);
    follow.stdin(Stdio::null());
    let mut follow = follow.spawn().context("cannot start `headwater boots --follow`")?;
    let booted = (|| {
        let guests: Result<Vec<Guest>> =
            MACHINES.iter().map(|machine| Guest::start(network, &spec(machine))).collect();
        let mut guests = guests?;
        for guest in &mut guests {
            guest.wait_for(lab::golden::READY, GOLDEN_READY_WITHIN)?;
        }
        Ok(guests)
    })();
    follow.kill()?;
    follow.wait()?;
    booted
}

fn headwater(network: &Network, program: &Path, arguments: &[&str]) -> Command {
    let mut command = network.command(program);
    command.args(arguments).arg("--socket").arg(network.socket("headwater"));
    command
}

fn hash(file: &PathBuf) -> Result<String> {
    let text = output(Command::new("sha256sum").arg(file))?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}
