//! Developer tasks, run as `cargo xtask TASK`.
mod bench;
mod demo;
mod openapi;
mod run;
mod screenshots;
mod test;
mod tidy;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Headwater's developer tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build a golden image, boot two virtual machines from it over a network, and show where the time went
    Demo(demo::DemoArguments),
    /// Install what is missing and run every check and test: formatting, clippy, tidy, tests, interop, boots
    Test(test::TestArguments),
    /// Measure us against the named peers; see docs/benchmarks.md
    Bench(bench::BenchArguments),
    /// Ask a real server's REST API whatever its document allows and forbids, with schemathesis (from PyPI)
    Openapi(openapi::OpenapiArguments),
    /// Show every page of the console to Chromium, in both themes and at 360 px, and keep the pictures
    Screenshots(screenshots::ScreenshotArguments),
    /// Serve a vDisk with an empty write cache over NBD: what the benches start
    #[command(hide = true)]
    ServeVolume(bench::VolumeArguments),
    /// Simulated devices of `bench storm`
    #[command(hide = true)]
    StormDevices(bench::DeviceArguments),
    /// Check the house rules that no compiler checks: dependency direction, file sizes, module docs, links
    Tidy,
}

fn main() -> Result<()> {
    match Arguments::parse().task {
        Task::Demo(arguments) => demo::demo(&arguments),
        Task::Test(arguments) => test::test(&arguments),
        Task::Bench(arguments) => bench::bench(&arguments),
        Task::Openapi(arguments) => openapi::openapi(&arguments),
        Task::Screenshots(arguments) => screenshots::screenshots(&arguments),
        Task::ServeVolume(arguments) => bench::serve_volume(&arguments),
        Task::StormDevices(arguments) => bench::run_devices(&arguments),
        Task::Tidy => tidy::tidy(),
    }
}
