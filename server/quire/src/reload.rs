//! Reads files again at each SIGHUP and each operator's request. Each set of files has a task of its own, apart from the
//! threads that serve, so that a read that hangs (a pipe, a network file system) delays nothing else.

use std::{future::Future, net::SocketAddr, pin::Pin, time::Duration};

use tokio::{
    signal::unix::Signal,
    sync::{mpsc, watch},
    task::{JoinSet, spawn_blocking},
    time::timeout,
};

use crate::manager::Manager;

/// Reads files again and logs the result.
type Reading = Box<dyn Fn() -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

/// Files that are read again together.
pub(crate) struct Files {
    what: &'static str,
    /// Time after which a warning is logged that they are not read yet.
    late_after: Duration,
    /// True if an operator's request reads them too; false for files that the request's handler has read itself.
    when_asked: bool,
    read: Reading,
}

/// Numbers of the newest request, and of the newest that was a signal.
#[derive(Clone, Copy)]
struct Requests {
    newest: u64,
    signal: u64,
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

    /// The same files, read at signals only.
    pub(crate) fn at_signals(self) -> Self {
        Self { when_asked: false, ..self }
    }

    /// Files that may take minutes.
    pub(crate) fn large<F>(what: &'static str, read: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self { what, late_after: Duration::from_mins(5), when_asked: true, read: Box::new(move || Box::pin(read())) }
    }
}

/// Reads the files at each signal and each operator's request. Requests during a read cause one more read after it.
/// The manager of a server at `address` gets the begin and the end.
pub(crate) async fn at_each(
    mut signal: Signal,
    mut asked: mpsc::Receiver<()>,
    files: Vec<Files>,
    manager: Manager,
    address: SocketAddr,
) {
    let requests = watch::Sender::new(Requests { newest: 0, signal: 0 });
    let (mut readers, mut answers) = (JoinSet::new(), Vec::new());
    for files in files {
        let (answer, answered) = watch::channel(0);
        readers.spawn(read_on_request(files, requests.subscribe(), answer));
        answers.push(answered);
    }
    let (mut request, mut reported) = (0, 0);
    loop {
        let is_signal = tokio::select! {
            Some(()) = signal.recv() => true,
            Some(()) = asked.recv() => false,
            () = all(&mut answers, request), if reported < request => {
                reported = request;
                manager.ready(address).await;
                continue;
            }
            else => return,
        };
        request += 1;
        manager.reloading().await;
        requests.send_modify(|requests| {
            requests.newest = request;
            if is_signal {
                requests.signal = request;
            }
        });
    }
}

/// Waits until the request is answered for all files.
async fn all(answers: &mut [watch::Receiver<u64>], request: u64) {
    for answer in answers {
        // An error means that the reader was dropped.
        drop(answer.wait_for(|answered| *answered >= request).await);
    }
}

/// Reads the files at each request, and answers with its number when they are read, or late.
async fn read_on_request(files: Files, mut requests: watch::Receiver<Requests>, answer: watch::Sender<u64>) {
    let Files { what, late_after, when_asked, read } = files;
    let mut answered = 0;
    while requests.changed().await.is_ok() {
        let Requests { newest: request, signal } = *requests.borrow_and_update();
        if !when_asked && signal <= answered {
            answer.send_replace(request);
            continue;
        }
        answered = request;
        let mut reading = read();
        if timeout(late_after, &mut reading).await.is_err() {
            tracing::warn!(
                seconds = late_after.as_secs(),
                "{what} are not read yet; the last ones hold until they are"
            );
            answer.send_replace(request);
            reading.await;
        }
        answer.send_replace(request);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, mpsc::channel};

    use rustix::process::{Signal as Number, getpid, kill_process};
    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[tokio::test]
    async fn a_file_that_cannot_be_read_holds_up_no_other() {
        let (requests, (read, reads)) = (watch::Sender::new(Requests { newest: 0, signal: 0 }), channel());
        let (_hung, hanging) = channel::<()>();
        let hanging = std::sync::Arc::new(Mutex::new(hanging));
        let hangs = Files::small("these", move || assert!(hanging.lock().expect("one reader").recv().is_err()));
        let other = Files::small("those", move || read.send(()).expect("the test waits"));
        let _readers = [hangs, other]
            .map(|files| tokio::spawn(read_on_request(files, requests.subscribe(), watch::Sender::new(0))));
        for request in 1..4 {
            tokio::task::yield_now().await;
            requests.send_replace(Requests { newest: request, signal: request });
            while reads.try_recv().is_err() {
                tokio::task::yield_now().await;
            }
        }
    }

    #[tokio::test]
    async fn the_manager_learns_the_end_when_all_files_are_read() {
        let (manager, messages) = Manager::pair();
        let (release, released) = channel::<()>();
        let released = std::sync::Arc::new(Mutex::new(released));
        let slow = Files::small("these", move || released.lock().expect("one reader").recv().expect("the test's word"));
        let files = vec![slow, Files::small("those", || {})];
        let usr1 = signal(SignalKind::user_defined1()).expect("a handler");
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (ask, asked) = mpsc::channel(1);
        let _reloading = tokio::spawn(at_each(usr1, asked, files, manager, address));
        let message = async || {
            let mut text = [0; 256];
            let bytes = messages.recv(&mut text).await.expect("a message");
            String::from_utf8_lossy(&text[..bytes]).into_owned()
        };
        kill_process(getpid(), Number::USR1).expect("a signal");
        assert!(message().await.starts_with("RELOADING=1\nMONOTONIC_USEC="));
        // The second request comes while the first is being read: the next message is not yet the end.
        ask.try_send(()).expect("it is asked");
        assert!(message().await.starts_with("RELOADING=1\n"));
        release.send(()).expect("the reader waits");
        release.send(()).expect("the reader waits");
        assert_eq!(message().await, "READY=1\nSTATUS=serving at 127.0.0.1:1");
    }
}
