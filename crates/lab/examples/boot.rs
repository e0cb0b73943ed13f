//! Boots guests with other programs' servers (dnsmasq, tgt), to tell the lab's own faults from Headwater's:
//! `cargo run -p lab --example boot -- micro|golden bios|uefi-pxe|uefi-ipxe|uefi-http [count]`.
//!
//! Each guest boots, runs a command, survives a loss of its connection, reboots, and powers off.
use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use lab::{Firmware, Guest, GuestSpec, Network, SERVER_ADDRESS, Service};

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |number: usize| words.get(number).map(String::as_str);
    let (image, ready, within) = match word(0) {
        Some("micro") => (lab::micro::micro()?, lab::micro::READY, lab::MICRO_READY_WITHIN),
        Some("golden") => (lab::golden::golden()?, lab::golden::READY, lab::GOLDEN_READY_WITHIN),
        _ => bail!("which image: micro or golden?"),
    };
    let firmware = match word(1) {
        Some("bios") => Firmware::BiosIpxeRom,
        Some("uefi-pxe") => Firmware::UefiPxe,
        Some("uefi-ipxe") => Firmware::UefiIpxeRom,
        Some("uefi-http") => Firmware::UefiHttp,
        _ => bail!("which firmware: bios, uefi-pxe, uefi-ipxe or uefi-http?"),
    };
    let count: u8 = word(2).unwrap_or("1").parse().context("the count of guests")?;
    let network = Network::begin("boot-example")?;
    network.keep_logs();
    let mut servers = StandIn::start(&network, &image.vhdx, count)?;
    let began = Instant::now();
    let mut guests = Vec::new();
    for index in 0..count {
        let spec = GuestSpec::new(&format!("guest{index}"), firmware, index);
        guests.push(Guest::start(&network, &spec)?);
    }
    for guest in &mut guests {
        println!("{}", guest.wait_for(ready, within)?);
    }
    println!("{count} up in {:.1} s", began.elapsed().as_secs_f32());
    servers.http.wait_for_log("POST /v1/ready", Duration::from_secs(10))?;
    for guest in &mut guests {
        let began = Instant::now();
        println!("{}", guest.run("uname -r; hostname; cat /proc/uptime; busybox ps | grep [i]scsid; ls -d /sys/class/iscsi_session/*/recovery_tmo && cat /sys/class/iscsi_session/*/recovery_tmo /etc/iscsi/initiatorname.iscsi")?);
        println!("a command took {:.2} s", began.elapsed().as_secs_f32());
    }
    let guest = &mut guests[0];
    guest.run("echo before >/root-file 2>/dev/null || echo before >/data/file; sync")?;
    servers.restart_tgt(&network)?;
    let began = Instant::now();
    guest.run_within(
        "dd if=/dev/zero of=$([ -d /data ] && echo /data || echo /var)/after bs=64k count=64 conv=fsync",
        within,
    )?;
    println!("went on {:.1} s after the target's restart", began.elapsed().as_secs_f32());
    guest.reset()?;
    println!("{} (after a reset)", guest.wait_for(ready, within)?);
    let began = Instant::now();
    guest.shutdown()?;
    println!("off in {:.1} s", began.elapsed().as_secs_f32());
    Ok(())
}

/// dnsmasq for DHCP and TFTP, Python for HTTP, tgt for iSCSI.
struct StandIn {
    _dnsmasq: Service,
    http: Service,
    tgt: Service,
    luns: Vec<String>,
}

impl StandIn {
    fn start(network: &Network, vhdx: &std::path::Path, count: u8) -> Result<Self> {
        let folder = network.folder();
        let (tftp, www) = (folder.join("tftp"), folder.join("www"));
        fs::create_dir_all(&tftp)?;
        fs::create_dir_all(&www)?;
        for name in ["undionly.kpxe", "ipxe.efi"] {
            fs::copy(format!("/usr/lib/ipxe/{name}"), tftp.join(name))?;
            fs::copy(format!("/usr/lib/ipxe/{name}"), www.join(name))?;
        }
        let mut luns = Vec::new();
        for index in 0..count {
            let lun = folder.join(format!("lun{index}.raw")).to_string_lossy().into_owned();
            let convert = ["convert", "-f", "vhdx", "-O", "raw"];
            ensure!(Command::new("qemu-img").args(convert).arg(vhdx).arg(&lun).status()?.success());
            luns.push(lun);
            let mac = GuestSpec::new("", Firmware::BiosIpxeRom, index).mac.replace(':', "-");
            let script = format!(
                "#!ipxe\nset initiator-iqn iqn.2026-01.lab.standin:{mac}\n\
                 sanboot --drive 0x80 iscsi:{SERVER_ADDRESS}:::1:iqn.2026-01.lab.standin:t{index} || shell\n"
            );
            fs::write(www.join(format!("{mac}.ipxe")), script)?;
        }
        fs::write(www.join("boot.ipxe"), "#!ipxe\nchain ${net0/mac:hexhyp}.ipxe || shell\n")?;
        fs::write(folder.join("answer.py"), HTTP)?;
        fs::write(folder.join("dnsmasq.conf"), dnsmasq_configuration(&folder.display().to_string()))?;
        let mut command = network.command("dnsmasq");
        command.arg("--keep-in-foreground").arg("-C").arg(folder.join("dnsmasq.conf"));
        let mut dnsmasq = network.service("dnsmasq", command)?;
        dnsmasq.wait_until_listening(&[], &[67, 69])?;
        let mut command = network.command("python3");
        command.arg(folder.join("answer.py")).arg(&www);
        let mut http = network.service("http", command)?;
        http.wait_until_listening(&[8080], &[])?;
        let tgt = start_tgt(network, &luns)?;
        Ok(Self { _dnsmasq: dnsmasq, http, tgt, luns })
    }

    fn restart_tgt(&mut self, network: &Network) -> Result<()> {
        self.tgt.kill()?;
        self.tgt = start_tgt(network, &self.luns)?;
        Ok(())
    }
}

fn start_tgt(network: &Network, luns: &[String]) -> Result<Service> {
    // tgtd's control socket is the machine's, not the namespace's: give it a number of its own.
    let control = (std::process::id() % 30000).to_string();
    let mut command = network.command("tgtd");
    command.args(["-f", "-C", &control, "--iscsi", &format!("portal={SERVER_ADDRESS}:3260")]);
    let mut tgt = network.service("tgtd", command)?;
    tgt.wait_until_listening(&[3260], &[])?;
    for (index, lun) in luns.iter().enumerate() {
        let tid = (index + 1).to_string();
        let name = format!("iqn.2026-01.lab.standin:t{index}");
        let orders: [&[&str]; 3] = [
            &["--mode", "target", "--op", "new", "--tid", &tid, "-T", &name],
            &["--mode", "logicalunit", "--op", "new", "--tid", &tid, "--lun", "1", "-b", lun],
            &["--mode", "target", "--op", "bind", "--tid", &tid, "-I", "ALL"],
        ];
        for order in orders {
            let status =
                network.command("tgtadm").args(["-C", &control, "--lld", "iscsi"]).args(order).status()?;
            ensure!(status.success(), "tgtadm {order:?}: {status}");
        }
    }
    Ok(tgt)
}

const HTTP: &str = "import http.server, os, sys
os.chdir(sys.argv[1])
class Handler(http.server.SimpleHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers['Content-Length']))
        print('POST', self.path, self.headers['Content-Type'], body.decode(), flush=True)
        self.send_response(204)
        self.end_headers()
http.server.ThreadingHTTPServer(('10.77.0.1', 8080), Handler).serve_forever()
";

fn dnsmasq_configuration(folder: &str) -> String {
    format!(
        "port=0\npid-file=\ninterface=br0\nbind-interfaces\nlog-facility=-\nlog-dhcp\ndhcp-authoritative\nno-ping\n\
         dhcp-leasefile={folder}/leases\ndhcp-range=10.77.0.100,10.77.0.200,255.255.255.0,1h\n\
         enable-tftp\ntftp-root={folder}/tftp\nenable-ra\ndhcp-range=fd77::,ra-only\n\
         dhcp-userclass=set:ipxe,iPXE\ndhcp-match=set:efi,option:client-arch,7\n\
         dhcp-match=set:efi,option:client-arch,9\ndhcp-match=set:http,option:client-arch,16\n\
         dhcp-option=tag:ipxe,encap:175,176,1b\ndhcp-boot=tag:ipxe,http://{SERVER_ADDRESS}:8080/boot.ipxe\n\
         dhcp-option-force=tag:http,60,HTTPClient\n\
         dhcp-boot=tag:!ipxe,tag:http,http://{SERVER_ADDRESS}:8080/ipxe.efi\n\
         dhcp-boot=tag:!ipxe,tag:efi,ipxe.efi\ndhcp-boot=tag:!ipxe,tag:!efi,tag:!http,undionly.kpxe\n"
    )
}
