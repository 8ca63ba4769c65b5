//! Measures unary calls per second of our channel: `call-bench http://host:port connections in-flight seconds`.
//!
//! A closed loop for work on the engine; comparisons belong to the bench.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quire_rpc::client::{Channel, Settings};
use rpc_testing::proto::Message;
use rpc_testing::proto::echo_client::EchoClient;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, connections, in_flight, seconds] = &arguments[..] else {
        return Err("usage: call-bench http://host:port connections in-flight seconds".into());
    };
    let settings = Settings { connections: connections.parse()?, ..Settings::default() };
    let total = settings.connections * in_flight.parse::<usize>()?;
    let client = EchoClient::new(Channel::builder(address)?.settings(settings).connect().await?);
    let (done, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let began = Instant::now();
    let callers: Vec<_> = (0..total)
        .map(|_| {
            let (client, done, stop) = (client.clone(), Arc::clone(&done), Arc::clone(&stop));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    client.call(Message { payload: b"ping".to_vec(), ..Message::default() }).await?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok::<_, quire_rpc::Status>(())
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(seconds.parse()?)).await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await??;
    }
    let calls = u32::try_from(done.load(Ordering::Relaxed))?;
    eprintln!("{:.0} calls/s", f64::from(calls) / began.elapsed().as_secs_f64());
    Ok(())
}
