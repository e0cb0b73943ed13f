//! What is read once for everybody who asks for it within a second.
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;

/// For how long something that was read is taken for the present. Pages renew themselves a second behind what happens, so
/// that none is shown what was read before.
const FRESH: Duration = Duration::from_secs(1);

/// What was read last.
pub(crate) struct Fresh<T>(Mutex<Option<Reading<T>>>);

struct Reading<T> {
    /// What happened since may be missing in it.
    begun: Instant,
    value: Arc<T>,
}

impl<T> Default for Fresh<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T: Send + Sync + 'static> Fresh<T> {
    /// What was read a moment ago, or else what is read now. Others wait meanwhile.
    pub(crate) async fn get<E>(&self, read: impl Future<Output = Result<T, E>> + Send) -> Result<Arc<T>, E> {
        let mut known = self.0.lock().await;
        if let Some(reading) = known.as_ref()
            && reading.begun.elapsed() < FRESH
        {
            return Ok(Arc::clone(&reading.value));
        }
        let begun = Instant::now();
        // There may be much of it to be let go of.
        let old = known.take();
        drop(tokio::task::spawn_blocking(move || drop(old)));
        let value = Arc::new(read.await?);
        *known = Some(Reading { begun, value: Arc::clone(&value) });
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reading_is_for_everybody_until_a_second_has_gone() {
        let fresh = Fresh::default();
        let get = async |value: Result<&'static str, &'static str>| {
            fresh.get(async move { value }).await.map(|value| *value)
        };
        assert_eq!((get(Ok("a")).await, get(Ok("b")).await), (Ok("a"), Ok("a")));
        let grow_old = async || fresh.0.lock().await.as_mut().unwrap().begun -= FRESH;
        grow_old().await;
        assert_eq!((get(Ok("c")).await, get(Ok("d")).await), (Ok("c"), Ok("c")));
        // What failed is tried again by the next.
        grow_old().await;
        assert_eq!((get(Err("gone")).await, get(Ok("e")).await), (Err("gone"), Ok("e")));
    }
}
