//! A single-threaded runtime for each thread that serves connections: a connection never moves between cores and needs
//! no lock.

use std::{
    io,
    thread::{self, JoinHandle},
};

use tokio::{
    runtime::{Builder, Handle},
    sync::watch,
};

/// The threads.
pub(super) struct Threads {
    running: Vec<(Handle, JoinHandle<()>)>,
    stop: watch::Sender<bool>,
}

impl Threads {
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let stop = watch::Sender::new(false);
        let start = |number| {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let handle = runtime.handle().clone();
            let mut stopped = stop.subscribe();
            // An error means that the sender was dropped, which also ends the thread.
            let serve = move || drop(runtime.block_on(stopped.wait_for(|stop| *stop)));
            Ok((handle, thread::Builder::new().name(format!("serve-{number}")).spawn(serve)?))
        };
        let running = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { running, stop })
    }

    pub(super) fn handles(&self) -> Vec<Handle> {
        self.running.iter().map(|(handle, _)| handle.clone()).collect()
    }

    /// Drops their remaining tasks.
    pub(super) fn stop(self) {
        self.stop.send_replace(true);
        for (_, thread) in self.running {
            // A panic was already reported on stderr.
            drop(thread.join());
        }
    }
}
