//! Reads files again at each SIGHUP, each by itself and apart from the threads that serve, so that one that hangs (a
//! pipe, a network file system) delays nothing else.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::{
    signal::unix::Signal,
    sync::watch,
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

/// Reads files again and logs the result.
type Reading = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Files that are read again together.
pub(crate) struct Files {
    what: &'static str,
    /// Time after which a warning is logged that they are not read yet.
    late_after: Duration,
    read: Reading,
}

impl Files {
    /// Small files; `read` may block.
    pub(crate) fn small(what: &'static str, read: impl Fn() + Clone + Send + 'static) -> Self {
        let reading = move || {
            let read = read.clone();
            async move {
                if let Err(error) = spawn_blocking(read).await {
                    tracing::error!(%error, "reading files again ended in a fault of the server");
                }
            }
        };
        Self { late_after: Duration::from_secs(5), ..Self::large(what, reading) }
    }

    /// Files that may take minutes.
    pub(crate) fn large<F>(what: &'static str, read: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { what, late_after: Duration::from_mins(5), read: Box::new(move || Box::pin(read())) }
    }
}

/// Reads the files at each signal. Those that are still being read then are read once more.
pub(crate) async fn at_each(mut signal: Signal, files: Vec<Files>) {
    let requests = watch::Sender::new(());
    let mut readers = JoinSet::new();
    for files in files {
        readers.spawn(read_on_request(files, requests.subscribe()));
    }
    while signal.recv().await.is_some() {
        requests.send_replace(());
    }
}

async fn read_on_request(files: Files, mut requests: watch::Receiver<()>) {
    let Files { what, late_after, read } = files;
    while requests.changed().await.is_ok() {
        let mut reading = read();
        if timeout(late_after, &mut reading).await.is_err() {
            tracing::warn!(
                seconds = late_after.as_secs(),
                "{what} are not read yet; the last ones hold until they are"
            );
            reading.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[tokio::test]
    async fn a_file_that_cannot_be_read_holds_up_no_other() {
        let (requests, (read, reads)) = (watch::Sender::new(()), channel());
        let (_hung, hanging) = channel::<()>();
        let hanging = std::sync::Arc::new(std::sync::Mutex::new(hanging));
        let hangs = Files::small("these", move || assert!(hanging.lock().expect("one reader").recv().is_err()));
        let other = Files::small("those", move || read.send(()).expect("the test waits"));
        let _readers = [hangs, other].map(|files| tokio::spawn(read_on_request(files, requests.subscribe())));
        for _ in 0..3 {
            tokio::task::yield_now().await;
            requests.send_replace(());
            while reads.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        }
    }
}
