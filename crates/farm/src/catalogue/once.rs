//! Requests that are made once, however often they are sent: what a request with an idempotency key was answered is kept
//! in the transaction that did what it asked for.
use super::cell::{Cell, Row};
use super::change::Change;
use super::error::CatalogueError;
use crate::model::{IdempotencyKey, Timestamp};

impl Change<'_> {
    /// What the request with this key was answered, if it was made before. `fingerprint` stands for the request's
    /// contents. Where this gives nothing, the request is carried out and [`remember`](Self::remember)ed.
    ///
    /// # Errors
    /// [`CatalogueError::KeyReused`] where the key belonged to another request, or the database's.
    pub fn answered(
        &mut self,
        key: &IdempotencyKey,
        fingerprint: &[u8; 32],
    ) -> Result<Option<String>, CatalogueError> {
        let sql = "SELECT fingerprint, answer FROM idempotency WHERE person = ? AND request_key = ?";
        let values = [self.by.user.as_str().into(), key.as_str().into()];
        let Some(mut row) = self.reader.tx.query(sql, &values)?.pop() else { return Ok(None) };
        let read = |row: &mut Row| Ok((row.bytes()?, row.text()?));
        let (known, answer) = read(&mut row).map_err(|bad| self.damaged_at("idempotency", &bad))?;
        if known == fingerprint { Ok(Some(answer)) } else { Err(CatalogueError::KeyReused) }
    }

    /// Keeps what the request with this key is answered.
    ///
    /// # Errors
    /// The database's.
    pub fn remember(
        &mut self,
        key: &IdempotencyKey,
        fingerprint: &[u8; 32],
        answer: &str,
    ) -> Result<(), CatalogueError> {
        let values = [
            self.by.user.as_str().into(),
            key.as_str().into(),
            Cell::Bytes(fingerprint.to_vec()),
            answer.into(),
            self.at.into(),
        ];
        let sql =
            "INSERT INTO idempotency (person, request_key, fingerprint, answer, at) VALUES (?, ?, ?, ?, ?)";
        self.reader.tx.execute(sql, &values)?;
        Ok(())
    }

    /// Forgets the answers from before `until`.
    ///
    /// # Errors
    /// The database's.
    pub fn forget_answers(&mut self, until: Timestamp) -> Result<u64, CatalogueError> {
        Ok(self.reader.tx.execute("DELETE FROM idempotency WHERE at < ?", &[until.into()])?)
    }
}
