//! The URL of a machine's iPXE script: written by DHCP and by scripts that fetch themselves again.
use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::director::MacAddress;

/// The path of the script on our HTTP server.
pub const SCRIPT_PATH: &str = "/v1/boot/script";

/// The URL that DHCP hands out. `platform` in iPXE's words; `uuid` as option 97 carries it.
#[must_use]
pub fn script_url(
    server: Ipv4Addr,
    http_port: u16,
    mac: MacAddress,
    platform: Option<&str>,
    uuid: Option<&[u8; 16]>,
) -> String {
    let uuid = uuid.map(smbios_uuid_text);
    let path = path_and_query(&mac.to_string(), platform, uuid.as_deref());
    format!("http://{server}:{http_port}{path}")
}

/// The script's path and query, for a script of the same server. Without a colon: the iPXE of Debian 12 takes what stands before the first
/// one for the scheme, wherever that is.
#[must_use]
pub fn script_path(mac: MacAddress, platform: Option<&str>, uuid: Option<&str>) -> String {
    path_and_query(&mac.to_string().replace(':', "-"), platform, uuid)
}

fn path_and_query(mac: &str, platform: Option<&str>, uuid: Option<&str>) -> String {
    let mut path = format!("{SCRIPT_PATH}?mac={mac}");
    for (key, value) in [("platform", platform), ("uuid", uuid)] {
        if let Some(value) = value {
            path.push('&');
            path.push_str(key);
            path.push('=');
            path.push_str(value);
        }
    }
    path
}

/// A UUID of option 97 as text. Its first three fields are little-endian there, as in SMBIOS (RFC 4578 §2.3,
/// DMTF DSP0134 §7.2.1); the text is what `dmidecode` and iPXE print.
#[must_use]
pub fn smbios_uuid_text(uuid: &[u8; 16]) -> String {
    let [a3, a2, a1, a0, b1, b0, c1, c0, rest @ ..] = uuid;
    let mut text = format!("{a0:02x}{a1:02x}{a2:02x}{a3:02x}-{b0:02x}{b1:02x}-{c0:02x}{c1:02x}-");
    for (index, byte) in rest.iter().enumerate() {
        if index == 2 {
            text.push('-');
        }
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuid_text_swaps_the_first_three_fields() {
        let wire =
            [0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff];
        assert_eq!(smbios_uuid_text(&wire), "00112233-4455-6677-8899-aabbccddeeff");
    }

    #[test]
    fn longest_url_fits_into_the_boot_file_field() {
        let url = script_url(
            Ipv4Addr::new(255, 255, 255, 255),
            65535,
            MacAddress([0xff; 6]),
            Some("pcbios"),
            Some(&[0xff; 16]),
        );
        assert!(url.len() <= crate::dhcp::packet::MAX_FILE_NAME_BYTES, "{} bytes: {url}", url.len());
    }
}
