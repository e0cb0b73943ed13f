//! What a recorded trace shows, as pictures and tables: which parts of the disk were read, in which order and how often, how
//! large requests were, and how sequential.
use maud::{Markup, html};
use trace::picture::{Cut, Picture, Row, picture};
use trace::summary::{Group, Summary, summary};
use trace::{Kind, Stage, Trace};

use crate::fields::exact;
use crate::markup::{bytes, count, milliseconds};

/// How the map is cut. Its cells are near what an eye tells apart on a page.
const CUT: Cut = Cut { columns: 120, rows: 56, places: 240 };
/// How many shades of it there are; each stands for four times the bytes of the one before.
const SHADES: u32 = 5;
/// How many hot ranges and pauses are listed.
const LISTED: usize = 8;
/// The sides of a cell and the room of the bars beside the map, in the units of the drawing.
const CELL: usize = 6;
const BARS: usize = 90;

/// A trace, looked at.
pub(crate) struct Profile {
    title: String,
    picture: Picture,
    summary: Summary,
}

impl Profile {
    /// Of a recorded trace. It goes through all requests: work for a thread that may wait.
    pub(crate) fn of(trace: &Trace) -> Self {
        Self {
            title: trace.header.title.clone(),
            picture: picture(trace, CUT),
            summary: summary(trace, LISTED),
        }
    }

    /// As a part of a page.
    pub(crate) fn markup(&self) -> Markup {
        html! {
            @if !self.title.is_empty() { p.small { (crate::markup::visible(&self.title)) } }
            @if self.picture.rows.is_empty() { p { "Nothing was read." } } @else { (self.map()) }
            (self.groups())
            div.columns { (self.sizes()) (self.hot()) }
        }
    }

    fn map(&self) -> Markup {
        let found = &self.picture;
        let (width, height) = (CUT.columns.saturating_mul(CELL), found.rows.len().saturating_mul(CELL));
        let again = times(found.bytes, found.distinct_bytes);
        html! { figure.profile {
            figcaption { h2 { "Where and when it read" }
                p { (bytes(found.bytes)) " were read, of " (bytes(found.distinct_bytes)) " of the disk: each part " b { (format!("{again:.1}")) } " times on average. What nobody read is left out of the map." }
            }
            div.table { svg.map viewBox=(format!("0 0 {} {height}", width.saturating_add(BARS))) role="img" aria-label=(self.in_words()) {
                rect.ground width=(width) height=(height) {}
                @for shade in 1..=SHADES { path class=(format!("heat{shade}")) d=(self.cells(shade)) {} }
                @for (number, row) in found.rows.iter().enumerate() {
                    rect.again x=(width.saturating_add(6)) y=(number.saturating_mul(CELL)) height=(CELL.saturating_sub(1)) width=(self.bar(row)) {
                        title { "from " (bytes(row.offset)) ": each byte " (format!("{:.1}", times(row.bytes(), row.distinct_bytes))) " times" }
                    }
                }
            } }
            p.axis.small { span { "start" } span { "time →" } span { (seconds(found.duration_us)) } span { "how often →" } }
            p.small { "Top: " (bytes(found.rows.first().map_or(0, |row| row.offset))) ", bottom: " (bytes(found.rows.last().map_or(0, |row| row.offset))) " from the start of the disk. The stronger the colour of a cell, the more was read there then; the bars tell how often each part was read." }
            (self.rows())
            h3 { "On the whole disk of " (bytes(found.disk_bytes)) }
            svg.places viewBox=(format!("0 0 {} 16", CUT.places)) preserveAspectRatio="none" aria-hidden="true" {
                @let most = found.places.iter().copied().max().unwrap_or(0);
                @for (at, read) in found.places.iter().enumerate() { @if let Some(shade) = shade_of(*read, most) {
                    rect class=(format!("heat{shade}")) x=(at) width="1" height="16" {}
                } }
            }
        } }
    }

    /// The map in figures.
    fn rows(&self) -> Markup {
        html! { details { summary { "The map as a table" } div.table { table {
            thead { tr { th { "From" } th { "First read after" } th { "Bytes" } th { "How often" } } }
            tbody { @for row in &self.picture.rows { tr {
                td.number { (exact(row.offset)) } td.number { (seconds(self.first_read_us(row))) } td.number { (bytes(row.bytes())) }
                td.number { (format!("{:.1}", times(row.bytes(), row.distinct_bytes))) " times" }
            } } }
        } } } }
    }

    /// When the column begins in which a row is read first.
    fn first_read_us(&self, row: &Row) -> u64 {
        let column = row.columns.iter().position(|read| *read > 0).unwrap_or(0) as u64;
        self.picture.duration_us.saturating_mul(column).checked_div(CUT.columns as u64).unwrap_or(0)
    }

    /// The cells of one shade, as one path: a square each.
    fn cells(&self, wanted: u32) -> String {
        let most = self.picture.rows.iter().flat_map(|row| &row.columns).copied().max().unwrap_or(0);
        let mut path = String::new();
        for (y, row) in self.picture.rows.iter().enumerate() {
            for (x, read) in row.columns.iter().enumerate() {
                if shade_of(*read, most) == Some(wanted) {
                    path.push_str(&format!(
                        "M{} {}h{CELL}v{CELL}h-{CELL}z",
                        x.saturating_mul(CELL),
                        y.saturating_mul(CELL)
                    ));
                }
            }
        }
        path
    }

    /// How long the bar of a row is.
    fn bar(&self, row: &Row) -> String {
        let of = |row: &Row| times(row.bytes(), row.distinct_bytes);
        let most = self.picture.rows.iter().map(of).fold(1.0, f64::max);
        #[allow(clippy::cast_precision_loss, reason = "less than a hundred")]
        let room = BARS.saturating_sub(8) as f64;
        format!("{:.1}", of(row) / most * room)
    }

    fn in_words(&self) -> String {
        let hot = self.summary.hot.first();
        let hot = hot.map(|hot| format!(", most of it at {}", bytes(hot.offset))).unwrap_or_default();
        format!(
            "{} read in {} over {} of the disk{hot}",
            bytes(self.picture.bytes),
            seconds(self.picture.duration_us),
            bytes(self.picture.distinct_bytes)
        )
    }

    fn groups(&self) -> Markup {
        html! { section.panel { h2 { "Requests" } div.table { table {
            thead { tr { th { "Stage" } th { "Kind" } th { "Requests" } th { "Bytes" } th { "Sequential" } th { "At once" } th { "Half within" } th { "95 % within" } } }
            tbody { @for group in &self.summary.groups { tr {
                td { (stage(group.stage)) } th scope="row" { (group.kind.as_str()) }
                td.number { (count(group.count)) @if group.failed > 0 { " " (crate::markup::badge("bad", &format!("{} failed", group.failed))) } }
                td.number { (bytes(group.bytes)) }
                td { (share(group.sequential, group.count)) " in " (count(group.runs)) " runs" }
                td.number { (format!("{:.1}", group.depth_average)) ", at most " (group.depth_max) }
                td.number { (latency(group.latency_us.p50)) } td.number { (latency(group.latency_us.p95)) }
            } } }
        } } } }
    }

    fn sizes(&self) -> Markup {
        let reads = self.summary.groups.iter().filter(|group| group.kind == Kind::Read);
        html! { section.panel { h2 { "How large reads were" } @for group in reads {
            h3 { (stage(group.stage)) }
            table.sizes { tbody { @for (up_to, number) in &octaves(group) { tr {
                th scope="row" { "up to " (bytes(*up_to)) } td.number { (count(*number)) }
                td.bars { meter min="0" max=(group.count) value=(number) aria-hidden="true" {} }
            } } } }
        } } }
    }

    fn hot(&self) -> Markup {
        html! { section.panel { h2 { "Read most" }
            table { thead { tr { th { "From" } th { "Reads" } th { "Bytes" } } } tbody { @for hot in &self.summary.hot { tr {
                td.number { (exact(hot.offset)) } td.number { (count(hot.reads)) } td.number { (bytes(hot.bytes)) }
            } } } }
            @if !self.summary.pauses.is_empty() {
                h3 { "Longest pauses" }
                ul { @for pause in &self.summary.pauses { li.small { (seconds(pause.length_us)) " after " (seconds(pause.at_us)) ", then the " (stage(pause.before)) } } }
            }
        } }
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::First => "first stage",
        Stage::Second => "second stage",
    }
}

fn seconds(us: u64) -> String {
    milliseconds(std::time::Duration::from_micros(us).as_secs_f64() * 1000.0)
}

fn latency(us: u64) -> String {
    seconds(us)
}

#[allow(clippy::cast_precision_loss, reason = "shown with one digit behind the point")]
fn times(all: u64, once: u64) -> f64 {
    if once == 0 { 0.0 } else { all as f64 / once as f64 }
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.0} %", times(part, whole) * 100.0)
}

/// `None`: nothing. The darkest for the most, and one lighter for each quarter of it.
fn shade_of(read: u64, most: u64) -> Option<u32> {
    if read == 0 {
        return None;
    }
    let mut shade = SHADES;
    let mut bound = most.checked_div(4).unwrap_or(0);
    while shade > 1 && read <= bound {
        shade = shade.saturating_sub(1);
        bound = bound.checked_div(4).unwrap_or(0);
    }
    Some(shade)
}

/// How many requests of each size, sizes being rounded up to powers of two.
fn octaves(group: &Group) -> Vec<(u64, u64)> {
    let mut octaves: Vec<(u64, u64)> = Vec::new();
    for (size, number) in &group.sizes {
        let up_to = size.checked_next_power_of_two().unwrap_or(u64::MAX);
        match octaves.last_mut() {
            Some((last, sum)) if *last == up_to => *sum = sum.saturating_add(*number),
            _ => octaves.push((up_to, *number)),
        }
    }
    octaves
}

#[cfg(test)]
mod tests {
    use trace::{Header, Request};

    use super::*;

    fn read(at_us: u64, offset: u64, length: u64) -> Request {
        Request { at_us, kind: Kind::Read, offset, length, stage: Stage::First, latency_us: 500, ok: true }
    }

    #[test]
    fn profile_tells_how_often_and_how_sequential() {
        let again = (0..4).map(|turn| read(turn * 1000, 0, 65_536));
        let on = (0..4).map(|place| read(5000 + place, (1 << 30) + place * 4096, 4096));
        let header = Header { title: "lab-01 <b>".to_owned(), disk_bytes: 2 << 30, started_unix_us: 0 };
        let text = Profile::of(&Trace { header, requests: again.chain(on).collect() }).markup().into_string();
        for shown in [
            "lab-01 &lt;b&gt;",
            "On the whole disk of 2.0 GiB",
            "38 %",
            "up to 64.0 KiB",
            "1.0 GiB",
            "each part <b>3.4</b> times",
        ] {
            assert!(text.contains(shown), "{shown:?} is missing in {text}");
        }
        assert!(text.contains("class=\"heat5\""));
    }

    #[test]
    fn nothing_read_says_so() {
        let text = Profile::of(&Trace::default()).markup().into_string();
        assert!(text.contains("Nothing was read."));
    }

    #[test]
    fn shades_are_quarters_of_the_most() {
        let shades: Vec<_> = [0, 1, 4, 5, 256, 257, 1024].map(|read| shade_of(read, 1024)).into();
        assert_eq!(shades, [None, Some(1), Some(1), Some(2), Some(4), Some(5), Some(5)]);
    }
}
