//! What is read once for everybody who asks for it within a second.
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// For how long something that was read is taken for the present. Pages renew themselves a second behind what happens, so
/// that none is shown what was read before.
const FRESH: Duration = Duration::from_secs(1);

/// Something that was read.
pub(crate) trait Read {
    /// When the oldest part of it was begun to be read: what happened since may be missing in it.
    fn begun(&self) -> Instant;
}

/// What was read last.
pub(crate) struct Fresh<T>(Mutex<Option<Arc<T>>>);

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Read + Send + Sync + 'static> Fresh<T> {
    /// What was read a moment ago, or else what is read now. Others wait meanwhile.
    pub(crate) async fn get<E>(&self, read: impl Future<Output = Result<T, E>> + Send) -> Result<Arc<T>, E> {
        let mut known = self.0.lock().await;
        if let Some(value) = known.as_ref()
            && value.begun().elapsed() < FRESH
        {
            return Ok(Arc::clone(value));
        }
        // There may be much of it to be let go of.
        let old = known.take();
        drop(tokio::task::spawn_blocking(move || drop(old)));
        let value = Arc::new(read.await?);
        *known = Some(Arc::clone(&value));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Letter(char, Instant);

    impl Read for Letter {
        fn begun(&self) -> Instant {
            self.1
        }
    }

    async fn get(fresh: &Fresh<Letter>, letter: char, begun: Option<Instant>) -> Result<char, &'static str> {
        let read = async { begun.map(|begun| Letter(letter, begun)).ok_or("gone") };
        fresh.get(read).await.map(|letter| letter.0)
    }

    #[tokio::test]
    async fn reading_is_for_everybody_until_a_second_has_gone() {
        let now = Some(Instant::now());
        let before = Instant::now().checked_sub(FRESH);
        let fresh = Fresh::default();
        assert_eq!((get(&fresh, 'a', now).await, get(&fresh, 'b', now).await), (Ok('a'), Ok('a')));
        // Of parts that were read before, it is as old as they are.
        let fresh = Fresh::default();
        assert_eq!((get(&fresh, 'c', before).await, get(&fresh, 'd', before).await), (Ok('c'), Ok('d')));
        // What failed is tried again by the next.
        assert_eq!((get(&fresh, 'e', None).await, get(&fresh, 'f', now).await), (Err("gone"), Ok('f')));
    }
}
