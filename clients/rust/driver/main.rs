//! Driver through which the conformance suite calls the library: requests and answers in JSON, one per line, 64
//! concurrently.

mod bench;
mod calls;

use std::{env, error::Error, sync::Arc, time::Duration};

use quire_client::{Client, Operator};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, stdin, stdout},
    sync::{Mutex, Semaphore},
};

const AT_ONCE_MAX: usize = 64;

/// Output for answers.
type Output = Arc<Mutex<tokio::io::Stdout>>;

#[derive(Clone)]
struct Driver {
    client: Client,
    token: Option<String>,
    output: Output,
}

impl Driver {
    /// The client for a request, with its deadline and page size.
    fn client(&self, request: &Value) -> Client {
        let mut client = self.client.clone();
        if let Some(timeout_ms) = request["timeout_ms"].as_u64() {
            client = client.with_timeout(Duration::from_millis(timeout_ms));
        }
        let [parent, state] = ["traceparent", "tracestate"].map(|name| request[name].as_str().unwrap_or_default());
        client = client.with_trace(parent, state);
        match request["page_size"].as_u64() {
            None | Some(0) => client,
            Some(items) => client.with_page_size(u32::try_from(items).unwrap_or(u32::MAX)),
        }
    }

    fn operator(&self, request: &Value) -> Result<Operator, quire_client::Error> {
        let none = || quire_client::Error::Argument("the operator's calls need a token".to_owned());
        self.client(request).operator(self.token.as_deref().ok_or_else(none)?)
    }

    async fn say(&self, mut answer: Value, request: &Value) {
        answer["n"] = request["n"].clone();
        let mut output = self.output.lock().await;
        // If no one reads the answers, errors cannot be reported either.
        let _ = output.write_all(format!("{answer}\n").as_bytes()).await;
        let _ = output.flush().await;
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut words = env::args().skip(1);
    let mut addresses = words.next().ok_or("name the address")?;
    if addresses == "bench" {
        return bench::run(words).await;
    }
    let (mut certificate, mut key, mut token) = (None, None, None);
    let (mut ca, mut retries) = (None, None);
    while let Some(word) = words.next() {
        let (flag, value) = match word.split_once('=') {
            Some((flag, value)) => (flag.to_owned(), value.to_owned()),
            None => (word.clone(), words.next().ok_or_else(|| format!("{word} wants a value"))?),
        };
        match flag.as_str() {
            "--token" => token = Some(value),
            "--ca" => ca = Some(value),
            "--certificate" => certificate = Some(value),
            "--key-file" => key = Some(value),
            "--retries" => retries = Some(value.parse()?),
            _ => return Err(format!("there is no flag '{flag}'").into()),
        }
    }
    let mut builder = Client::builder(&std::mem::take(&mut addresses));
    if let Some(ca) = ca {
        builder = builder.ca(ca);
    }
    if let Some((certificate, key)) = certificate.zip(key) {
        builder = builder.identity(certificate, key);
    }
    if let Some(token) = &token {
        builder = builder.token(token);
    }
    if let Some(retries) = retries {
        builder = builder.retries(retries);
    }
    let driver = Driver { client: builder.connect()?, token, output: Arc::new(Mutex::new(stdout())) };
    let places = Arc::new(Semaphore::new(AT_ONCE_MAX));
    let mut lines = BufReader::new(stdin()).lines();
    while let Some(line) = lines.next_line().await? {
        let request: Value = serde_json::from_str(&line)?;
        let place = Arc::clone(&places).acquire_owned().await?;
        let driver = driver.clone();
        tokio::spawn(async move {
            let answer = calls::answer(&driver, &request).await;
            driver.say(answer, &request).await;
            drop(place);
        });
    }
    // All permits are free once all answers are written.
    let _ = places.acquire_many(u32::try_from(AT_ONCE_MAX)?).await?;
    Ok(())
}
