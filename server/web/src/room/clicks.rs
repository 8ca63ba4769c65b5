//! Clicks on the form for a backup: it makes one. Of two clicks the later one gets the file, because a browser drops the
//! request of the earlier one.

use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use hosting::Error;
use operate::{BackupPieces, Making};

/// The form that was sent last.
#[derive(Debug, Default)]
pub(crate) struct Backups(Mutex<Arc<Form>>);

#[derive(Debug, Default)]
struct Form {
    key: String,
    /// Clicks so far, and those whose requests are open.
    clicks: AtomicUsize,
    open: AtomicUsize,
    /// Held while the backup is made.
    backup: tokio::sync::Mutex<Backup>,
}

#[derive(Default)]
enum Backup {
    #[default]
    Unmade,
    Made(BackupPieces),
    Taken,
}

impl fmt::Debug for Backup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unmade => "Unmade",
            Self::Made(_) => "Made",
            Self::Taken => "Taken",
        })
    }
}

/// A click on a form.
#[derive(Debug)]
pub(crate) struct Click {
    form: Arc<Form>,
    number: usize,
}

impl Backups {
    pub(crate) fn click(&self, key: &str) -> Click {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last.key != key {
            *last = Arc::new(Form { key: key.to_owned(), ..Form::default() });
        }
        last.open.fetch_add(1, Ordering::Relaxed);
        Click { number: last.clicks.fetch_add(1, Ordering::Relaxed) + 1, form: Arc::clone(&last) }
    }
}

impl Click {
    /// The form's backup, which is made if it is not there; `None` if another click gets it.
    pub(crate) async fn pieces(self, making: impl FnOnce() -> Making) -> Result<Option<BackupPieces>, Error> {
        let mut backup = self.form.backup.lock().await;
        if matches!(*backup, Backup::Unmade) {
            *backup = Backup::Made(making().await?);
        }
        if self.number < self.form.clicks.load(Ordering::Relaxed) {
            return Ok(None);
        }
        Ok(match mem::replace(&mut *backup, Backup::Taken) {
            Backup::Made(pieces) => Some(pieces),
            Backup::Unmade | Backup::Taken => None,
        })
    }
}

/// A backup that no request waits for is given up, so that the next one can be made.
impl Drop for Click {
    fn drop(&mut self) {
        if self.form.open.fetch_sub(1, Ordering::Relaxed) == 1
            && let Ok(mut backup) = self.form.backup.try_lock()
            && matches!(*backup, Backup::Made(_))
        {
            *backup = Backup::Unmade;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        pin::{Pin, pin},
        task::{Context, Waker},
    };

    use futures_util::stream;
    use operate::{BackupPieces, Making};

    use super::Backups;

    fn made() -> Making {
        Box::pin(async { Ok(Box::pin(stream::empty()) as BackupPieces) })
    }

    fn never() -> Making {
        panic!("it is made twice")
    }

    fn is_waiting<F: Future>(future: Pin<&mut F>) -> bool {
        future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
    }

    #[tokio::test]
    async fn the_later_of_two_clicks_gets_the_one_backup() {
        let (backups, (done, wait)) = (Backups::default(), tokio::sync::oneshot::channel::<()>());
        let slow = || -> Making {
            Box::pin(async {
                wait.await.unwrap();
                made().await
            })
        };
        let mut first = pin!(backups.click("a").pieces(slow));
        assert!(is_waiting(first.as_mut()));
        let mut second = pin!(backups.click("a").pieces(never));
        assert!(is_waiting(second.as_mut()));
        done.send(()).unwrap();
        assert!(first.await.unwrap().is_none());
        assert!(second.await.unwrap().is_some());
        assert!(backups.click("a").pieces(never).await.unwrap().is_none(), "a late click");
        assert!(backups.click("b").pieces(made).await.unwrap().is_some(), "another form");
    }

    #[tokio::test]
    async fn a_backup_that_failed_or_that_no_one_waits_for_is_made_again() {
        let backups = Backups::default();
        let failing = || -> Making { Box::pin(async { Err("the disk is full".into()) }) };
        assert!(backups.click("a").pieces(failing).await.is_err());
        let gone = backups.click("a");
        let early = backups.click("a");
        let late = backups.click("a");
        drop(gone);
        assert!(early.pieces(made).await.unwrap().is_none());
        drop(late);
        assert!(backups.click("a").pieces(made).await.unwrap().is_some());
    }
}
