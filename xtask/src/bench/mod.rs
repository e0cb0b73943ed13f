//! `cargo xtask bench NAME`: measured claims, each against a named peer in the same run.
//!
//! Every bench gives [`Measure`]s. A measure holds the medians of ours and the peer's, whose runs alternate, so that
//! a machine whose speed drifts treats both alike; what is claimed is their ratio.
mod boot;
mod console;
#[path = "../../../crates/headwater/tests/browser/driver.rs"]
#[allow(dead_code, reason = "the tests' driver of Chromium, of which a bench uses a part")]
mod driver;
mod farm;
mod image;
mod process;
mod storm;
mod stream;

use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

pub(crate) use process::Server;
pub(crate) use storm::{DeviceArguments, run_devices};
pub(crate) use stream::{VolumeArguments, serve_volume};

/// What to measure, and how to show it.
#[derive(Args)]
pub(crate) struct BenchArguments {
    #[command(subcommand)]
    bench: Bench,
    /// `json`: one line a measure
    #[arg(long, value_enum, default_value_t = Output::Table, global = true)]
    output: Output,
}

#[derive(Subcommand)]
enum Bench {
    /// The data plane: iSCSI against tgt, NBD against nbdkit, qemu-nbd and nbd-server, and ourselves under many sessions
    Stream(stream::StreamArguments),
    /// Work on disk images: convert, compare, check and merge, against qemu-img and cp
    Image(image::ImageArguments),
    /// The farm: boot decisions, lists, searches and imports with 10,000 devices
    Farm(farm::FarmArguments),
    /// The web console with 10,000 devices: how long pages take, and what 20 open consoles take from the data plane
    Console(console::ConsoleArguments),
    /// Boots of one virtual machine over the network, against the same boot from a local disk
    Boot(boot::BootArguments),
    /// A thousand simulated devices that are switched on together, and their reads against tgt
    Storm(storm::StormArguments),
}

#[derive(Clone, Copy, ValueEnum)]
enum Output {
    Table,
    Json,
}

/// One figure of ours beside the peer's.
pub(crate) struct Measure {
    /// What was measured.
    pub(crate) measure: String,
    /// Our median.
    pub(crate) ours: f64,
    /// The peer's median.
    pub(crate) peer: f64,
    /// The peer, with its version.
    pub(crate) peer_name: String,
    /// Of both figures.
    pub(crate) unit: &'static str,
    /// Whether more or less is better, and the ratio that we aim at.
    pub(crate) aim: Aim,
}

/// How good a ratio has to be.
#[derive(Clone, Copy)]
pub(crate) enum Aim {
    /// ours / peer at least this: for rates.
    AtLeast(f64),
    /// ours / peer at most this: for costs.
    AtMost(f64),
    /// Ours at most this, whatever the peer's is.
    OursAtMost(f64),
    /// A figure that nobody has asked anything of.
    Told,
}

/// Runs a bench and shows its measures. A missed aim is shown, not an error: benches inform.
///
/// # Errors
/// Where something needed is missing or a program fails.
pub(crate) fn bench(arguments: &BenchArguments) -> Result<()> {
    let measures = match &arguments.bench {
        Bench::Stream(stream) => stream::measure(stream)?,
        Bench::Image(image) => image::measure(image)?,
        Bench::Farm(farm) => farm::measure(farm)?,
        Bench::Console(console) => console::measure(console)?,
        Bench::Boot(boot) => boot::measure(boot)?,
        Bench::Storm(storm) => storm::measure(storm)?,
    };
    match arguments.output {
        Output::Table => table(&measures),
        Output::Json => measures.iter().for_each(|measure| println!("{}", measure.json())),
    }
    Ok(())
}

/// The middle value; of an even number, the mean of the two.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match (values.len() % 2, values.get(half), half.checked_sub(1).and_then(|i| values.get(i))) {
        (0, Some(high), Some(low)) => f64::midpoint(*low, *high),
        (_, Some(middle), _) => *middle,
        _ => f64::NAN,
    }
}

impl Measure {
    fn ratio(&self) -> f64 {
        self.ours / self.peer
    }

    fn met(&self) -> bool {
        match self.aim {
            Aim::AtLeast(aim) => self.ratio() >= aim,
            Aim::AtMost(aim) => self.ratio() <= aim,
            Aim::OursAtMost(aim) => self.ours <= aim,
            Aim::Told => true,
        }
    }

    fn aim(&self) -> String {
        match self.aim {
            Aim::AtLeast(aim) => format!(">= {aim:.2}"),
            Aim::AtMost(aim) => format!("<= {aim:.2}"),
            Aim::OursAtMost(aim) => format!("ours <= {aim}"),
            Aim::Told => "-".to_owned(),
        }
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "measure": self.measure, "ours": self.ours, "peer": self.peer, "peer_name": self.peer_name,
            "unit": self.unit, "ratio": self.ratio(), "aim": self.aim(), "met": self.met(),
        })
    }
}

fn table(measures: &[Measure]) {
    println!(
        "{:<78} {:>10} {:>10} {:<10} {:>6} {:>11}  met",
        "measure", "ours", "peer", "unit", "ratio", "aim"
    );
    for m in measures {
        let met = if m.met() { "yes" } else { "NO" };
        let (ours, peer, ratio, aim) = (figure(m.ours), figure(m.peer), figure(m.ratio()), m.aim());
        println!("{:<78} {ours:>10} {peer:>10} {:<10} {ratio:>6} {aim:>11}  {met}", m.measure, m.unit);
    }
    let mut peers: Vec<&str> = measures.iter().map(|measure| measure.peer_name.as_str()).collect();
    peers.sort_unstable();
    peers.dedup();
    println!("peers: {}", peers.join("; "));
}

fn figure(value: f64) -> String {
    if value.is_nan() {
        "-".to_owned()
    } else if value.abs() >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}

/// Takes a file out of the page cache.
fn forget_pages(file: &Path) -> Result<()> {
    let opened = std::fs::File::open(file).with_context(|| format!("cannot open {}", file.display()))?;
    rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed)
        .with_context(|| format!("cannot drop the pages of {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_and_even_counts() {
        assert!((median(vec![3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!((median(vec![4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < f64::EPSILON);
    }

    #[test]
    fn figure_that_nobody_has_is_a_dash() {
        assert_eq!([figure(f64::NAN), figure(0.5), figure(1234.5)], ["-", "0.50", "1234"]);
    }

    #[test]
    fn cost_above_its_aim_is_not_met() {
        let measure = |ours, aim| {
            let (peer_name, measure) = (String::new(), String::new());
            Measure { measure, ours, peer: 1.0, peer_name, unit: "us", aim }
        };
        assert!(!measure(1.2, Aim::AtMost(1.0)).met());
        assert!(measure(1.2, Aim::AtLeast(1.0)).met());
    }
}
