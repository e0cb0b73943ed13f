//! Tokens that prove which boot of which device asks: the names of both, sealed with a key that the server keeps.
//!
//! The seal is HMAC-SHA-256 (RFC 2104, FIPS 180-4) over both names, cut to 128 bits as RFC 2104 §5 allows: guessing one takes 2^127
//! requests. The key outlives restarts, so that a machine that is on its way up need not start over.
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use sha2::{Digest as _, Sha256};
use vdisk::BootId;

use crate::config::DeviceName;

const KEY_BYTES: usize = 32;
/// How much of the hash a token has.
const SEAL_BYTES: usize = 16;
/// The block size of SHA-256.
const BLOCK_BYTES: usize = 64;
/// The longest token: a device's name of 63 characters, a boot's id, the seal.
const MAX_TOKEN_BYTES: usize = 160;

/// Seals and reads tokens.
pub struct Seal([u8; KEY_BYTES]);

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Seal(..)")
    }
}

impl Seal {
    /// With the key in this file, which is made where there is none, for this user alone.
    ///
    /// # Errors
    /// It can be neither read nor made, or is no key.
    pub fn open(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => make_key(path).map_err(named)?,
            Err(error) => return Err(named(error)),
        };
        let key = bytes.try_into().map_err(|_| {
            let what = format!(
                "{} holds no key of {KEY_BYTES} bytes; remove it, and a new one is made",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, what)
        })?;
        Ok(Self(key))
    }

    /// The token of a boot: `<device>.<boot>.<seal>`, of letters, digits, hyphens and dots.
    #[must_use]
    pub fn token(&self, device: &DeviceName, boot: &BootId) -> String {
        let names = format!("{device}.{boot}");
        let seal: String = self.hash(names.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{names}.{seal}")
    }

    /// Whose token this is; `None` for what this server has not sealed.
    #[must_use]
    pub fn read(&self, token: &str) -> Option<(DeviceName, BootId)> {
        if token.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let mut parts = token.split('.');
        let (device, boot, _seal) = (parts.next()?, parts.next()?, parts.next()?);
        let (device, boot) = (DeviceName::parse(device).ok()?, BootId::new(boot).ok()?);
        let own = self.token(&device, &boot);
        // Without a hint, by the time it takes, at how much of a guess was right.
        let differ = own.bytes().zip(token.bytes()).fold(0, |all, (own, given)| all | (own ^ given));
        (own.len() == token.len() && differ == 0).then_some((device, boot))
    }

    fn hash(&self, message: &[u8]) -> [u8; SEAL_BYTES] {
        let padded = |with: u8| {
            let mut block = [with; BLOCK_BYTES];
            block.iter_mut().zip(self.0).for_each(|(byte, key)| *byte ^= key);
            block
        };
        let inner = Sha256::new().chain_update(padded(0x36)).chain_update(message).finalize();
        let outer = Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize();
        let mut seal = [0; SEAL_BYTES];
        seal.iter_mut().zip(outer).for_each(|(byte, hashed)| *byte = hashed);
        seal
    }
}

fn make_key(path: &Path) -> io::Result<Vec<u8>> {
    let mut key = vec![0; KEY_BYTES];
    getrandom::fill(&mut key).map_err(io::Error::other)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&key)?;
    file.sync_all()?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> (DeviceName, BootId) {
        (DeviceName::parse("lab-01").unwrap(), BootId::new("0k3v").unwrap())
    }

    #[test]
    fn token_is_read_by_its_own_server_also_after_a_restart_and_by_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cloud.key");
        let (device, boot) = names();
        let token = Seal::open(&path).unwrap().token(&device, &boot);
        assert!(token.starts_with("lab-01.0k3v.") && token.len() == "lab-01.0k3v.".len() + 32, "{token}");
        assert_eq!(Seal::open(&path).unwrap().read(&token), Some((device, boot)));
        assert_eq!(Seal([7; 32]).read(&token), None);
        fs::write(&path, "short").unwrap();
        assert!(Seal::open(&path).unwrap_err().to_string().contains("cloud.key"));
    }

    #[test]
    fn token_with_anything_changed_is_refused() {
        let seal = Seal([1; 32]);
        let (device, boot) = names();
        let token = seal.token(&device, &boot);
        let other = token.replace("lab-01", "lab-02");
        let later = token.replace("0k3v", "0k3w");
        let longer = format!("{token}0");
        let shorter = token.get(..token.len() - 1).unwrap().to_owned();
        for bad in [other, later, longer, shorter, String::new(), "..".to_owned(), "x".repeat(1000)] {
            assert_eq!(seal.read(&bad), None, "{bad}");
        }
    }

    #[test]
    fn hash_is_hmac_sha_256() {
        // RFC 4231 §4.2: the key is 20 bytes of 0x0b, here filled up with zeros, which is what HMAC does itself.
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let expected =
            [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53, 0x5c, 0xa8, 0xaf, 0xce, 0xaf, 0x0b, 0xf1, 0x2b];
        assert_eq!(Seal(key).hash(b"Hi There"), expected);
    }
}
