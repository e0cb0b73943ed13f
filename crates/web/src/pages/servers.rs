//! The servers of the farm: which of them serve, what they carry, and what somebody should look at. The overview, the list of servers
//! and the page of a server show it.
use api::load::ServerLoad;
use maud::{Markup, html};

use crate::ask::Refusal;
use crate::commands;
use crate::door::Visit;
use crate::fields::Fields;
use crate::frame::since;
use crate::markup::{badge, bytes, count, filled, gauge, link, moment, same_as, several};
use crate::paths;
use crate::wire::{List, Server};

/// From which share on, in per cent, a server is said to be nearly full of devices, or its processors to be busy.
const NEARLY_FULL: u64 = 90;

/// Something that somebody should look at: how bad it is, and what.
pub(super) type Concern = (&'static str, Markup);

impl Server {
    /// What it carries now.
    fn carries(&self) -> Option<&ServerLoad> {
        self.load.as_ref().filter(|_| self.state == "running")
    }

    fn link(&self) -> Markup {
        link(&paths::object("servers", self.server.id), &self.server.name)
    }

    /// What is wrong with it, worst first. Nobody expects anything of a disabled server that does not run.
    pub(super) fn concerns(&self) -> Vec<Concern> {
        let mut concerns = Vec::new();
        if self.state == "silent" && !self.disabled {
            let text = html! { "Server " (self.link()) " was not heard of since " (heard(self)) ": it is gone, or cannot reach the farm's database." };
            concerns.push(("bad", text));
        }
        let Some(load) = self.carries() else { return concerns };
        if let Some(most) = self.max_devices.map(u64::from)
            && share(load.devices, most) >= NEARLY_FULL
        {
            let tone = if load.devices >= most { "bad" } else { "warn" };
            let text = html! { "Server " (self.link()) " serves " (several(load.devices, "device")) " of the " (count(most)) " that it takes." };
            concerns.push((tone, text));
        }
        if busy(load) > NEARLY_FULL {
            let text = html! { "Server " (self.link()) " keeps " (format!("{:.1}", load.processors_busy)) " of its " (load.processors) " processors busy." };
            concerns.push(("warn", text));
        }
        if load.waiting > 0 {
            let text = html! { (several(load.waiting, "device")) " wait for a place to boot from server " (self.link()) ", the first one for " (since(load.longest_wait_s)) "; " (count(load.booting)) " boot at this moment." };
            concerns.push(("warn", text));
        }
        concerns
    }
}

/// Those that fit a query, as the REST API takes it.
pub(super) async fn asked(visit: &Visit, query: &Fields) -> Result<List<Server>, Refusal> {
    visit.ask.get(&format!("/v1/server-loads{}", query.query())).await
}

/// One of them.
pub(super) async fn one(visit: &Visit, id: i64) -> Result<Server, Refusal> {
    visit.ask.get(&format!("/v1/servers/{id}/load")).await
}

/// In one row each; at most so many.
pub(super) fn table(servers: &[Server], most: usize) -> Markup {
    let left = servers.len().saturating_sub(most);
    html! {
        div.table { table.stacked {
            thead { tr { th { "Server" } th { "State" } th { "Devices" } th { "Throughput" } th { "Requests" } th { "Processors" } th { "Memory" } th { "Heard of" } } }
            tbody { @for server in servers.iter().take(most) { (row(server)) } }
        } }
        @if left > 0 { p.small { a href="/servers" { "and " (count(left as u64)) " more" } } }
        (same_as(commands::SERVER_LOAD))
    }
}

fn row(server: &Server) -> Markup {
    html! { tr {
        td { (server.link()) }
        td { (state(server)) @if let Some(load) = server.carries() { " " span.small { (load.version) ", up " (since(load.uptime_s)) } } }
        @if let Some(load) = server.carries() {
            td.number data-label="Devices" { (devices(load, server.max_devices)) }
            td.number data-label="Throughput" { (throughput(load)) }
            td.number data-label="Requests" { (count(load.requests_per_second)) "/s" }
            td data-label="Processors" { (processors(load)) }
            td.number data-label="Memory" { (bytes(load.memory_bytes)) }
        } @else {
            @for label in ["Devices", "Throughput", "Requests", "Processors", "Memory"] { td data-label=(label) { span.none { "–" } } }
        }
        td data-label="Heard of" { (heard(server)) }
    } }
}

/// All that is told of one.
pub(super) fn all_figures(server: &Server) -> Markup {
    html! {
        dl {
            dt { "State" } dd { (state(server)) }
            dt { "Heard of" } dd { (heard(server)) }
            @if let Some(load) = server.carries() {
                dt { "Up" } dd { (since(load.uptime_s)) ", version " (load.version) }
                dt { "Devices" } dd { (devices(load, server.max_devices)) ", with " (several(load.sessions, "session")) }
                dt { "Booting" } dd { (count(load.booting)) @if let Some(most) = load.at_once { " of " (count(most)) " at once" } @if load.waiting > 0 { "; " (count(load.waiting)) " wait, the first one for " (since(load.longest_wait_s)) } }
                dt { "Throughput" } dd { (bytes(load.read_bytes_per_second)) "/s read, " (bytes(load.written_bytes_per_second)) "/s written, " (count(load.requests_per_second)) " requests/s" }
                @if let Some(share) = load.hit_share { dt { "Page cache" } dd { (format!("{:.0} %", share * 100.0)) " of reads were answered from memory" } }
                dt { "Processors" } dd { (processors(load)) }
                dt { "Memory" } dd { (bytes(load.memory_bytes)) }
                @if load.cache_memory_limit_bytes > 0 { dt { "Write caches in memory" } dd { (gauge(load.cache_memory_bytes, load.cache_memory_limit_bytes)) } }
            }
        }
        (same_as(&commands::server_load(&server.server.name)))
    }
}

fn state(server: &Server) -> Markup {
    html! {
        @match server.state.as_str() {
            "running" => (badge("good", "running")),
            "silent" => (badge(if server.disabled { "calm" } else { "bad" }, "not heard of")),
            "stopped" => (badge("calm", "stopped")),
            _ => (badge("calm", "never heard of")),
        }
        @if server.disabled { " " (badge("calm", "disabled")) }
    }
}

fn heard(server: &Server) -> Markup {
    html! { @match &server.heard_at { Some(at) => (moment(at)), None => span.none { "–" } } }
}

fn devices(load: &ServerLoad, most: Option<u32>) -> Markup {
    html! { (count(load.devices)) @if let Some(most) = most { " of " (count(u64::from(most))) } }
}

fn throughput(load: &ServerLoad) -> String {
    format!("{}/s", bytes(load.read_bytes_per_second.saturating_add(load.written_bytes_per_second)))
}

fn processors(load: &ServerLoad) -> Markup {
    filled(busy(load), &format!("{:.1} of {}", load.processors_busy, load.processors))
}

/// How busy its processors are, in per cent.
fn busy(load: &ServerLoad) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "`as` saturates")]
    let hundredths = (load.processors_busy * 100.0).round() as u64;
    hundredths.checked_div(u64::from(load.processors)).unwrap_or(0)
}

fn share(part: u64, of: u64) -> u64 {
    part.saturating_mul(100).checked_div(of).unwrap_or(0)
}
