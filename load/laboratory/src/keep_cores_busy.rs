//! Keeps cores busy, for experiments that would otherwise measure the wake-up time of idle cores: the host takes an
//! idle core from a virtual machine, and needs 0.1 ms or more to return it.
//!
//! Its threads have the lowest priority, so as not to slow down what is measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use bench::cores::on_core;

/// Lowest priority: about 1% of an ordinary thread's share of a core.
const NICE: i32 = 19;

/// Cores kept busy until this is dropped.
#[derive(Debug)]
pub(crate) struct BusyCores {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyCores {
    /// Keeps these cores busy.
    pub(crate) fn start(cores: impl IntoIterator<Item = usize>) -> std::io::Result<Self> {
        let mut busy = Self { over: Arc::default(), threads: Vec::new() };
        for core in cores {
            let over = Arc::clone(&busy.over);
            let spin = move || {
                // At ordinary priority it would take half of the core.
                if rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).is_err() {
                    return;
                }
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let started = on_core(Some(core), || thread::Builder::new().name(format!("busy-{core}")).spawn(spin))?;
            busy.threads.push(started);
        }
        Ok(busy)
    }
}

impl Drop for BusyCores {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            drop(thread.join());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_dropped() {
        let busy = BusyCores::start(bench::cores::cores().into_iter().take(1)).expect("a thread");
        let over = Arc::clone(&busy.over);
        drop(busy);
        assert!(over.load(Ordering::Relaxed) && Arc::strong_count(&over) == 1, "its threads are gone");
    }
}
