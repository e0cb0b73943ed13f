//! `cargo xtask openapi`: the REST API of a real server, asked by schemathesis whatever its document allows and forbids.
//!
//! The ordinary tests hold the routes to the document with requests of our own making (`crates/api/tests/rest/document.rs`).
//! This is the second opinion: another program's reading of OpenAPI, over HTTPS, against everything that a server is made of.
//! Events are left out, which do not end, and so is logging in, which is slow on purpose.
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use lab::free_port;

use crate::bench::Server;
use crate::run::{build_program, output, root, run, target};

/// What is asked with. It is installed from PyPI into a place of its own.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// What every answer is held to.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,\
                      response_headers_conformance,negative_data_rejection,unsupported_method,ignored_auth";

/// What may be answered to a request that does not fit the document: the tool's own list, with 413 (RFC 9110 §15.5.14), which
/// is the answer to a list so long that its body is.
const SETTINGS: &str = "[checks.negative_data_rejection]\nexpected-statuses = [\"400\", \"401\", \"403\", \"404\", \"405\", \
                        \"406\", \"409\", \"413\", \"415\", \"422\", \"428\", \"429\", \"5xx\"]\n";

/// How much is asked.
#[derive(Args)]
pub(crate) struct OpenapiArguments {
    /// How long it may take, in seconds
    #[arg(long, default_value_t = 600)]
    seconds: u32,
    /// Requests of each operation
    #[arg(long, default_value_t = 40)]
    examples: u32,
}

/// Asks.
///
/// # Errors
/// Where something cannot be installed or started, or an answer was none that the document promises.
pub(crate) fn openapi(arguments: &OpenapiArguments) -> Result<()> {
    let tool = installed()?;
    let program = build_program()?;
    let folder = target().join("openapi");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(folder.join("store"))?;
    let api = free_port();
    let configuration = folder.join("headwater.toml");
    std::fs::write(&configuration, text(&folder, api)?)?;
    let mut command = Command::new(&program);
    command.args(["serve", "--log", "warn", "--config"]).arg(&configuration);
    let log = folder.join("server.log");
    let server = Server::start(&mut command, api, &log)?;
    let token = furnish(&program, &folder)?;
    std::fs::write(folder.join("schemathesis.toml"), SETTINGS)?;
    let mut command = Command::new(tool);
    command.arg("run").arg(root().join("docs/openapi.json"));
    command.args(["--url", &format!("https://127.0.0.1:{api}"), "--tls-verify", "false"]);
    command.args(["--header", &format!("Authorization: Bearer {token}"), "--checks", CHECKS]);
    command.args(["--exclude-tag", "events", "--exclude-path-regex", "log-?in|logout|password"]);
    command.args(["--phases", "examples,coverage,fuzzing", "--continue-on-failure", "--no-color"]);
    command.args(["--max-time", &arguments.seconds.to_string()]);
    command.args(["--max-examples", &arguments.examples.to_string()]);
    let asked = command.current_dir(&folder).status().context("schemathesis cannot be started")?;
    drop(server);
    let said = std::fs::read_to_string(&log)?;
    let failures: Vec<&str> =
        said.lines().filter(|line| line.contains("ERROR") || line.contains("panicked")).collect();
    ensure!(
        failures.is_empty(),
        "the server failed {} times, first: {}",
        failures.len(),
        failures.first().unwrap_or(&"")
    );
    ensure!(
        asked.success(),
        "schemathesis found what the document does not promise; the server's log is {}",
        log.display()
    );
    Ok(())
}

/// Where schemathesis is, which is installed first where it is not.
fn installed() -> Result<PathBuf> {
    let place = target().join("schemathesis");
    let tool = place.join("bin/schemathesis");
    if !tool.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
        run(Command::new(place.join("bin/pip")).args(["install", "--quiet", SCHEMATHESIS]))?;
    }
    Ok(tool)
}

fn text(folder: &Path, api: u16) -> Result<String> {
    std::fs::create_dir_all(folder.join("boot"))?;
    for name in ["undionly.kpxe", "ipxe.efi"] {
        std::fs::write(folder.join("boot").join(name), name)?;
    }
    let image = folder.join("store/golden.vhdx");
    run(Command::new("qemu-img").args(["create", "-q", "-f", "vhdx"]).arg(image).arg("64M"))?;
    let (iscsi, http, folder) = (free_port(), free_port(), folder.display());
    Ok(format!(
        "state_dir = \"{folder}/state\"\nadmin_socket = \"{folder}/socket\"\n\
         [iscsi]\nlisten = \"127.0.0.1:{iscsi}\"\n[http]\nlisten = \"127.0.0.1:{http}\"\n\
         [netboot]\nboot_files = \"{folder}/boot\"\n[api]\nlisten = \"127.0.0.1:{api}\"\n\
         [stores]\nimages = \"{folder}/store\"\n[[vdisk]]\nname = \"debian\"\nfile = \"golden.vhdx\"\n\
         [[device]]\nname = \"lab-01\"\nmac = \"52:54:00:77:00:10\"\nvdisk = \"debian\"\n"
    ))
}

/// Makes an administrator; its token's secret.
fn furnish(program: &Path, folder: &Path) -> Result<String> {
    let headwater = |words: &[&str]| {
        let mut command = Command::new(program);
        output(command.args(words).arg("--socket").arg(folder.join("socket")))
    };
    headwater(&["user", "create", "asker"])?;
    headwater(&["user", "grant", "asker", "administrator"])?;
    let secret = headwater(&["token", "create", "asker", "schemathesis", "--role", "administrator"])?;
    Ok(secret.trim().to_owned())
}
