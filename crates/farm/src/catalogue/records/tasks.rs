//! Tasks in their table. How far they are stands in further columns, which [`progress`](super::super::tasks) alone
//! touches.
use super::super::cell::{BadRow, Cell, Row};
use super::super::record::{Record, Table};
use super::vdisks::words;
use crate::filter::{Field, FieldKind};
use crate::model::{Choice, ObjectKind, Task, TaskState};

impl Record for Task {
    const TABLE: &'static Table = &Table {
        kind: ObjectKind::Task,
        name: "task",
        columns: &[
            "kind",
            "vdisk_id",
            "parameters",
            "actor",
            "server_id",
            "state",
            "made_at",
            "started_at",
            "ended_at",
            "result",
        ],
        unique: &[],
        // What a task was about may be gone while the task is still listed.
        references: &[],
        children: &[],
        label: "t.kind",
        joins: "LEFT JOIN vdisk ON vdisk.id = t.vdisk_id LEFT JOIN server ON server.id = t.server_id",
        fields: &[
            Field::row("id", FieldKind::Number, "t.id"),
            Field::row("kind", FieldKind::Text, "t.kind"),
            Field::row("vdisk", FieldKind::Folded, "coalesce(vdisk.name_key, '')"),
            Field::row("actor", FieldKind::Folded, "t.actor"),
            Field::row("server", FieldKind::Folded, "coalesce(server.name, '')"),
            Field::optional("server-id", FieldKind::Number, "t.server_id"),
            Field::row("state", FieldKind::Word(words::<TaskState>), "t.state"),
            Field::row("made", FieldKind::Time, "t.made_at"),
            Field::optional("started", FieldKind::Time, "t.started_at"),
            Field::optional("ended", FieldKind::Time, "t.ended_at"),
        ],
    };

    fn cells(&self) -> Vec<Cell> {
        vec![
            self.kind.as_str().into(),
            self.vdisk.into(),
            self.parameters.as_str().into(),
            self.actor.as_str().into(),
            self.server.into(),
            self.state.word().into(),
            self.made_at.into(),
            self.started_at.into(),
            self.ended_at.into(),
            self.result.clone().into(),
        ]
    }

    fn from_rows(row: &mut Row, _: &mut [Vec<Row>]) -> Result<Self, BadRow> {
        Ok(Self {
            kind: row.parsed()?,
            vdisk: row.optional_id()?,
            parameters: row.text()?,
            actor: row.parsed()?,
            server: row.optional_id()?,
            state: row.choice()?,
            made_at: row.time()?,
            started_at: row.optional_time()?,
            ended_at: row.optional_time()?,
            result: row.optional_text()?,
        })
    }

    fn label(&self) -> Option<String> {
        Some(self.kind.as_str().to_owned())
    }
}
