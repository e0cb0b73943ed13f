//! How far tasks are, and their logs: written often, and so neither audited nor new revisions.
use super::cell::{BadRow, Cell};
use super::change::Change;
use super::error::CatalogueError;
use super::reader::{Reader, not_found};
use crate::model::{MAX_TASK_LOG_LINES, Progress, Task, TaskId, TaskLine, TaskState};

/// The longest line of a task's log that is kept, in characters.
const MAX_LINE_CHARS: usize = 1000;

impl Reader<'_> {
    /// How far a task is.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], or the database's.
    pub fn progress(&mut self, task: TaskId) -> Result<Progress, CatalogueError> {
        let sql = "SELECT units_done, units_total, progress_at FROM task WHERE id = ?";
        let mut row = self.tx.query(sql, &[task.into()])?.pop().ok_or_else(|| not_found::<Task>(task))?;
        let read = (|| Ok(Progress { done: row.small()?, total: row.small()?, at: row.time()? }))();
        read.map_err(|bad: BadRow| self.damaged_at("task", &bad))
    }

    /// The lines of a task's log from line `from` on, the first being 0.
    ///
    /// # Errors
    /// The database's.
    pub fn task_log(&mut self, task: TaskId, from: u32) -> Result<Vec<TaskLine>, CatalogueError> {
        let sql = "SELECT at, text FROM task_line WHERE task_id = ? AND place >= ? ORDER BY place";
        let rows = self.tx.query(sql, &[task.into(), Cell::Integer(from.into())])?;
        let read = |mut row: super::cell::Row| Ok(TaskLine { at: row.time()?, text: row.text()? });
        let lines: Result<Vec<_>, BadRow> = rows.into_iter().map(read).collect();
        lines.map_err(|bad| self.damaged_at("task_line", &bad))
    }
}

impl Change<'_> {
    /// Says how far a task is; gives its state, by which whoever runs it learns that it is to stop.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], or the database's.
    pub fn report_progress(
        &mut self,
        task: TaskId,
        done: u64,
        total: u64,
    ) -> Result<TaskState, CatalogueError> {
        let units = |count: u64| Cell::Integer(i64::try_from(count).unwrap_or(i64::MAX));
        let values = [units(done), units(total), self.at.into(), task.into()];
        let sql = "UPDATE task SET units_done = ?, units_total = ?, progress_at = ? WHERE id = ?";
        self.reader.tx.execute(sql, &values)?;
        Ok(self.get(task)?.state)
    }

    /// Adds a line to a task's log. Of a full log, the last line is replaced, so that the latest is always there.
    ///
    /// # Errors
    /// The database's.
    pub fn log_task(&mut self, task: TaskId, text: &str) -> Result<(), CatalogueError> {
        let sql = "SELECT coalesce(max(place), -1) FROM task_line WHERE task_id = ?";
        let place =
            self.number(sql, &[task.into()])?.saturating_add(1).min(MAX_TASK_LOG_LINES.saturating_sub(1));
        let line: String = text.chars().take(MAX_LINE_CHARS).collect();
        let key = [task.into(), Cell::Integer(place)];
        self.reader.tx.execute("DELETE FROM task_line WHERE task_id = ? AND place = ?", &key)?;
        let sql = "INSERT INTO task_line (task_id, place, at, text) VALUES (?, ?, ?, ?)";
        self.reader.tx.execute(sql, &[task.into(), Cell::Integer(place), self.at.into(), line.into()])?;
        Ok(())
    }

    /// Takes away a task that has ended, with its log.
    ///
    /// # Errors
    /// [`CatalogueError::NotFound`], or the database's.
    pub fn forget_task(&mut self, task: TaskId) -> Result<(), CatalogueError> {
        let revision = self.get(task)?.revision;
        self.reader.tx.execute("DELETE FROM task_line WHERE task_id = ?", &[task.into()])?;
        self.delete(task, revision)
    }
}
