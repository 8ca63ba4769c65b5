//! The service manager that started the server, such as systemd: it gets readiness, reloads, the watchdog's signs of
//! life and a status by `sd_notify`'s protocol, and may pass listening sockets on. Without one nothing happens.

use std::{
    env,
    ffi::OsStr,
    io,
    net::SocketAddr,
    os::{
        linux::net::SocketAddrExt as _,
        unix::{
            ffi::OsStrExt as _,
            net::{SocketAddr as UnixAddr, UnixDatagram as StdDatagram},
        },
    },
    process,
    sync::Arc,
    time::Duration,
};

#[cfg(feature = "activation")]
use anyhow::Context as _;
use hosting::Sockets;
use rustix::time::{ClockId, clock_gettime};
use tokio::{
    net::UnixDatagram,
    runtime::Handle,
    time::{interval, timeout},
};

/// Time for a datagram, if the manager's queue is full.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The manager; clones share the socket.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manager {
    socket: Option<Arc<UnixDatagram>>,
    /// Time within which the manager wants a sign of life.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager that the environment names. Needs a surrounding runtime.
    pub(crate) fn of_environment() -> Self {
        let Some(path) = env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty()) else { return Self::default() };
        let socket = connect(&path)
            .inspect_err(|error| tracing::warn!(%error, ?path, "the service manager cannot be reached: NOTIFY_SOCKET"));
        let number = |name: &str| env::var(name).ok()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|id| id == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|time| is_ours && *time > 0).map(Duration::from_micros);
        Self { socket: socket.ok().map(Arc::new), watchdog }
    }

    /// Reports what the server does while it starts.
    pub(crate) async fn status(&self, status: &str) {
        self.send(&format!("STATUS={status}")).await;
    }

    /// Reports that every port is open, and that files were read again.
    pub(crate) async fn ready(&self, address: SocketAddr) {
        self.send(&format!("READY=1\nSTATUS=serving at {address}")).await;
    }

    /// Reports that files are being read again.
    pub(crate) async fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reading files again")).await;
    }

    /// Reports a stop.
    pub(crate) async fn stopping(&self, reason: &str) {
        self.send(&format!("STOPPING=1\nSTATUS=stopping: {reason}")).await;
    }

    /// Gives a sign of life twice in the watchdog's time, if each of these threads has run a task since the last one.
    /// Ends with the threads, or at once without a watchdog.
    pub(crate) async fn watch(self, threads: Vec<Handle>) {
        let Some(watchdog) = self.watchdog else { return };
        let mut ticks = interval((watchdog / 2).max(Duration::from_millis(1)));
        loop {
            ticks.tick().await;
            let tasks: Vec<_> = threads.iter().map(|thread| thread.spawn(async {})).collect();
            for task in tasks {
                if task.await.is_err() {
                    return;
                }
            }
            self.send("WATCHDOG=1").await;
        }
    }

    async fn send(&self, text: &str) {
        let Some(socket) = &self.socket else { return };
        match timeout(TIMEOUT, socket.send(text.as_bytes())).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::warn!(%error, text, "the service manager did not take a message"),
            Err(_) => tracing::warn!(text, "the service manager did not take a message in time"),
        }
    }
}

/// Connects to a path, or to an abstract address after `@`.
fn connect(path: &OsStr) -> io::Result<UnixDatagram> {
    let address = match path.as_bytes().split_first() {
        Some((b'@', name)) => UnixAddr::from_abstract_name(name)?,
        _ => UnixAddr::from_pathname(path)?,
    };
    let socket = StdDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// Sockets that the manager passed on. Must run before the first thread starts.
#[cfg(feature = "activation")]
pub(crate) fn passed_sockets() -> anyhow::Result<Sockets> {
    let mut passed = listenfd::ListenFd::from_env();
    let sockets = (0..passed.len()).filter_map(|number| passed.take_tcp_listener(number).transpose());
    let sockets =
        sockets.collect::<io::Result<_>>().context("the service manager passed a socket that is no TCP port")?;
    Ok(Sockets::passed(sockets))
}

/// Fails if the manager passed sockets on.
#[cfg(not(feature = "activation"))]
pub(crate) fn passed_sockets() -> anyhow::Result<Sockets> {
    let id = env::var("LISTEN_PID").ok().and_then(|id| id.parse().ok());
    anyhow::ensure!(
        id != Some(process::id()),
        "the service manager passed sockets, which this build does not take: `cargo build --release -p server`, whose \
         feature `activation` does"
    );
    Ok(Sockets::default())
}

#[cfg(test)]
impl Manager {
    /// A manager whose messages arrive at the other end.
    pub(crate) fn pair() -> (Self, UnixDatagram) {
        let (near, far) = UnixDatagram::pair().expect("sockets");
        (Self { socket: Some(Arc::new(near)), watchdog: Some(Duration::from_secs(2)) }, far)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use tokio::runtime::Builder;

    use super::*;

    #[test]
    fn a_thread_that_is_stuck_gives_no_sign_of_life() {
        let here = Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
        let (manager, far) = here.block_on(async { Manager::pair() });
        let threads = || Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (first, second) = (threads(), threads());
        let handles = vec![first.handle().clone(), second.handle().clone()];
        let _watch = here.spawn(manager.watch(handles));
        let mut text = [0; 64];
        let mut sign = || here.block_on(async { far.recv(&mut text).await.map(|bytes| text[..bytes].to_owned()) });
        for _ in 0..3 {
            assert_eq!(sign().expect("a datagram"), b"WATCHDOG=1");
        }
        let (release, released) = channel::<()>();
        let (stick, stuck) = channel();
        second.spawn(async move {
            stick.send(()).expect("the test waits");
            assert!(released.recv().is_err(), "nothing is sent");
        });
        stuck.recv().expect("the thread is stuck");
        // A sign that was due before may still come; then there is none, however long it takes.
        let mut late = 0;
        while here.block_on(async { timeout(Duration::from_mins(1), far.recv(&mut [0; 64])).await }).is_ok() {
            late += 1;
            assert!(late < 3, "signs of life of a thread that is stuck");
        }
        drop(release);
        assert_eq!(here.block_on(async { far.recv(&mut [0; 64]).await }).expect("a datagram"), 10);
    }
}
