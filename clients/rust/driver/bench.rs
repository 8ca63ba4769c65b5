//! Cost of a call: CPU time of this process while it calls, with the library or with the generated stub alone.

use std::{
    error::Error,
    time::{Duration, Instant},
};

use quire_client::{
    Client, Key,
    wire::bookstore::{ItemNumberRequest, book_store_client::BookStoreClient},
};
use quire_rpc::{Request, client::Channel};
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;
use tokio::task::JoinSet;

const BOOK: i32 = 53477;
/// The library's default.
const TIMEOUT: Duration = Duration::from_secs(5);

type Failure = Box<dyn Error + Send + Sync>;

#[derive(Clone)]
enum Caller {
    Library(Client),
    Stub(BookStoreClient),
}

impl Caller {
    async fn lookup(&self) -> Result<(), Failure> {
        match self {
            Self::Library(client) => drop(client.lookup(BOOK).await?),
            Self::Stub(stub) => drop(stub.lookup(request(None)).await?),
        }
        Ok(())
    }

    async fn buy(&self) -> Result<(), Failure> {
        match self {
            Self::Library(client) => drop(client.buy(BOOK).await?),
            Self::Stub(stub) => drop(stub.buy(request(Some(Key::random()))).await?),
        }
        Ok(())
    }
}

fn request(key: Option<Key>) -> Request<ItemNumberRequest> {
    let idempotency_key = key.map(|key| key.as_str().to_owned().into()).unwrap_or_default();
    let mut request = Request::new(ItemNumberRequest { id: BOOK, idempotency_key, ..ItemNumberRequest::default() });
    request.set_timeout(TIMEOUT);
    request
}

/// CPU time of this process, user and system.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::from_secs(time.tv_sec.unsigned_abs()).as_secs_f64()
        + Duration::from_nanos(time.tv_nsec.unsigned_abs()).as_secs_f64()
}

#[expect(clippy::print_stdout, reason = "the figures are its answer")]
pub(crate) async fn run(mut words: impl Iterator<Item = String>) -> Result<(), Failure> {
    let (mut address, mut is_purchase, mut in_flight, mut seconds, mut is_bare) =
        (None, false, 1, Duration::from_secs(5), false);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} wants a value"));
        match word.as_str() {
            "--bare" => is_bare = true,
            "--call" => is_purchase = value()? == "buy",
            "--in-flight" => in_flight = value()?.parse()?,
            "--seconds" => seconds = Duration::from_secs_f64(value()?.parse()?),
            _ => address = Some(word),
        }
    }
    let address = address.ok_or("name the address")?;
    let caller = if is_bare {
        Caller::Stub(BookStoreClient::new(Channel::builder(&format!("http://{address}"))?.connect().await?))
    } else {
        Caller::Library(Client::connect(&address)?)
    };
    caller.lookup().await?;
    let (start, cpu_before) = (Instant::now(), cpu_seconds());
    let mut loops = JoinSet::new();
    for _ in 0..in_flight {
        let caller = caller.clone();
        loops.spawn(async move {
            let mut calls = 0_u64;
            while start.elapsed() < seconds {
                if is_purchase {
                    caller.buy().await?;
                } else {
                    caller.lookup().await?;
                }
                calls += 1;
            }
            Ok::<u64, Failure>(calls)
        });
    }
    let mut calls = 0;
    while let Some(done) = loops.join_next().await {
        calls += done??;
    }
    let (cpu_seconds, seconds) = (cpu_seconds() - cpu_before, start.elapsed().as_secs_f64());
    println!("{}", json!({ "calls": calls, "cpu_seconds": cpu_seconds, "seconds": seconds }));
    Ok(())
}
