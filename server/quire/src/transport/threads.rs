//! A single-threaded runtime for each thread that serves connections: what belongs to a connection never moves
//! from one core to another, and nothing in it needs a lock. Must not know what runs on them.

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
            // An error means that the sender is gone, which is the end as well.
            let serve = move || drop(runtime.block_on(stopped.wait_for(|stop| *stop)));
            Ok((handle, thread::Builder::new().name(format!("serve-{number}")).spawn(serve)?))
        };
        let running = (0..count).map(start).collect::<io::Result<_>>()?;
        Ok(Self { running, stop })
    }

    pub(super) fn handles(&self) -> Vec<Handle> {
        self.running.iter().map(|(handle, _)| handle.clone()).collect()
    }

    /// Drops what still runs on them.
    pub(super) fn stop(self) {
        self.stop.send_replace(true);
        for (_, thread) in self.running {
            // A thread that panicked has said so on stderr.
            drop(thread.join());
        }
    }
}
