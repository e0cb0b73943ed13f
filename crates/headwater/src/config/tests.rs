//! The configuration's messages, word for word, and its documentation held to its code.
use super::*;

/// Parses `text`; the messages, one a line.
fn messages(text: &str) -> String {
    match parse(text, Path::new("headwater.toml")) {
        Ok(_) => String::new(),
        Err(problems) => problems.to_string(),
    }
}

const ONE_VDISK: &str = "stores.images = \"/srv\"\n[[vdisk]]\nname = \"debian\"\nfile = \"debian.vhdx\"\n";

/// The default file with its examples switched on: lines `#key = value` and `#[table]`.
fn default_file_with_examples() -> String {
    let example = |line: &&str| line.strip_prefix('#').is_some_and(|rest| !rest.starts_with(' '));
    DEFAULT_FILE
        .lines()
        .map(|line| if example(&line) { line.trim_start_matches('#') } else { line })
        .fold(String::new(), |text, line| text + line + "\n")
}

#[test]
fn default_file_says_what_an_empty_file_means() {
    let path = Path::new("headwater.toml");
    assert_eq!(parse(DEFAULT_FILE, path).unwrap(), parse("", path).unwrap());
}

#[test]
fn examples_of_the_default_file_are_valid() {
    let config = parse(&default_file_with_examples(), Path::new("x")).unwrap();
    assert_eq!(config.devices.len(), 1);
    assert_eq!(config.devices[0].chap.as_ref().unwrap().user, "lab-01");
    assert_eq!(config.devices[0].initiator.as_str(), "iqn.2026-11.org.headwater:lab-01:initiator");
    let file = |name: &str| config.vdisk(name).unwrap().path.clone();
    assert_eq!(file("debian"), Path::new("/srv/headwater/images/debian.2.avhdx"));
    assert_eq!(file("debian@1"), Path::new("/srv/headwater/images/debian.1.avhdx"));
    assert_eq!(file("debian@0"), Path::new("/srv/headwater/images/debian.vhdx"));
    assert_eq!(config.write_cache.limit, ByteSize(10 << 30));
}

#[test]
fn every_key_stands_in_the_default_file_and_in_the_documentation() {
    let text = default_file_with_examples();
    let problems = Problems::new(&text, Path::new("x"));
    let (table, _) = toml::de::DeTable::parse_recoverable(&text);
    let mut root = Section::new("", table.get_ref(), table.span(), &problems);
    read_root(&mut root, Path::new("headwater.toml"));
    let docs = include_str!("../../../../docs/configuration.md");
    for key in root.known() {
        assert!(table.get_ref().contains_key(*key), "{key} is missing in the default file");
    }
    let inner = [
        (
            "iscsi",
            "listen iqn_prefix chap_md5 redirect logout_within max_connections max_connections_per_address memory_limit",
        ),
        (
            "nbd",
            "listen unix_socket systemd_sockets tls certificate key client_ca shared_certificates vdisk_readers max_connections max_connections_per_address memory_limit",
        ),
        ("server", "name site"),
        ("catalogue", "postgres"),
        ("http", "listen"),
        ("api", "listen certificate key"),
        ("netboot", "boot_files bios uefi_x64 uefi_ia32 uefi_arm64"),
        ("cloud", "secrets"),
        ("admission", "at_once quiet longest"),
        ("write_cache", "kind directory memory_limit limit warn_percent"),
        ("limits", "bandwidth iops burst_ms"),
        ("interface", "name mode tftp router_advertisements range netmask router dns lease"),
        ("relay", "interface range netmask router dns lease"),
        ("vdisk", "name store file format versions version boot boot_entry kernel initrd command_line"),
        (
            "device",
            "name mac vdisk address initiator chap_user chap_secret chap_target_user chap_target_secret certificate write_cache write_cache_limit bandwidth_limit iops_limit limit_burst_ms",
        ),
    ];
    for key in root.known() {
        assert!(docs.contains(&format!("`{key}`")) || docs.contains(&format!("[{key}]")), "docs: {key}");
    }
    for (section, keys) in inner {
        for key in keys.split(' ') {
            assert!(docs.contains(&format!("`{key}`")), "docs: {section}.{key}");
            assert!(
                text.lines().any(|line| line.starts_with(&format!("{key} = "))),
                "default: {section}.{key}"
            );
        }
    }
}

#[test]
fn misspelled_key_is_reported_with_its_place_and_the_nearest_key() {
    assert_eq!(
        messages("state_dirr = \"/x\"\n[iscsi]\n  lisen = \"0.0.0.0\"\nzzz = 1\n"),
        "headwater.toml:1:1: unknown key \"state_dirr\" at the top level; did you mean \"state_dir\"?\n\
         headwater.toml:3:3: unknown key \"lisen\" in [iscsi]; did you mean \"listen\"?\n\
         headwater.toml:4:1: unknown key \"zzz\" in [iscsi]; known keys: listen, iqn_prefix, chap_md5, redirect, logout_within, max_connections, max_connections_per_address, memory_limit"
    );
}

#[test]
fn text_that_is_not_toml_is_reported_with_its_place_alone() {
    let report = messages("[iscsi]\nlisten = \nunknown = 1\n");
    assert!(report.starts_with("headwater.toml:2:"), "{report}");
    assert!(report.contains("not TOML: "), "{report}");
    assert_eq!(report.lines().count(), 1, "{report}");
}

#[test]
fn wrong_types_and_values_are_reported_together() {
    assert_eq!(
        messages(
            "boots_kept = 0\nadmin_socket = \"run/x\"\nunknown_devices = 3\n[iscsi]\nlisten = [\"here\"]\niqn_prefix = \"iqn.headwater\"\n[http]\nlisten = 8080\n[write_cache]\nlimit = \"10 GB\"\nwarn_percent = 101\n"
        ),
        "headwater.toml:1:14: boots_kept must be a whole number from 1 to 1000\n\
         headwater.toml:2:16: admin_socket: \"run/x\" is not an absolute path\n\
         headwater.toml:3:19: unknown_devices must be \"ignore\" or { vdisk = \"name\" }\n\
         headwater.toml:5:11: iscsi.listen: \"here\" is not an address such as \"0.0.0.0:3260\" or \"[::]:3260\"\n\
         headwater.toml:6:14: iscsi.iqn_prefix: \"iqn.headwater\" is not a name such as \"iqn.2026-11.org.example\" (lower-case letters, digits, '-', '.', ':')\n\
         headwater.toml:8:10: http.listen must be a string, not integer\n\
         headwater.toml:10:9: write_cache.limit: \"10 GB\" is not a size such as \"10 GiB\" (units: B, KiB, MiB, GiB, TiB)\n\
         headwater.toml:11:16: write_cache.warn_percent must be a whole number from 1 to 100"
    );
}

#[test]
fn device_with_an_undefined_vdisk_is_told_the_nearest_one() {
    let text = format!(
        "{ONE_VDISK}[[device]]\nname = \"lab-01\"\nmac = \"52:54:00:00:00:01\"\nvdisk = \"debain\"\n"
    );
    assert_eq!(
        messages(&text),
        "headwater.toml:8:9: device.vdisk: there is no vDisk \"debain\"; did you mean \"debian\"?"
    );
}

#[test]
fn devices_that_share_what_must_differ_are_reported() {
    let device = |name: &str, rest: &str| {
        format!(
            "[[device]]\nname = \"{name}\"\nmac = \"52:54:00:00:00:01\"\nvdisk = \"debian\"\naddress = \"10.0.0.9\"\n{rest}"
        )
    };
    let initiator = "initiator = \"iqn.2026-11.org.example:one\"\n";
    let text = format!("{ONE_VDISK}{}{}", device("a", initiator), device("a", initiator));
    assert_eq!(
        messages(&text),
        "headwater.toml:12:8: device \"a\" is defined twice; first on line 5\n\
         headwater.toml:13:7: device \"a\": MAC address 52:54:00:00:00:01 is taken by the device on line 5\n\
         headwater.toml:15:11: device \"a\": address 10.0.0.9 is taken by the device on line 5\n\
         headwater.toml:16:13: device \"a\": initiator name iqn.2026-11.org.example:one is taken by the device on line 5"
    );
}

#[test]
fn chap_secret_that_is_short_or_alone_is_refused_and_not_repeated() {
    let device = |rest: &str| {
        format!("{ONE_VDISK}[[device]]\nname = \"a\"\nmac = \"525400000001\"\nvdisk = \"debian\"\n{rest}")
    };
    assert_eq!(
        messages(&device("chap_user = \"u\"\nchap_secret = \"hunter2\"\n")),
        "headwater.toml:10:15: device.chap_secret: a CHAP secret must have 12 to 255 bytes (RFC 7143 §9.2.1) and no control characters; this one has 7 bytes"
    );
    assert_eq!(
        messages(&device("chap_user = \"u\"\n")),
        "headwater.toml:9:13: device.chap_user without chap_secret: CHAP needs both"
    );
}

#[test]
fn target_of_mutual_chap_needs_a_secret_of_its_own() {
    let device = |rest: &str| {
        format!(
            "{ONE_VDISK}[[device]]\nname = \"a\"\nmac = \"525400000001\"\nvdisk = \"debian\"\nchap_user = \"u\"\n\
             chap_secret = \"a-good-secret\"\n{rest}"
        )
    };
    assert_eq!(messages(&device("chap_target_user = \"t\"\nchap_target_secret = \"another-secret\"\n")), "");
    let report = messages(&device("chap_target_user = \"t\"\nchap_target_secret = \"a-good-secret\"\n"));
    assert!(
        report.starts_with("headwater.toml:12:22: device.chap_target_secret must not be chap_secret"),
        "{report}"
    );
    let report = messages(&device("chap_target_user = \"t\"\n"));
    assert_eq!(
        report,
        "headwater.toml:11:20: device.chap_target_user without chap_target_secret: CHAP needs both"
    );
}

#[test]
fn versions_are_different_numbers_and_the_current_one_is_among_them() {
    let vdisk = |rest: &str| messages(&format!("{ONE_VDISK}{rest}"));
    assert_eq!(vdisk("versions = [1, 2]\nversion = 1\n"), "");
    assert_eq!(
        vdisk("versions = [1, 1]\n"),
        "headwater.toml:5:12: vdisk.versions must be 1 to 64 different whole numbers from 1 to 99999: [1, 2]"
    );
    assert_eq!(
        vdisk("versions = [1]\nversion = 2\n"),
        "headwater.toml:6:11: vdisk.version 2 is not among versions"
    );
}

#[test]
fn private_image_has_one_user() {
    let device = |name: &str, mac: &str, rest: &str| {
        format!("[[device]]\nname = \"{name}\"\nmac = \"5254000000{mac}\"\nvdisk = \"debian\"\n{rest}")
    };
    let private = device("a", "01", "write_cache = \"none\"\n");
    assert_eq!(messages(&format!("{ONE_VDISK}{private}")), "");
    let why = "writes the vDisk \"debian\" itself (write_cache = \"none\"), and";
    let shared = messages(&format!("{ONE_VDISK}{private}{}", device("b", "02", "")));
    assert!(
        shared.starts_with(&format!("headwater.toml:5:1: device \"a\" {why} device \"b\" uses it too")),
        "{shared}"
    );
    let strangers = messages(&format!("unknown_devices = {{ vdisk = \"debian\" }}\n{ONE_VDISK}{private}"));
    assert!(strangers.contains(&format!("{why} unknown_devices uses it too")), "{strangers}");
    assert!(
        messages("write_cache.kind = \"none\"\n").contains("is for one device that writes its vDisk itself")
    );
}

#[test]
fn interfaces_with_faulty_pools_are_reported() {
    let text = "[[interface]]\nname = \"eth0\"\nmode = \"dhcp\"\n[[interface]]\nname = \"eth1\"\nmode = \"dhcp\"\nrange = \"10.0.0.1-10.0.0.9\"\nrouter = \"10.0.0.5\"\n[[interface]]\nname = \"eth2\"\nmode = \"dhcp\"\nrange = \"10.0.0.9-10.0.0.19\"\n[[interface]]\nname = \"eth3\"\nmode = \"proxy\"\nlease = \"1h\"\n[[interface]]\nname = \"eth3\"\nmode = \"of operation\"\n";
    assert_eq!(
        messages(text),
        "headwater.toml:3:8: interface \"eth0\": mode \"dhcp\" needs a range of addresses to hand out (range = \"10.0.0.100-10.0.0.199\")\n\
         headwater.toml:8:10: interface \"eth1\": the router's address lies in the range that is handed out\n\
         headwater.toml:12:9: interface \"eth2\": its range overlaps that of interface \"eth1\" on line 4\n\
         headwater.toml:16:9: interface \"eth3\": lease has no meaning in mode \"proxy\"; it belongs to mode \"dhcp\"\n\
         headwater.toml:19:8: interface.mode: \"of operation\" is not a mode; known: \"dhcp\" (be the DHCP server), \"proxy\" (beside one), \"none\""
    );
}

#[test]
fn nbd_that_others_reach_needs_tls_or_a_word_that_it_has_none() {
    let nbd = |rest: &str| messages(&format!("[nbd]\n{rest}"));
    let report = nbd("");
    assert!(
        report.starts_with(
            "headwater.toml:1:1: nbd: other machines can connect to 0.0.0.0:10809, and without TLS whoever"
        ),
        "{report}"
    );
    assert!(report.ends_with("tls = \"off\""), "{report}");
    assert!(
        nbd("listen = [\"127.0.0.1\", \"[fe80::1]:7\"]\n")
            .starts_with("headwater.toml:2:10: nbd: other machines")
    );
    for sound in [
        "tls = \"off\"\n",
        "listen = \"127.0.0.1:7\"\n",
        "unix_socket = \"/s\"\n",
        "certificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n",
    ] {
        assert_eq!(nbd(sound), "", "{sound}");
    }
    assert_eq!(nbd("certificate = \"/c\"\n"), "headwater.toml:2:15: nbd: TLS also needs key and client_ca");
    assert_eq!(
        nbd("listen = \"127.0.0.1\"\ntls = \"required\"\nvdisk_readers = \"a b\"\n"),
        "headwater.toml:3:7: nbd: tls = \"required\" needs certificate, key and client_ca\n\
         headwater.toml:4:17: nbd.vdisk_readers: \"a b\" is neither an address or network (\"10.0.0.0/24\") nor the name in a certificate"
    );
}

#[test]
fn tls_is_required_where_certificates_are_named_and_nothing_else_is_said() {
    let config = |tls: &str| {
        let text = format!("[nbd]\ncertificate = \"/c\"\nkey = \"/k\"\nclient_ca = \"/a\"\n{tls}");
        parse(&text, Path::new("x")).unwrap().nbd.unwrap()
    };
    assert!(matches!(config("").tls, NbdTls::Required(_)));
    assert!(matches!(config("tls = \"allowed\"").tls, NbdTls::Allowed(_)));
    assert_eq!(config("tls = \"off\"").tls, NbdTls::Off { explicit: true });
    assert_eq!(config("").listen, ["0.0.0.0:10809".parse().unwrap()]);
    assert_eq!(config("unix_socket = \"/s\"").listen, []);
}

#[test]
fn kernel_of_a_vdisk_needs_a_command_line_with_known_words() {
    let vdisk = |rest: &str| messages(&format!("{ONE_VDISK}{rest}"));
    assert_eq!(vdisk("kernel = \"vmlinuz\"\ncommand_line = \"root={export}\"\n"), "");
    assert_eq!(
        vdisk("kernel = \"vmlinuz\"\n"),
        "headwater.toml:5:10: vdisk.kernel without command_line: the kernel must be told its disk"
    );
    assert_eq!(
        vdisk("initrd = \"i\"\n"),
        "headwater.toml:5:10: vdisk.initrd without kernel or boot = \"kernel\": the disk itself is booted"
    );
    assert!(
        vdisk("kernel = \"k\"\ncommand_line = \"{exprot}\"\n")
            .contains("begins none of {options}, {server}, {nbd_port}")
    );
    assert!(vdisk("kernel = \"../k\"\ncommand_line = \"x\"\n").contains("must lie below its store"));
}

#[test]
fn kernel_inside_the_image_needs_nothing_but_may_be_chosen_and_told_more() {
    let vdisk = |rest: &str| messages(&format!("{ONE_VDISK}{rest}"));
    assert_eq!(vdisk("boot = \"kernel\"\n"), "");
    assert_eq!(
        vdisk("boot = \"kernel\"\nboot_entry = \"x\"\ncommand_line = \"{options} host={device}\"\n"),
        ""
    );
    assert!(vdisk("boot_entry = \"x\"\n").contains("vdisk.boot_entry without kernel or boot = \"kernel\""));
    assert!(
        vdisk("boot = \"disk\"\ncommand_line = \"x\"\n").contains("vdisk.command_line with boot = \"disk\"")
    );
    assert!(vdisk("boot = \"kernel\"\ninitrd = \"i\"\n").contains("both come from inside the image"));
    assert!(vdisk("kernel = \"k\"\nboot_entry = \"x\"\ncommand_line = \"c\"\n").contains("has no entry"));
    assert!(vdisk("kernel = \"k\"\ncommand_line = \"{options}\"\n").contains("inside the image"));
    assert!(vdisk("boot = \"menu\"\n").contains("neither \"disk\" nor \"kernel\""));
}

#[test]
fn networks_hold_the_addresses_with_their_start() {
    let contains =
        |network: &str, address: &str| Network::parse(network).unwrap().contains(address.parse().unwrap());
    assert!(contains("10.1.0.0/16", "10.1.255.9") && !contains("10.1.0.0/16", "10.2.0.1"));
    assert!(contains("10.1.0.1", "::ffff:10.1.0.1") && !contains("10.1.0.1", "10.1.0.2"));
    assert!(contains("0.0.0.0/0", "10.1.0.1") && !contains("0.0.0.0/0", "fd00::1"));
    assert!(contains("fd00::/8", "fdff::1") && !contains("fd00::/8", "fe00::1"));
    assert_eq!(Network::parse("10.0.0.0/33"), None);
    assert_eq!(Network::parse("10.0.0/24"), None);
}

#[test]
fn vdisk_outside_its_store_or_without_one_is_reported() {
    assert_eq!(
        messages(
            "[[vdisk]]\nname = \"a\"\nfile = \"a.vhdx\"\n[[vdisk]]\nname = \"b\"\nfile = \"../b.vhdx\"\n[[vdisk]]\nname = \"c\"\nstore = \"imagse\"\nfile = \"c.vhdx\"\n[[vdisk]]\nfile = \"/d\"\n[stores]\nimages = \"/a\"\nmore = \"/b\"\n"
        ),
        "headwater.toml:3:8: vDisk \"a\": say in which store (store = ...): images, more\n\
         headwater.toml:6:8: vDisk \"b\": the file must lie below its store, without \"..\" or \"/\" in front\n\
         headwater.toml:9:9: vDisk \"c\": there is no store \"imagse\"; did you mean \"images\"?\n\
         headwater.toml:11:1: vdisk.name is missing"
    );
}

#[test]
fn image_that_is_not_there_is_an_error_of_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("headwater.toml");
    std::fs::write(&path, "[[vdisk]]\nname = \"a\"\nfile = \"/nowhere/a.vhdx\"\n").unwrap();
    let report = Config::load(&path).unwrap_err().to_string();
    let expected =
        ":1:1: vDisk \"a\": cannot open its image /nowhere/a.vhdx: No such file or directory (os error 2)";
    assert_eq!(report, format!("{}{expected}", path.display()));
}

#[test]
fn configuration_file_that_is_missing_is_named() {
    let report = Config::load(Path::new("/nowhere/headwater.toml")).unwrap_err().to_string();
    assert_eq!(
        report,
        "/nowhere/headwater.toml: No such file or directory (os error 2)\n  No farm is set up here yet? \"headwater \
         init\" does it; --config names another place."
    );
}

#[test]
fn mangled_configurations_never_panic() {
    let text = default_file_with_examples();
    for cut in 0..text.len() {
        if let Some(part) = text.get(..cut) {
            drop(parse(part, Path::new("x")));
        }
    }
}
