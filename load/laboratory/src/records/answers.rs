//! Fetches each answer once from every server, compares them, and decodes them like a client.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use bench::stats::interval;
use bench::workload::grpc::REPLY_BYTES_MAX;
use bench::workload::http::get;
use bench::workload::socket::Dialer;
use bytes::Bytes;
use kit::Server;
use prost::Message as _;
use quire_rpc::Request;
use quire_rpc::client::{Channel, Path, Settings};
use records::grpc::wire::{ReaderResponse, ReaderResponseString};
use serde::Deserialize;

use super::loads::{Call, message, resource};

/// Number of decodings of each answer; the median counts.
const DECODINGS: usize = 15;

/// The complete answer to each call, in the order of [`Call::ALL`].
pub(super) struct Answers {
    pub(super) bodies: [Bytes; 4],
    pub(super) rows: u64,
}

#[derive(Deserialize)]
struct SearchAnswer {
    records: Vec<HashMap<String, String>>,
    num_record: u64,
}

/// Fetches each answer from every server; all must be identical.
pub(super) fn of_all(servers: &[Server]) -> anyhow::Result<Answers> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("no runtime")?;
    let all = servers.iter().map(|server| runtime.block_on(fetch_all(server)));
    let all = all.collect::<anyhow::Result<Vec<[Bytes; 4]>>>()?;
    let bodies = all.first().context("no server")?.clone();
    for call in Call::ALL {
        let same = all.iter().all(|other| other[call as usize] == bodies[call as usize]);
        ensure!(same, "{}: two servers answer the same question differently", call.name());
    }
    let rows = rows_of(&bodies)?;
    Ok(Answers { bodies, rows })
}

async fn fetch_all(server: &Server) -> anyhow::Result<[Bytes; 4]> {
    let mut bodies: [Bytes; 4] = Default::default();
    for call in Call::ALL {
        let body = if call.is_rest() {
            let transport = Dialer::plain(server.address).dial(Arc::default()).await?;
            get(transport, &server.address.to_string(), &resource(call, 1.0), "*/*", REPLY_BYTES_MAX).await
        } else {
            ask(server, call).await
        };
        bodies[call as usize] = body.with_context(|| format!("{} is not answered", call.name()))?;
    }
    Ok(bodies)
}

async fn ask(server: &Server, call: Call) -> anyhow::Result<Bytes> {
    let settings = Settings { message_bytes_max: REPLY_BYTES_MAX, accepts: Vec::new(), ..Settings::default() };
    let channel = Channel::builder(&format!("http://{}", server.address))?.settings(settings).connect().await?;
    let request = channel.wire_message(&message(1.0));
    let answer = channel.unary_raw(Path::named(call.path()), Request::new(request)).await;
    Ok(answer.reply?.message()?)
}

/// The number of rows, which must be the same in all four answers.
fn rows_of(bodies: &[Bytes; 4]) -> anyhow::Result<u64> {
    let counts = Call::ALL.map(|call| decode(call, &bodies[call as usize]).and_then(|decoded| decoded.rows()));
    let counts = counts.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(counts.iter().all(|count| *count == counts[0]), "the four answers have {counts:?} rows");
    Ok(counts[0])
}

/// An answer in a client's data structures.
enum Decoded {
    Message(ReaderResponse),
    Object(SearchAnswer),
    Text(String),
}

impl Decoded {
    fn rows(&self) -> anyhow::Result<u64> {
        let (counted, stated) = match self {
            Self::Message(answer) => (answer.records.len(), u64::try_from(answer.num_record)?),
            Self::Object(answer) => (answer.records.len(), answer.num_record),
            Self::Text(text) => {
                let mut lines = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
                let count = lines.records().try_fold(0, |count, line| line.map(|_| count + 1))?;
                (count, u64::try_from(count)?)
            }
        };
        ensure!(u64::try_from(counted)? == stated, "an answer of {counted} rows states that it has {stated}");
        Ok(stated)
    }
}

fn decode(call: Call, body: &Bytes) -> anyhow::Result<Decoded> {
    Ok(match call {
        Call::Record => Decoded::Message(ReaderResponse::decode(&body[..])?),
        Call::Search => Decoded::Object(serde_json::from_slice(body)?),
        Call::RecordString => Decoded::Text(ReaderResponseString::decode(&body[..])?.data),
        Call::SearchString => Decoded::Text(std::str::from_utf8(body)?.to_owned()),
    })
}

/// Time for a client to decode a complete answer into rows of strings, or one string.
pub(super) fn decoding_ms(answers: &Answers) -> anyhow::Result<[f64; 4]> {
    let mut medians = [0.0; 4];
    for call in Call::ALL {
        let mut times = Vec::with_capacity(DECODINGS);
        for _ in 0..DECODINGS {
            let began = Instant::now();
            let decoded = decode(call, &answers.bodies[call as usize])?;
            times.push(began.elapsed().as_secs_f64() * 1e3);
            drop(decoded);
        }
        medians[call as usize] = interval::median(&times);
    }
    Ok(medians)
}

#[cfg(test)]
mod tests {
    use records::grpc::wire::{Field, Record};

    use super::*;

    fn bodies(rows: i64) -> [Bytes; 4] {
        let field = |value: &str| Field { key: "a".to_owned(), value: value.to_owned() };
        let record = Record { fields: vec![field("x, y")] };
        let count = usize::try_from(rows).expect("few");
        let message = ReaderResponse { records: vec![record; count], num_record: rows, ..Default::default() };
        let list = vec![r#"{"a":"x, y"}"#; count].join(",");
        let text = "\"x, y\"\n".repeat(count);
        let string = ReaderResponseString { data: text.clone(), ..Default::default() };
        [
            message.encode_to_vec().into(),
            format!(r#"{{"records":[{list}],"num_record":{rows}}}"#).into(),
            string.encode_to_vec().into(),
            text.into(),
        ]
    }

    #[test]
    fn rows_are_counted_in_all_four_forms() {
        assert_eq!(rows_of(&bodies(3)).expect("alike"), 3);
        assert_eq!(rows_of(&bodies(0)).expect("alike"), 0);
    }

    #[test]
    fn answers_of_different_length_are_an_error() {
        let mut mixed = bodies(3);
        mixed[3] = bodies(2)[3].clone();
        let error = rows_of(&mixed).expect_err("not alike");
        assert!(error.to_string().contains("[3, 3, 3, 2]"), "{error}");
        let mut wrong = bodies(3);
        wrong[1] = Bytes::from_static(br#"{"records":[{"a":"x"}],"num_record":2}"#);
        assert!(rows_of(&wrong).expect_err("a false count").to_string().contains("1 rows states that it has 2"));
    }
}
