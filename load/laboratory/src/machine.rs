//! The machine: its loopback's rate, cores kept busy, and random numbers of the published distributions.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bench::cores::on_core;
use bench::report::units;
use rand_core::RngCore as _;
use rand_xoshiro::Xoshiro256PlusPlus;

/// Size of a write and of a read: larger ones are no faster, and do not fit into the processor's cache.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes per second over one connection with a thread at each end, counted by the receiver.
pub(super) fn loopback_bytes_per_second(duration: Duration) -> io::Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let sender = scope.spawn(move || send(TcpStream::connect(address)?));
        let (mut stream, _) = listener.accept()?;
        let mut buffer = vec![0; CHUNK_BYTES];
        // The first bytes meet cold buffers and small windows.
        let (mut start, mut warm) = (Instant::now(), false);
        let mut bytes = 0u64;
        let seconds = loop {
            let elapsed = start.elapsed();
            if !warm && elapsed >= duration / 5 {
                (start, warm, bytes) = (Instant::now(), true, 0);
            } else if warm && elapsed >= duration {
                break elapsed.as_secs_f64();
            }
            bytes += stream.read(&mut buffer)? as u64;
        };
        // The sender ends when its connection is closed.
        drop(stream);
        match sender.join() {
            Ok(sent) => sent?,
            Err(panic) => std::panic::resume_unwind(panic),
        }
        Ok(units::float(bytes) / seconds)
    })
}

fn send(mut stream: TcpStream) -> io::Result<()> {
    let chunk = vec![0x5a; CHUNK_BYTES];
    loop {
        match stream.write(&chunk) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

/// Lowest priority: about 1% of an ordinary thread's share of a core.
const NICE: i32 = 19;

/// Cores kept busy until this is dropped, for experiments that would otherwise measure the wake-up time of idle cores:
/// the host takes an idle core from a virtual machine, and needs 0.1 ms or more to return it. The threads have the lowest
/// priority, so as not to slow down what is measured.
#[derive(Debug)]
pub(crate) struct BusyCores {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl BusyCores {
    /// Keeps these cores busy.
    pub(crate) fn start(cores: impl IntoIterator<Item = usize>) -> io::Result<Self> {
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

/// A number below `count`; the remainder biases some by one part in 2^64 / `count`.
pub(crate) fn below(random: &mut Xoshiro256PlusPlus, count: usize) -> usize {
    usize::try_from(random.next_u64() % count.max(1) as u64).unwrap_or(0)
}

/// An integer of an exponential distribution with this mean.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size is small and not below 0"
)]
pub(crate) fn exponential(random: &mut Xoshiro256PlusPlus, mean: f64) -> usize {
    let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (-(1.0 - uniform).ln() * mean) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_measurement_ends_and_counts_bytes() {
        let rate = loopback_bytes_per_second(Duration::from_millis(20)).expect("loopback is there");
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
}

#[cfg(test)]
mod busy_cores_tests {
    use super::*;

    #[test]
    fn it_ends_when_it_is_dropped() {
        let busy = BusyCores::start(bench::cores::cores().into_iter().take(1)).expect("a thread");
        let over = Arc::clone(&busy.over);
        drop(busy);
        assert!(over.load(Ordering::Relaxed) && Arc::strong_count(&over) == 1, "its threads are gone");
    }
}
