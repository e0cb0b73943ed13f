//! Certificates for the tests, by GnuTLS's certtool: an authority, a server, a client, and a client of another authority.
use std::fs;
use std::path::{Path, PathBuf};

use super::succeed;

/// A folder with `ca-cert.pem`, `server-*.pem`, `client-*.pem`, as libnbd, QEMU and nbdkit expect it, and in `stranger`
/// another such folder whose client has a certificate that the server does not believe.
pub(crate) struct Certificates {
    folder: tempfile::TempDir,
}

impl Certificates {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        make(folder.path());
        let stranger = folder.path().join("stranger");
        fs::create_dir(&stranger).unwrap();
        make(&stranger);
        // It believes the server all the same.
        fs::copy(folder.path().join("ca-cert.pem"), stranger.join("ca-cert.pem")).unwrap();
        Self { folder }
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn stranger(&self) -> PathBuf {
        self.folder.path().join("stranger")
    }
}

fn make(folder: &Path) {
    let common = "expiration_days = 30\n";
    let kinds = [
        ("ca", "cn = \"lab authority\"\nca\ncert_signing_key\n"),
        (
            "server",
            "cn = \"lab server\"\ndns_name = \"localhost\"\nip_address = \"127.0.0.1\"\ntls_www_server\nsigning_key\nencryption_key\n",
        ),
        (
            "client",
            "cn = \"lab client\"\ndns_name = \"device-7.lab\"\ntls_www_client\nsigning_key\nencryption_key\n",
        ),
    ];
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    for (kind, template) in kinds {
        let info = path(&format!("{kind}.info"));
        fs::write(&info, format!("{common}{template}")).unwrap();
        let (key, certificate) = (path(&format!("{kind}-key.pem")), path(&format!("{kind}-cert.pem")));
        let certtool = |arguments: &[&str]| succeed("gnutls-bin", "certtool", arguments);
        // No EC keys: GnuTLS writes some of them with a zero in front, which ring does not take.
        certtool(&["--generate-privkey", "--key-type=rsa", "--bits=2048", "--outfile", &key]);
        if kind == "ca" {
            certtool(&[
                "--generate-self-signed",
                "--load-privkey",
                &key,
                "--template",
                &info,
                "--outfile",
                &certificate,
            ]);
        } else {
            let (ca, ca_key) = (path("ca-cert.pem"), path("ca-key.pem"));
            certtool(&[
                "--generate-certificate",
                "--load-ca-certificate",
                &ca,
                "--load-ca-privkey",
                &ca_key,
                "--load-privkey",
                &key,
                "--template",
                &info,
                "--outfile",
                &certificate,
            ]);
        }
    }
}
