//! Cost of a session without the scheduler: a closed loop over sessions on one thread, two clock readings and a
//! histogram entry per call. `grpc-session HOST:PORT SESSIONS IN-FLIGHT SECONDS`, against `echo-server`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bench::measurement::histogram;
use bench::template::Turn;
use bench::tls::TlsArgs;
use bench::workload::grpc::{GrpcWorkload, Requests, Shape, Target};
use bench::workload::{Session as _, Workload as _};
use tokio::task::LocalSet;

/// An `Echo` message with the payload `ping`.
const PING: &[u8] = b"\x0a\x04ping";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, sessions, in_flight, seconds] = &arguments[..] else {
        anyhow::bail!("usage: grpc-session HOST:PORT SESSIONS IN-FLIGHT SECONDS");
    };
    let (sessions, in_flight): (usize, u32) = (sessions.parse()?, in_flight.parse()?);
    let target = Target::parse(address, &TlsArgs::default())?;
    let workload = GrpcWorkload::new(target, "/testing.Echo/Call", Shape::UNARY, Requests::constant(PING));
    let stop = Rc::new(Cell::new(false));
    let times = Rc::new(RefCell::new(histogram()));
    let errors = Rc::new(Cell::new(0u64));
    let local = LocalSet::new();
    let began = Instant::now();
    local
        .run_until(async {
            let mut slots = Vec::new();
            for number in 0..sessions {
                let session = Rc::new(workload.open(number).await?);
                for client in 0..in_flight {
                    let (session, stop, times) = (Rc::clone(&session), Rc::clone(&stop), Rc::clone(&times));
                    let errors = Rc::clone(&errors);
                    slots.push(tokio::task::spawn_local(async move {
                        let mut turn = Turn { number: 0, client, worker: 0 };
                        while !stop.get() {
                            let answer = session.request(turn).await;
                            turn.number += 1;
                            errors.set(errors.get() + u64::from(answer.ending.is_error));
                            let nanos = answer.done_at.duration_since(answer.sent_at).as_nanos();
                            times.borrow_mut().saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
                        }
                    }));
                }
            }
            tokio::time::sleep(Duration::from_secs(seconds.parse()?)).await;
            stop.set(true);
            for slot in slots {
                slot.await?;
            }
            anyhow::Ok(())
        })
        .await?;
    let times = times.borrow();
    let rate = Duration::from_secs(times.len()).div_f64(began.elapsed().as_secs_f64()).as_secs_f64();
    let p50 = Duration::from_nanos(times.value_at_quantile(0.5));
    eprintln!("{rate:.0} calls/s, p50 {p50:?}, {} errors", errors.get());
    Ok(())
}
