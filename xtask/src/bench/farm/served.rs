//! The same farm behind a server: lists and searches through the REST API, and boot scripts as machines fetch them.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lab::free_port;
use serde_json::Value;

use super::{ASKED, FarmArguments};
use crate::bench::process::Server;
use crate::bench::{Aim, Measure, median};
use crate::run::build_program;

/// How many boot scripts are fetched, one after the other and then by several at once.
const SCRIPTS: u32 = 5000;
/// How many machines ask at once in the second part.
const AT_ONCE: u32 = 8;
/// Boots a minute that are asked for.
const BOOTS_A_MINUTE: f64 = 1000.0;
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is listed: a name, and the query behind `/v1/devices?limit=100`.
const LISTS: &[(&str, &str)] = &[
    ("first page of 100 devices", ""),
    ("100 devices by collection", "&sort=collection"),
    ("search: name ~ \"*077*\"", "&filter=name%20~%20%22*077*%22"),
    ("search: mac ~ \"*:0a:1?\"", "&filter=mac%20~%20%22*:0a:1%3F%22"),
    ("search: vdisk = golden-07 and not disabled", "&filter=vdisk%20%3D%20golden-07%20and%20not%20disabled"),
    ("search: kind = test or site = berlin", "&filter=kind%20%3D%20test%20or%20site%20%3D%20berlin"),
];

/// Measures the farm in `folder`, which the figures have left there.
///
/// # Errors
/// Where the server does not build, start or answer.
pub(super) fn measure(folder: &Path, arguments: &FarmArguments) -> Result<Vec<Measure>> {
    let program = build_program()?;
    let (iscsi, http) = (free_port(), free_port());
    let (shown, socket) = (folder.display(), folder.join("socket"));
    std::fs::create_dir_all(folder.join("boot"))?;
    for name in ["undionly.kpxe", "ipxe.efi"] {
        std::fs::write(folder.join("boot").join(name), name)?;
    }
    let configuration = format!(
        "state_dir = \"{shown}\"\nadmin_socket = \"{}\"\n[server]\nname = \"one\"\n\
         [iscsi]\nlisten = \"127.0.0.1:{iscsi}\"\n[http]\nlisten = \"127.0.0.1:{http}\"\n\
         [netboot]\nboot_files = \"{shown}/boot\"\n",
        socket.display()
    );
    let file = folder.join("headwater.toml");
    std::fs::write(&file, configuration)?;
    let mut command = Command::new(program);
    command.args(["serve", "--log", "warn", "--config"]).arg(&file);
    let _server = Server::start(&mut command, http, &folder.join("server.log"))?;
    let mut measures = lists(&socket, arguments)?;
    measures.extend(scripts(http, arguments.devices)?);
    Ok(measures)
}

fn lists(socket: &Path, arguments: &FarmArguments) -> Result<Vec<Measure>> {
    let mut measures = Vec::new();
    for (name, query) in LISTS {
        let (mut times, mut found) = (Vec::new(), 0);
        for _ in 0..arguments.rounds {
            let begun = Instant::now();
            let stream = UnixStream::connect(socket)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            let answer = ask(stream, &format!("/v1/devices?limit=100{query}"))?;
            let page: Value = serde_json::from_str(&answer)?;
            times.push(begun.elapsed().as_secs_f64() * 1e3);
            found = page["items"].as_array().map_or(0, Vec::len);
        }
        ensure!(found > 0, "{name}: nothing was found");
        let slowest = times.iter().copied().fold(0.0, f64::max);
        let of = arguments.rounds;
        measures.push(asked(format!("REST, {name}: slowest of {of}"), slowest, 50.0, "ms"));
        measures.push(asked(format!("REST, {name}: median"), median(times), 50.0, "ms"));
    }
    Ok(measures)
}

fn scripts(port: u16, devices: u32) -> Result<Vec<Measure>> {
    let boots = AtomicU32::new(0);
    let fetch = |round: u32| -> Result<f64> {
        let mac = mac(round.wrapping_mul(2_654_435_761) % devices.max(1) + 1);
        let begun = Instant::now();
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let script = ask(stream, &format!("/v1/boot/script?mac={mac}&platform=pcbios"))?;
        ensure!(script.starts_with("#!ipxe"), "no script for {mac}:\n{script}");
        // The others are disabled, or are shown a menu.
        boots.fetch_add(u32::from(script.contains(":iqn.")), Ordering::Relaxed);
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    let mut times = (0..SCRIPTS).map(fetch).collect::<Result<Vec<f64>>>()?;
    times.sort_by(f64::total_cmp);
    let at = |share: usize| times.get(times.len() * share / 100).copied().unwrap_or(f64::NAN);
    let (p99, middle) = (at(99), at(50));

    let begun = Instant::now();
    let done: Result<()> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..AT_ONCE)
            .map(|first| {
                scope.spawn(move || {
                    (first..SCRIPTS).step_by(AT_ONCE as usize).try_for_each(|round| fetch(round).map(drop))
                })
            })
            .collect();
        asking.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a machine's thread panicked")))
        })
    });
    done?;
    let boots = boots.into_inner();
    ensure!(boots > SCRIPTS, "only {boots} of {} scripts name a target", 2 * SCRIPTS);
    let a_minute = f64::from(SCRIPTS) / begun.elapsed().as_secs_f64() * 60.0;
    Ok(vec![
        asked("boot script over HTTP: p99".to_owned(), p99, 5.0, "ms"),
        asked("boot script over HTTP: median".to_owned(), middle, 5.0, "ms"),
        Measure {
            aim: Aim::AtLeast(1.0),
            ..asked(
                format!("boot scripts a minute, {AT_ONCE} machines at once"),
                a_minute,
                BOOTS_A_MINUTE,
                "1/min",
            )
        },
    ])
}

fn asked(measure: String, ours: f64, most: f64, unit: &'static str) -> Measure {
    Measure { measure, ours, peer: most, peer_name: ASKED.to_owned(), unit, aim: Aim::AtMost(1.0) }
}

/// One request on a connection of its own; the body of its answer.
fn ask(mut stream: impl Read + Write, path: &str) -> Result<String> {
    write!(stream, "GET {path} HTTP/1.1\r\nhost: headwater\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {head}\n{body}");
    ensure!(!head.to_lowercase().contains("transfer-encoding"), "{path}: an answer in chunks");
    Ok(body.to_owned())
}

/// The address of a device, as the figures give them out.
fn mac(number: u32) -> String {
    let [a, b, c, d] = number.to_be_bytes();
    format!("52:54:{a:02x}:{b:02x}:{c:02x}:{d:02x}")
}
