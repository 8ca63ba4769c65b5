//! Keeps cores from resting, for experiments in which a rest would be measured: a virtual machine's core that has
//! nothing to do is given away, and takes a tenth of a millisecond and more to come back.
//!
//! Must not take anything from what is measured: its threads give way to everybody.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::server::on_core;

/// The least claim to a core that can be made: some hundredth of an ordinary thread's.
const NICE: i32 = 19;

/// Cores kept awake until it is dropped.
#[derive(Debug)]
pub(crate) struct Awake {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// Keeps these cores awake.
    pub(crate) fn keep(cores: impl IntoIterator<Item = usize>) -> std::io::Result<Self> {
        let mut awake = Self { over: Arc::default(), threads: Vec::new() };
        for core in cores {
            let over = Arc::clone(&awake.over);
            let spin = move || {
                // Without the lower claim it would take half of the core.
                if rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE).is_err() {
                    return;
                }
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            };
            let started = on_core(Some(core), || thread::Builder::new().name(format!("awake-{core}")).spawn(spin))?;
            awake.threads.push(started);
        }
        Ok(awake)
    }
}

impl Drop for Awake {
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
        let awake = Awake::keep(bench::cores::cores().into_iter().take(1)).expect("a thread");
        let over = Arc::clone(&awake.over);
        drop(awake);
        assert!(over.load(Ordering::Relaxed) && Arc::strong_count(&over) == 1, "its threads are gone");
    }
}
