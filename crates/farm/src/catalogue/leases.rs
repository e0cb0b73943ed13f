//! Leases in the catalogue: taken, renewed, given back and broken. Taking and giving back are not audited (the boot
//! timeline tells of them); breaking is.
use super::cell::{BadRow, Cell, Row};
use super::change::Change;
use super::error::CatalogueError;
use super::list::{ListQuery, Listed, Page};
use super::reader::Reader;
use crate::filter::{Field, FieldKind};
use crate::model::{
    Choice, Fence, Id, Lease, ObjectKind, Owner, Purpose, ServerId, Sharing, Subject, Timestamp,
};
use crate::rules::leases::{Conflict, TERM, Wanted, check, is_held, stands};

const COLUMNS: &str = "t.fence, t.subject_kind, t.subject, t.sharing, t.purpose, t.owner_kind, t.owner, t.server_id, \
    t.since, t.ends";

/// The fields that filters and orders of leases can name.
pub const LEASE_FIELDS: &[Field] = &[
    Field::row("fence", FieldKind::Number, "t.fence"),
    Field::row("subject-kind", FieldKind::Text, "t.subject_kind"),
    Field::row("subject", FieldKind::Number, "t.subject"),
    Field::row("sharing", FieldKind::Word(words::<Sharing>), "t.sharing"),
    Field::row("purpose", FieldKind::Word(words::<Purpose>), "t.purpose"),
    Field::row("owner-kind", FieldKind::Text, "t.owner_kind"),
    Field::row("owner", FieldKind::Number, "t.owner"),
    Field::row("server-id", FieldKind::Number, "t.server_id"),
    Field::row("since", FieldKind::Time, "t.since"),
    Field::row("ends", FieldKind::Time, "t.ends"),
];

fn words<T: Choice>() -> Vec<&'static str> {
    T::ALL.iter().map(|(_, word)| *word).collect()
}

const CHAIN: &str = "chain";
const CONTENTS: &str = "contents";
const DEVICE: &str = "device";
const TASK: &str = "task";

impl Reader<'_> {
    /// The leases on a subject, oldest first, those included that have ended and were not cleared away yet.
    ///
    /// # Errors
    /// The database's.
    pub fn leases_on(&mut self, subject: Subject) -> Result<Vec<Lease>, CatalogueError> {
        let (kind, id) = subject_cells(subject);
        self.leases("WHERE t.subject_kind = ? AND t.subject = ?", &[kind, id])
    }

    /// The leases of an owner, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub fn leases_of(&mut self, owner: Owner) -> Result<Vec<Lease>, CatalogueError> {
        let (kind, id) = owner_cells(owner);
        self.leases("WHERE t.owner_kind = ? AND t.owner = ?", &[kind, id])
    }

    /// A page of all leases.
    ///
    /// # Errors
    /// As of [`list`](Reader::list).
    pub fn list_leases(&mut self, query: &ListQuery) -> Result<Page<Lease>, CatalogueError> {
        let listed = Listed { table: "lease", joins: "", fields: LEASE_FIELDS, id: "t.fence" };
        let (rows, next, total) = self.page(&listed, COLUMNS, query)?;
        Ok(Page { items: self.read_leases(rows)?, next, total })
    }

    /// The lease, where it still gives its owner something: what whoever writes under it asks before the write counts.
    ///
    /// # Errors
    /// [`CatalogueError::LeaseLost`], or the database's.
    pub fn held_lease(&mut self, fence: Fence, now: Timestamp) -> Result<Lease, CatalogueError> {
        let found = self.leases("WHERE t.fence = ?", &[fence.get().into()])?.pop();
        found.filter(|lease| is_held(lease, now)).ok_or(CatalogueError::LeaseLost(fence))
    }

    /// Names the owners of the leases that stand against something.
    pub(super) fn name_owners(&mut self, mut conflict: Conflict) -> Result<Conflict, CatalogueError> {
        for lease in &conflict.held {
            let name = match lease.owner {
                Owner::Device(device) => self.name_of(device)?,
                Owner::Task(task) => format!("#{task}"),
            };
            conflict.names.push(name);
        }
        Ok(conflict)
    }

    fn leases(&mut self, clause: &str, values: &[Cell]) -> Result<Vec<Lease>, CatalogueError> {
        let rows =
            self.tx.query(&format!("SELECT {COLUMNS} FROM lease t {clause} ORDER BY t.fence"), values)?;
        self.read_leases(rows)
    }

    fn read_leases(&mut self, rows: Vec<Row>) -> Result<Vec<Lease>, CatalogueError> {
        let leases: Result<Vec<_>, BadRow> = rows.into_iter().map(|mut row| lease(&mut row)).collect();
        leases.map_err(|bad| self.damaged_at("lease", &bad))
    }
}

impl Change<'_> {
    /// Takes a lease, which `server` will renew. What the owner had of the subject before ends with it: whoever still
    /// works under that is fenced off.
    ///
    /// # Errors
    /// [`CatalogueError::Refused`] with all who stand against it, or the database's.
    pub fn lease(&mut self, wanted: &Wanted, server: ServerId) -> Result<Lease, CatalogueError> {
        let held = self.leases_on(wanted.subject)?;
        if let Err(conflict) = check(wanted, &held, self.at) {
            let conflict = self.name_owners(conflict)?;
            return Err(crate::rules::Refusal::from(conflict).into());
        }
        let now = self.at;
        for old in held.iter().filter(|old| old.owner == wanted.owner || !stands(old, now)) {
            self.end(old.fence)?;
        }
        self.head.last_fence = self.head.last_fence.saturating_add(1);
        let Wanted { subject, sharing, purpose, owner } = *wanted;
        let fence = Fence::new(self.head.last_fence)?;
        let lease = Lease {
            fence,
            subject,
            sharing,
            purpose,
            owner,
            server,
            since: self.at,
            until: self.at.after(TERM),
        };
        let (subject_kind, subject) = subject_cells(subject);
        let (owner_kind, owner) = owner_cells(owner);
        let values = [
            fence.get().into(),
            subject_kind,
            subject,
            sharing.word().into(),
            purpose.word().into(),
            owner_kind,
            owner,
            server.into(),
            lease.since.into(),
            lease.until.into(),
        ];
        let sql = "INSERT INTO lease (fence, subject_kind, subject, sharing, purpose, owner_kind, owner, server_id, since, \
            ends) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        self.reader.tx.execute(sql, &values)?;
        Ok(lease)
    }

    /// Renews a server's leases, all at once, until [`TERM`] from now. Gives those that it still has: the work under any
    /// other must stop. A lease that ended meanwhile, but that nobody else has taken, goes on.
    ///
    /// # Errors
    /// The database's.
    pub fn renew_leases(&mut self, server: ServerId) -> Result<Vec<Fence>, CatalogueError> {
        let until = self.at.after(TERM);
        let values = [until.into(), server.into(), until.into()];
        self.reader.tx.execute("UPDATE lease SET ends = ? WHERE server_id = ? AND ends < ?", &values)?;
        let held = self.leases("WHERE t.server_id = ?", &[server.into()])?;
        Ok(held.iter().map(|lease| lease.fence).collect())
    }

    /// Gives a lease back. One that has ended already is no error.
    ///
    /// # Errors
    /// The database's.
    pub fn end_lease(&mut self, fence: Fence) -> Result<(), CatalogueError> {
        self.end(fence)
    }

    /// The leases on a subject that must still be respected. Those that need not are taken away: a server that hung for so
    /// long and wakes up finds itself fenced off from what is decided now.
    ///
    /// # Errors
    /// The database's.
    pub fn in_use(&mut self, subject: Subject) -> Result<Vec<Lease>, CatalogueError> {
        let now = self.at;
        let (held, ended): (Vec<Lease>, Vec<Lease>) =
            self.leases_on(subject)?.into_iter().partition(|lease| stands(lease, now));
        ended.iter().try_for_each(|lease| self.end(lease.fence))?;
        Ok(held)
    }

    /// Clears away leases that have ended, whatever came of their owners. Gives them.
    ///
    /// # Errors
    /// The database's.
    pub fn clear_ended_leases(&mut self) -> Result<Vec<Lease>, CatalogueError> {
        let now = self.at;
        let mut ended = self.leases("WHERE t.ends < ?", &[now.into()])?;
        ended.retain(|lease| !stands(lease, now));
        ended.iter().try_for_each(|lease| self.end(lease.fence))?;
        Ok(ended)
    }

    /// Takes a lease away from its owner, for a reason that is written down. Gives it: its owner is who is hit.
    ///
    /// # Errors
    /// [`CatalogueError::LeaseLost`] where it has ended, or the database's.
    pub fn break_lease(&mut self, fence: Fence, reason: &str) -> Result<Lease, CatalogueError> {
        let found = self.leases("WHERE t.fence = ?", &[fence.get().into()])?.pop();
        let lease = found.ok_or(CatalogueError::LeaseLost(fence))?;
        let (subject, owner) = self.names_of(&lease)?;
        let before =
            serde_json::json!({ "lease": lease, "subject": subject, "owner": owner, "reason": reason });
        self.write_down(
            "break",
            ObjectKind::Lease,
            fence.get(),
            &format!("{owner} on {subject}"),
            Some(before),
            None,
        )?;
        self.end(fence)?;
        Ok(lease)
    }

    fn names_of(&mut self, lease: &Lease) -> Result<(String, String), CatalogueError> {
        let subject = match lease.subject {
            Subject::Chain(vdisk) => self.name_of(vdisk)?,
            Subject::Contents(version) => self.name_of(version)?,
        };
        let owner = match lease.owner {
            Owner::Device(device) => self.name_of(device)?,
            Owner::Task(task) => format!("task #{task}"),
        };
        Ok((subject, owner))
    }

    fn end(&mut self, fence: Fence) -> Result<(), CatalogueError> {
        self.reader.tx.execute("DELETE FROM lease WHERE fence = ?", &[fence.get().into()])?;
        Ok(())
    }
}

fn subject_cells(subject: Subject) -> (Cell, Cell) {
    match subject {
        Subject::Chain(vdisk) => (CHAIN.into(), vdisk.into()),
        Subject::Contents(version) => (CONTENTS.into(), version.into()),
    }
}

fn owner_cells(owner: Owner) -> (Cell, Cell) {
    match owner {
        Owner::Device(device) => (DEVICE.into(), device.into()),
        Owner::Task(task) => (TASK.into(), task.into()),
    }
}

fn lease(row: &mut Row) -> Result<Lease, BadRow> {
    let fence = Fence::new(row.integer()?)?;
    let subject = match (row.text()?.as_str(), row.integer()?) {
        (CHAIN, id) => Subject::Chain(Id::new(id)?),
        (CONTENTS, id) => Subject::Contents(Id::new(id)?),
        (other, _) => return Err(BadRow { why: format!("a lease on {other:?}") }),
    };
    let (sharing, purpose) = (row.choice()?, row.choice()?);
    let owner = match (row.text()?.as_str(), row.integer()?) {
        (DEVICE, id) => Owner::Device(Id::new(id)?),
        (TASK, id) => Owner::Task(Id::new(id)?),
        (other, _) => return Err(BadRow { why: format!("a lease of {other:?}") }),
    };
    Ok(Lease {
        fence,
        subject,
        sharing,
        purpose,
        owner,
        server: row.id()?,
        since: row.time()?,
        until: row.time()?,
    })
}
