//! What a merge would do: the answer to its dry run.
use std::fmt::Write as _;

use diskimage::LayerIndex;
use diskimage::ops::{Action, Blocks, Plan, Step, Total, Totals};
use serde::Serialize;

use super::target::subformat;
use crate::columns::{align, bytes, columns, name};

/// How many steps are shown to people.
const SHOWN_STEPS: usize = 100;

/// A dry run, as programs read it.
#[derive(Debug, Serialize)]
pub(super) struct PlanAnswer {
    file: String,
    virtual_size_bytes: u64,
    block_bytes: u64,
    clone_bytes: u64,
    copy_bytes: u64,
    zero_bytes: u64,
    blocks_whole: u64,
    blocks_partial: u64,
    blocks_zero: u64,
    blocks_absent: u64,
    /// The files that are merged, the base first: what `layer` of a step counts.
    sources: Vec<String>,
    steps: Vec<StepAnswer>,
    steps_left_out: u64,
    #[serde(skip)]
    kind: String,
    #[serde(skip)]
    names: Vec<String>,
    #[serde(skip)]
    totals: Totals,
}

/// One step.
#[derive(Debug, Serialize)]
struct StepAnswer {
    action: &'static str,
    first_block: u64,
    blocks: u64,
    layer: Option<u16>,
    bytes: u64,
}

impl PlanAnswer {
    /// Of a plan for an image whose files have these paths, and these names for people, the base first.
    pub(super) fn of(plan: &Plan, sources: Vec<String>, names: Vec<String>) -> Self {
        let Blocks { whole, partly, zero, absent } = plan.blocks;
        Self {
            file: plan.target.display().to_string(),
            virtual_size_bytes: plan.virtual_size.get(),
            block_bytes: plan.payload_block.get(),
            clone_bytes: plan.totals.clone.bytes,
            copy_bytes: plan.totals.copy.bytes,
            zero_bytes: plan.totals.zero.bytes,
            blocks_whole: whole,
            blocks_partial: partly,
            blocks_zero: zero,
            blocks_absent: absent,
            sources,
            steps: plan.steps.iter().map(StepAnswer::of).collect(),
            steps_left_out: plan.steps_left_out,
            kind: format!("{}, {}", plan.format.title(), subformat(plan.subtype)),
            names,
            totals: plan.totals,
        }
    }

    /// As people read it: what it makes of what, what that costs, then the steps.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        let names: Vec<_> = self.names.iter().map(|file| name(file)).collect();
        let blocks = self.blocks();
        for (what, value) in [
            ("would make", name(&self.file).into_owned()),
            ("format", self.kind.clone()),
            ("virtual size", bytes(self.virtual_size_bytes)),
            ("out of", names.join(", ")),
            ("blocks", blocks),
            ("to move", format!("{}, and {} shared", bytes(self.copy_bytes), bytes(self.clone_bytes))),
        ] {
            let _ = writeln!(text, "{what:<13} {value}");
        }
        for table in [self.totals(), self.steps()] {
            if !table.is_empty() {
                text.push('\n');
                text.push_str(&table);
            }
        }
        text
    }

    fn blocks(&self) -> String {
        let counts = [
            (self.blocks_whole, "whole"),
            (self.blocks_partial, "in part"),
            (self.blocks_zero, "zero"),
            (self.blocks_absent, "left to the parent"),
        ];
        let counts = counts.into_iter().filter(|&(count, _)| count > 0);
        let counts: Vec<_> = counts.map(|(count, what)| format!("{count} {what}")).collect();
        let counts = if counts.is_empty() { "none".to_owned() } else { counts.join(", ") };
        format!("{counts}, of {} each", bytes(self.block_bytes))
    }

    fn totals(&self) -> String {
        let Totals { clone, copy, zero, set_state } = self.totals;
        let mut rows = vec![columns(["DO", "STEPS", "BYTES", "WHICH MEANS"])];
        for (total, action, meaning) in [
            (clone, Action::Clone, "extents are shared with the file that has them: no time, no room"),
            (copy, Action::Copy, "bytes are copied; zeros among them take no room"),
            (zero, Action::Zero, "nothing is stored"),
            (
                set_state,
                Action::SetState,
                "the sectors held of a block are marked, the others left to the parent",
            ),
        ] {
            let Total { steps, bytes: sum } = total;
            if steps > 0 {
                rows.push(columns([word(action), &steps.to_string(), &bytes(sum), meaning]));
            }
        }
        if rows.len() > 1 { align(&rows, &[1, 2]) } else { String::new() }
    }

    fn steps(&self) -> String {
        if self.steps.is_empty() {
            return String::new();
        }
        let mut rows = vec![columns(["STEP", "BLOCKS", "BYTES", "FROM"])];
        for step in self.steps.iter().take(SHOWN_STEPS) {
            let last = step.first_block.saturating_add(step.blocks).saturating_sub(1);
            let blocks = match step.blocks {
                1 => last.to_string(),
                _ => format!("{}-{last}", step.first_block),
            };
            let file = step.layer.and_then(|layer| self.names.get(usize::from(layer)));
            let file = file.map_or_else(String::new, |file| name(file).into_owned());
            rows.push(columns([step.action, &blocks, &bytes(step.bytes), &file]));
        }
        let hidden = self.steps.len().saturating_sub(SHOWN_STEPS);
        let hidden = self.steps_left_out.saturating_add(u64::try_from(hidden).unwrap_or(u64::MAX));
        let more = match hidden {
            0 => String::new(),
            hidden if self.steps_left_out == 0 => format!("and {hidden} more (--output json lists all)\n"),
            hidden => format!("and {hidden} more (--output json lists the first {})\n", self.steps.len()),
        };
        align(&rows, &[1, 2]) + &more
    }
}

impl StepAnswer {
    fn of(step: &Step) -> Self {
        Self {
            action: word(step.action),
            first_block: step.block,
            blocks: step.blocks,
            layer: step.layer.map(LayerIndex::get),
            bytes: step.bytes,
        }
    }
}

/// What a step is called, for people and programs.
fn word(action: Action) -> &'static str {
    match action {
        Action::Clone => "clone",
        Action::Copy => "copy",
        Action::Zero => "zero",
        Action::SetState => "set-state",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::ByteLength;
    use diskimage::{Format, Subtype};

    #[test]
    fn plan_names_files_and_gives_sums_before_steps() {
        let step = |action, block, blocks, layer, bytes| Step { action, block, blocks, layer, bytes };
        let total = |steps, bytes| Total { steps, bytes };
        let child = Some(LayerIndex::new(1));
        let plan = Plan {
            target: "new.vhdx".into(),
            format: Format::Vhdx,
            subtype: Subtype::Dynamic,
            virtual_size: ByteLength::new(20 << 30),
            payload_block: ByteLength::new(2 << 20),
            steps: vec![
                step(Action::Clone, 0, 5120, Some(LayerIndex::BASE), 10 << 30),
                step(Action::Copy, 5120, 1, child, 3 << 20),
                step(Action::Zero, 5121, 5119, None, 9 << 30),
            ],
            steps_left_out: 7,
            totals: Totals {
                clone: total(1, 10 << 30),
                copy: total(8, 3 << 20),
                zero: total(1, 9 << 30),
                ..Totals::default()
            },
            blocks: Blocks { whole: 5121, partly: 0, zero: 5119, absent: 0 },
        };
        let names = || ["win.vhdx".to_owned(), "v/win\n.avhdx".to_owned()].to_vec();
        let text = PlanAnswer::of(&plan, names(), names()).text();
        let expected = "\
would make    new.vhdx
format        VHDX, dynamic
virtual size  20.0 GiB
out of        win.vhdx, \"v/win\\n.avhdx\"
blocks        5121 whole, 5119 zero, of 2.0 MiB each
to move       3.0 MiB, and 10.0 GiB shared

DO     STEPS     BYTES  WHICH MEANS
clone      1  10.0 GiB  extents are shared with the file that has them: no time, no room
copy       8   3.0 MiB  bytes are copied; zeros among them take no room
zero       1   9.0 GiB  nothing is stored

STEP       BLOCKS     BYTES  FROM
clone      0-5119  10.0 GiB  win.vhdx
copy         5120   3.0 MiB  \"v/win\\n.avhdx\"
zero   5121-10239   9.0 GiB
and 7 more (--output json lists the first 3)
";
        assert_eq!(text, expected, "{text}");
    }
}
