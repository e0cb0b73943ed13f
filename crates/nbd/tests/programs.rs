//! Other people's clients: libnbd's programs, QEMU's, fio.
mod common;

use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use block::{Access, BlockDevice, LogicalBlockSize, MemoryDevice};
use common::certificates::Certificates;
use common::devices::{Scattered, Sparse};
use common::{Disk, Lab, memory, quick, run, succeed, text};
use mutate::Rng;
use nbd::client::{Client, ConnectError, ConnectOptions, ServerAddress, TlsClient};
use nbd::exports::Purpose;
use nbd::server::{ClientCertificates, Listener, ServerConfig, Tls, TlsServer};

const LIBNBD: &str = "libnbd-bin";
const NBDSH: &str = "python3-libnbd";
const QEMU: &str = "qemu-utils";

fn noise(bytes: usize) -> Vec<u8> {
    let mut rng = Rng::new(11);
    (0..bytes / 8).flat_map(|_| rng.next().to_le_bytes()).collect()
}

#[test]
fn nbdinfo_sees_what_the_export_can() {
    let lab = Lab::serve(memory(64));
    let seen = succeed(LIBNBD, "nbdinfo", &[&lab.uri()]);
    for line in [
        "protocol: newstyle-fixed without TLS, using structured packets",
        "export-size: 67108864 (64M)",
        "description: of the lab",
        "base:allocation",
        "is_read_only: false",
        "block_size_minimum: 512",
        "block_size_preferred: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(seen.contains(line), "no {line:?} in\n{seen}");
    }
    let can = |uri: &str, what: &str| run(LIBNBD, "nbdinfo", &["--can", what, uri]).status.code() == Some(0);
    let abilities = ["cache", "df", "fast-zero", "flush", "fua", "multi-conn", "trim", "write", "zero"];
    for ability in abilities {
        assert!(can(&lab.uri(), ability), "{ability}");
    }
    assert!(!can(&lab.uri(), "rotational"));
    let fixed = Disk { read_only: true, fast_zero: false, ..Disk::new(memory(1)) };
    let fixed = Lab::start(fixed, quick());
    let abilities: Vec<_> = abilities.into_iter().filter(|ability| can(&fixed.uri(), ability)).collect();
    assert_eq!(abilities, ["cache", "df", "flush", "multi-conn"]);
    assert_eq!(run(LIBNBD, "nbdinfo", &["--is", "read-only", &fixed.uri()]).status.code(), Some(0));
}

#[test]
fn nbdinfo_lists_exports_and_maps_holes() {
    let lab = Lab::serve(Sparse::new(memory(8)));
    let seen = succeed(LIBNBD, "nbdinfo", &["--list", &format!("nbd://{}", lab.address())]);
    assert!(seen.contains("export=\"disk\"") && !seen.contains("secret"), "{seen}");
    let mut client = lab.connect(&ConnectOptions::default());
    client.write(1 << 20, &[1; 65536], nbd::client::ChangeOptions::default()).unwrap();
    let seen = succeed(LIBNBD, "nbdinfo", &["--map", &lab.uri()]);
    let runs: Vec<Vec<&str>> = seen.lines().map(|line| line.split_whitespace().collect()).collect();
    let expected = [["0", "1048576", "3"], ["1048576", "65536", "0"], ["1114112", "7274496", "3"]];
    assert_eq!(runs.iter().map(|run| &run[..3]).collect::<Vec<_>>(), expected);
}

#[test]
fn nbdsh_runs_every_command_and_meets_every_error() {
    let lab = Lab::serve(Sparse::new(memory(64)));
    let script = r#"
import errno
def fails(expected, work):
    try:
        work()
    except nbd.Error as error:
        assert error.errnum == expected, (expected, error.errnum, str(error))
    else:
        assert False, "no error"
assert h.get_size() == 64 << 20 and h.get_structured_replies_negotiated()
h.pwrite(b"x" * 4096, 0)
assert h.pread(4096, 0) == b"x" * 4096
h.pwrite(b"y" * (32 << 20), 0, nbd.CMD_FLAG_FUA)
assert h.pread(32 << 20, 0) == b"y" * (32 << 20)
h.zero(1 << 20, 1 << 20)
h.zero(1 << 20, 2 << 20, nbd.CMD_FLAG_NO_HOLE)
h.zero(1 << 20, 3 << 20, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_FUA)
assert h.pread(3 << 20, 1 << 20) == bytes(3 << 20)
h.trim(1 << 20, 8 << 20, nbd.CMD_FLAG_FUA)
h.cache(1 << 20, 0)
h.flush()
chunks = []
def chunk(data, offset, status, error):
    chunks.append((offset, len(data), status))
buffer = h.pread_structured(2 << 20, 0, chunk)
assert buffer == b"y" * (1 << 20) + bytes(1 << 20)
assert any(status == nbd.READ_HOLE for _, _, status in chunks), chunks
chunks.clear()
h.pread_structured(65536, 1 << 20, chunk, nbd.CMD_FLAG_DF)
assert len(chunks) == 1 and chunks[0][2] == nbd.READ_DATA, chunks
extents = []
def extent(context, offset, entries, error):
    assert context == "base:allocation"
    extents.append((offset, list(entries)))
h.block_status(64 << 20, 0, extent)
assert extents == [(0, [1 << 20, 0, 1 << 20, 3, 1 << 20, 0, 1 << 20, 3, 4 << 20, 0, 1 << 20, 3, 23 << 20, 0, 32 << 20, 3])], extents
extents.clear()
h.block_status(64 << 20, 0, extent, nbd.CMD_FLAG_REQ_ONE)
assert extents == [(0, [1 << 20, 0])], extents
# From here on libnbd does not protect the server from its user.
h.set_strict_mode(0)
fails(errno.EINVAL, lambda: h.pread(512, 64 << 20))
fails(errno.EINVAL, lambda: h.pread(512, 1))
fails(errno.EINVAL, lambda: h.pread(0, 0))
fails(errno.EOVERFLOW, lambda: h.pread(1 << 20, 0, nbd.CMD_FLAG_DF))
fails(errno.ENOSPC, lambda: h.pwrite(b"z" * 512, 64 << 20))
fails(errno.EINVAL, lambda: h.pwrite(b"z" * 100, 0))
fails(errno.ENOSPC, lambda: h.zero(512, 64 << 20))
fails(errno.ENOTSUP, lambda: h.zero(512, 0, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FAST_ZERO))
fails(errno.EINVAL, lambda: h.trim(512, 64 << 20))
fails(errno.EINVAL, lambda: h.cache(512, 64 << 20))
fails(errno.EINVAL, lambda: h.flush(0x80))
fails(errno.EINVAL, lambda: h.block_status(512, 64 << 20, extent))
assert h.pread(512, 0) == b"y" * 512
h.shutdown()
"#;
    succeed(NBDSH, "nbdsh", &["--base-allocation", "-u", &lab.uri(), "-c", script]);
}

#[test]
fn nbdsh_finds_a_read_only_export_closed() {
    let lab = Lab::start(Disk { read_only: true, ..Disk::new(memory(1)) }, quick());
    let script = r#"
import errno
h.set_strict_mode(0)
for work in [lambda: h.pwrite(bytes(512), 0), lambda: h.trim(512, 0), lambda: h.zero(512, 0)]:
    try:
        work()
        assert False
    except nbd.Error as error:
        assert error.errnum == errno.EPERM, str(error)
assert h.pread(512, 0) == bytes(512)
"#;
    succeed(NBDSH, "nbdsh", &["-u", &lab.uri(), "-c", script]);
}

#[test]
fn nbdsh_haggles_option_by_option() {
    let lab = Lab::serve(memory(1));
    let script = format!(
        r#"
import errno
h.set_opt_mode(True)
h.connect_tcp("127.0.0.1", "{}")
names = []
h.opt_list(lambda name, description: names.append((name, description)))
assert names == [("disk", "of the lab")], names
h.set_export_name("nothing")
try:
    h.opt_info()
    assert False
except nbd.Error as error:
    assert error.errnum == errno.ENOENT, str(error)
h.set_export_name("disk")
h.add_meta_context("base:allocation")
contexts = []
h.opt_list_meta_context(lambda name: contexts.append(name))
assert contexts == ["base:allocation"], contexts
h.opt_info()
assert h.get_size() == 1 << 20
h.opt_go()
assert h.can_meta_context("base:allocation")
assert h.pread(512, 0) == bytes(512)
"#,
        lab.address().port()
    );
    succeed(NBDSH, "nbdsh", &["-c", &script]);
}

#[test]
fn nbdcopy_copies_there_and_back() {
    let contents = noise(24 << 20);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (there, back) = (file("there.raw"), file("back.raw"));
    std::fs::write(&there, &contents).unwrap();
    let lab = Lab::serve(Sparse::new(memory(24)));
    for request in ["--request-size=262144", "--request-size=33554432"] {
        succeed(LIBNBD, "nbdcopy", &["-C", "4", "-R", "16", request, &there, &lab.uri()]);
        succeed(LIBNBD, "nbdcopy", &["-C", "4", "-R", "16", request, &lab.uri(), &back]);
        assert!(std::fs::read(&back).unwrap() == contents, "{request}");
        std::fs::remove_file(&back).unwrap();
    }
    // From the pages of a file.
    let lab = Lab::serve(Scattered::new(&contents));
    succeed(LIBNBD, "nbdcopy", &["-C", "2", "-R", "16", "--request-size=1048576", &lab.uri(), &back]);
    assert!(std::fs::read(&back).unwrap() == contents);
}

#[test]
fn qemu_reads_what_it_wrote() {
    let lab = Lab::serve(Sparse::new(memory(32)));
    let commands = [
        "write -P 0x5a 1M 3M",
        "write -P 0x11 512 1536",
        "read -P 0x5a 1M 3M",
        "read -P 0x11 512 1536",
        "read -P 0 0 512",
        "write -z 2M 1M",
        "read -P 0 2M 1M",
        "write -z -u 3M 512k",
        "read -P 0 3M 512k",
        "discard 1M 512k",
        "write -f -P 0x33 20M 64k",
        "aio_write -P 7 8M 4M",
        "aio_write -P 8 12M 4M",
        "aio_flush",
        "read -P 7 8M 4M",
        "read -P 8 12M 4M",
        "read -P 0x33 20M 64k",
        "flush",
    ];
    let uri = lab.uri();
    let mut arguments = vec!["-f", "raw"];
    arguments.extend(commands.iter().flat_map(|command| ["-c", command]));
    arguments.push(&uri);
    let seen = succeed(QEMU, "qemu-io", &arguments);
    assert!(!seen.contains("failed") && !seen.contains("mismatch"), "{seen}");
}

#[test]
fn qemu_img_compares_converts_and_maps() {
    let mut contents = noise(8 << 20);
    contents[2 << 20..5 << 20].fill(0);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (raw, copy) = (file("raw"), file("copy.qcow2"));
    std::fs::write(&raw, &contents).unwrap();
    let lab = Lab::serve(Sparse::new(memory(8)));
    let uri = lab.uri();
    succeed(QEMU, "qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &raw, &uri]);
    succeed(QEMU, "qemu-img", &["compare", "-f", "raw", "-F", "raw", &raw, &uri]);
    succeed(QEMU, "qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &uri, &copy]);
    succeed(QEMU, "qemu-img", &["compare", "-f", "raw", "-F", "qcow2", &raw, &copy]);
    let map = succeed(QEMU, "qemu-img", &["map", "-f", "raw", "--output=json", &uri]);
    assert!(
        map.contains(
            "\"start\": 2097152, \"length\": 3145728, \"depth\": 0, \"present\": true, \"zero\": true, \"data\": false"
        ),
        "{map}"
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    let lab = Lab::serve(Sparse::new(memory(16)));
    let uri = format!("--uri={}", lab.uri());
    for (pattern, size) in [("randwrite", "--bs=4k"), ("write", "--bs=256k"), ("randrw", "--bs=16k")] {
        let pattern = format!("--rw={pattern}");
        let arguments = ["--name=x", "--ioengine=nbd", &uri, &pattern, size, "--iodepth=32", "--size=16m"];
        let verify = ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0"];
        succeed("fio", "fio", &[&arguments[..], &verify].concat());
    }
}

#[test]
fn blocks_of_4096_bytes_are_understood_by_qemu() {
    let device =
        MemoryDevice::with_contents(noise(1 << 20), LogicalBlockSize::B4096, Access::ReadWrite).unwrap();
    let lab = Lab::serve(Arc::new(device));
    // QEMU pads what is smaller to the minimum block itself.
    succeed(
        QEMU,
        "qemu-io",
        &["-f", "raw", "-c", "write -P 5 512 512", "-c", "read -P 5 512 512", &lab.uri()],
    );
}

fn tls(certificates: &Certificates, clients: ClientCertificates) -> TlsServer {
    let file = |name: &str| certificates.folder().join(name);
    TlsServer::from_pem_files(
        &file("ca-cert.pem"),
        &file("server-cert.pem"),
        &file("server-key.pem"),
        clients,
    )
    .unwrap()
}

fn with_tls(tls: Tls) -> Lab {
    Lab::start(Disk::new(memory(16)), ServerConfig { tls, ..quick() })
}

fn tls_client(folder: &Path, with_certificate: bool) -> ConnectOptions {
    let (certificate, key) = (folder.join("client-cert.pem"), folder.join("client-key.pem"));
    let identity = with_certificate.then_some((certificate.as_path(), key.as_path()));
    let tls = TlsClient::from_pem_files(&folder.join("ca-cert.pem"), identity, "localhost").unwrap();
    ConnectOptions { tls: Some(tls), ..ConnectOptions::default() }
}

#[test]
fn tls_lets_in_clients_with_a_certificate_of_ours_and_nobody_else() {
    let certificates = Certificates::new();
    let lab = with_tls(Tls::Required(tls(&certificates, ClientCertificates::Required)));
    let mut client = lab.connect(&tls_client(certificates.folder(), true));
    let data = noise(3 << 20);
    client.write(512, &data, nbd::client::ChangeOptions::default()).unwrap();
    let mut got = vec![0; data.len()];
    client.read(512, &mut got).unwrap();
    assert!(got == data);
    let (_, peer) = lab.seen.now().opened[0].clone();
    let tls_peer = peer.tls.unwrap();
    assert!(tls_peer.certificate.is_some());
    assert_eq!(tls_peer.names, ["device-7.lab"]);
    for options in [tls_client(&certificates.stranger(), true), tls_client(certificates.folder(), false)] {
        let refused = Client::connect(&lab.place(), &options);
        assert!(matches!(refused, Err(ConnectError::Connection(_))), "{refused:?}");
    }
    let clear = Client::connect(&lab.place(), &ConnectOptions::default());
    assert!(matches!(clear, Err(ConnectError::Refused { .. })), "{clear:?}");
    // Once for its meta context, once to use it; and nothing of the others.
    let purposes: Vec<Purpose> = lab.seen.now().opened.iter().map(|(purpose, _)| *purpose).collect();
    assert_eq!(purposes, [Purpose::Look, Purpose::Use]);
}

#[test]
fn tls_that_is_required_over_tcp_is_a_choice_through_a_socket_of_the_machine() {
    let certificates = Certificates::new();
    let config =
        ServerConfig { tls: Tls::Required(tls(&certificates, ClientCertificates::Required)), ..quick() };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nbd.sock");
    let listener = Listener::Unix(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let _lab = Lab::listen(vec![listener], Disk::new(memory(16)), config);
    let place = ServerAddress::Unix(path);
    assert!(Client::connect(&place, &ConnectOptions::default()).is_ok());
    assert!(Client::connect(&place, &tls_client(certificates.folder(), true)).is_ok());
    assert!(Client::connect(&place, &tls_client(&certificates.stranger(), true)).is_err());
}

#[test]
fn tls_on_wish_shows_exports_that_demand_it() {
    let certificates = Certificates::new();
    let lab = with_tls(Tls::Allowed(tls(&certificates, ClientCertificates::Optional)));
    let names = |options: &ConnectOptions| -> Vec<String> {
        Client::list(&lab.place(), options).unwrap().into_iter().map(|export| export.name).collect()
    };
    assert_eq!(names(&ConnectOptions::default()), ["disk"]);
    let wish = tls_client(certificates.folder(), false);
    assert_eq!(names(&wish), ["disk", "secret"]);
    let secret = |options: ConnectOptions| {
        Client::connect(&lab.place(), &ConnectOptions { export: "secret".to_owned(), ..options })
    };
    let clear = secret(ConnectOptions::default());
    let required = nbd::client::RefusalKind::TlsRequired;
    assert!(matches!(clear, Err(ConnectError::Refused { reason, .. }) if reason == required), "{clear:?}");
    secret(wish).unwrap();
}

#[test]
fn bytes_in_the_clear_behind_the_wish_for_tls_end_the_connection() {
    let certificates = Certificates::new();
    let lab = with_tls(Tls::Required(tls(&certificates, ClientCertificates::Optional)));
    let mut stream = std::net::TcpStream::connect(lab.address()).unwrap();
    stream.set_read_timeout(Some(common::PATIENCE)).unwrap();
    let injected = [&[0, 0, 0, 3][..], b"IHAVEOPT\0\0\0\x05\0\0\0\0", b"IHAVEOPT\0\0\0\x08\0\0\0\0"].concat();
    stream.write_all(&injected).unwrap();
    let mut said = Vec::new();
    let _ = std::io::Read::read_to_end(&mut stream, &mut said);
    // The greeting, and at most the answer to STARTTLS.
    assert!(said.len() <= 18 + 20, "{said:?}");
}

#[test]
fn tls_of_gnutls_clients_is_understood() {
    let certificates = Certificates::new();
    let lab = with_tls(Tls::Required(tls(&certificates, ClientCertificates::Required)));
    let port = lab.address().port();
    let folder = certificates.folder().to_str().unwrap();
    let uri = |folder: &str| format!("nbds://localhost:{port}/disk?tls-certificates={folder}");
    let seen = succeed(LIBNBD, "nbdinfo", &[&uri(folder)]);
    assert!(seen.contains("with TLS, using structured packets"), "{seen}");
    let stranger = run(LIBNBD, "nbdinfo", &[&uri(certificates.stranger().to_str().unwrap())]);
    assert!(!stranger.status.success(), "{}", text(&stranger));
    let source = certificates.folder().join("noise.raw").to_str().unwrap().to_owned();
    std::fs::write(&source, noise(16 << 20)).unwrap();
    succeed(LIBNBD, "nbdcopy", &["-C", "2", &source, &uri(folder)]);
    let object = format!("tls-creds-x509,id=t,dir={folder},endpoint=client");
    let image = format!("driver=nbd,host=localhost,port={port},tls-creds=t,export=disk");
    let info = succeed(QEMU, "qemu-img", &["info", "--object", &object, "--image-opts", &image]);
    assert!(info.contains("16 MiB"), "{info}");
    let back = certificates.folder().join("back.raw").to_str().unwrap().to_owned();
    let convert = ["convert", "--object", &object, "--image-opts", &image, "-O", "raw", &back];
    succeed(QEMU, "qemu-img", &convert);
    assert!(std::fs::read(&back).unwrap() == noise(16 << 20));
}

#[test]
fn unix_socket_is_reached_by_uri() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let device: Arc<dyn BlockDevice> = memory(4);
    let _lab = Lab::listen(vec![Listener::Unix(listener)], Disk::new(device), quick());
    let uri = format!("nbd+unix:///disk?socket={}", path.display());
    assert_eq!(succeed(LIBNBD, "nbdinfo", &["--size", &uri]).trim(), "4194304");
}

/// libnbd plays systemd: it opens the socket and starts the server with it.
#[test]
fn inherited_socket_is_served() {
    let serve = env!("CARGO_BIN_EXE_nbd_serve");
    let script = format!(
        "h.connect_systemd_socket_activation([\"{serve}\", \"--activated\", \"8M\"])\nassert h.get_size() == 8 << 20\nh.pwrite(b'q' * 512, 0)\nassert h.pread(512, 0) == b'q' * 512\n"
    );
    succeed(NBDSH, "nbdsh", &["-c", &script]);
}
