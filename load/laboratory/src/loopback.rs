//! Throughput of this machine's loopback: the limit of every answer that is sent over it.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use bench::report::units;

/// Size of a write and of a read: larger ones are no faster, and do not fit into the processor's cache.
const CHUNK_BYTES: usize = 256 << 10;

/// Bytes per second over one connection with a thread at each end, counted by the receiver.
pub(super) fn bytes_per_second(duration: Duration) -> io::Result<f64> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_measurement_ends_and_counts_bytes() {
        let rate = bytes_per_second(Duration::from_millis(20)).expect("loopback is there");
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
}
