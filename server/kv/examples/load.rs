//! Closed-loop load on a server's key-value service: `load http://host:port experiment SECONDS` is the published
//! workload (100 calls in flight, random kinds, exponential sizes); `load http://host:port read CONNECTIONS IN_FLIGHT
//! SECONDS` reads values of 100 bytes under keys of 16; `load http://host:port fill COUNT` creates that many. For work
//! on the service itself; use the bench for comparisons.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use kv::grpc::wire::{
    CreateRequest, DeleteRequest, RetrieveRequest, UpdateRequest, key_value_service_client::KeyValueServiceClient,
};
use quire_rpc::{
    Code, Status,
    client::{Channel, Settings},
};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256StarStar;

const KEYS: u64 = 100_000;

type Error = Box<dyn std::error::Error + Send + Sync>;

struct Load {
    client: KeyValueServiceClient,
    done: AtomicU64,
    stop: AtomicBool,
}

fn key(number: u64) -> bytes::Bytes {
    format!("{number:016}").into_bytes().into()
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a size is small and not below 0"
)]
fn exponential(random: &mut Xoshiro256StarStar, mean: f64) -> usize {
    let uniform = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    (-(1.0 - uniform).ln() * mean) as usize
}

/// One caller of the experiment; it creates keys and uses them until it deletes them.
async fn experiment(load: Arc<Load>, seed: u64) -> Result<(), Status> {
    let mut random = Xoshiro256StarStar::seed_from_u64(seed);
    let noise = bytes::Bytes::from(vec![b'x'; 4 << 20]);
    let mut keys: Vec<bytes::Bytes> = Vec::new();
    while !load.stop.load(Relaxed) {
        let value = noise.slice(..exponential(&mut random, 65_536.0).min((4 << 20) - 8192));
        let place = usize::try_from(random.next_u64() % keys.len().max(1) as u64).unwrap_or(0);
        // A call for a missing key takes as long as one for a present key, so the kinds stay even.
        let key = keys.get(place).cloned().unwrap_or_default();
        let answer = match random.next_u64() % 4 {
            0 => {
                let mut key = vec![0; 16 + exponential(&mut random, 64.0).min(4096)];
                random.fill_bytes(&mut key);
                keys.push(key.clone().into());
                let request = CreateRequest { key: key.into(), value, ..CreateRequest::default() };
                load.client.create(request).await.map(drop)
            }
            1 => load.client.retrieve(RetrieveRequest { key, want_details: false }).await.map(drop),
            2 => {
                let request = UpdateRequest { key, value, ..UpdateRequest::default() };
                load.client.update(request).await.map(drop)
            }
            _ => {
                if !keys.is_empty() {
                    keys.swap_remove(place);
                }
                load.client.delete(DeleteRequest { key, ..DeleteRequest::default() }).await.map(drop)
            }
        };
        match answer {
            Err(status) if status.code() != Code::NotFound => return Err(status),
            _ => {}
        }
        load.done.fetch_add(1, Relaxed);
    }
    Ok(())
}

async fn read(load: Arc<Load>, seed: u64) -> Result<(), Status> {
    let mut random = Xoshiro256StarStar::seed_from_u64(seed);
    while !load.stop.load(Relaxed) {
        let reply =
            load.client.retrieve(RetrieveRequest { key: key(random.next_u64() % KEYS), want_details: false }).await?;
        if reply.get_ref().value.len() != 100 {
            return Err(Status::internal("another value than was put"));
        }
        load.done.fetch_add(1, Relaxed);
    }
    Ok(())
}

/// Creates entries, several at a time.
async fn fill(client: &KeyValueServiceClient, keys: u64) -> Result<(), Status> {
    const AT_ONCE: u64 = 64;
    let callers: Vec<_> =
        (0..AT_ONCE).map(|first| tokio::spawn(fill_part(client.clone(), first, AT_ONCE, keys))).collect();
    for caller in callers {
        caller.await.map_err(|error| Status::internal(error.to_string()))??;
    }
    Ok(())
}

async fn fill_part(client: KeyValueServiceClient, first: u64, step: u64, keys: u64) -> Result<(), Status> {
    for number in (first..keys).step_by(usize::try_from(step).unwrap_or(1)) {
        let request = CreateRequest { key: key(number), value: vec![b'v'; 100].into(), ..CreateRequest::default() };
        match client.create(request).await {
            Err(status) if status.code() != Code::AlreadyExists => return Err(status),
            _ => {}
        }
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (address, connections, in_flight, seconds) = match words[..] {
        [address, "fill", keys] => {
            let client = KeyValueServiceClient::new(Channel::builder(address)?.connect().await?);
            return Ok(fill(&client, keys.parse()?).await?);
        }
        [address, "experiment", seconds] => (address, 4, 25, seconds.parse()?),
        [address, "read", connections, in_flight, seconds] => {
            (address, connections.parse()?, in_flight.parse()?, seconds.parse()?)
        }
        _ => {
            return Err(
                "usage: load ADDRESS experiment SECONDS | read CONNECTIONS IN_FLIGHT SECONDS | fill COUNT".into()
            );
        }
    };
    let settings = Settings { connections, message_bytes_max: 8 << 20, ..Settings::default() };
    let client = KeyValueServiceClient::new(Channel::builder(address)?.settings(settings).connect().await?);
    if words[1] == "read" {
        fill(&client, KEYS).await?;
    }
    let load = Arc::new(Load { client, done: AtomicU64::new(0), stop: AtomicBool::new(false) });
    let callers: Vec<_> = (0..connections as u64 * in_flight)
        .map(|seed| {
            let load = Arc::clone(&load);
            if words[1] == "read" { tokio::spawn(read(load, seed)) } else { tokio::spawn(experiment(load, seed)) }
        })
        .collect();
    // The measurement begins when every caller is running.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (before, began) = (load.done.load(Relaxed), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (after, took) = (load.done.load(Relaxed), began.elapsed());
    load.stop.store(true, Relaxed);
    for caller in callers {
        caller.await??;
    }
    eprintln!("{:.0} calls/s", f64::from(u32::try_from(after - before)?) / took.as_secs_f64());
    Ok(())
}
