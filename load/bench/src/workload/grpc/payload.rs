//! Messages of requests: encoded once if they are constant, else made for each turn.

use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail, ensure};
use bytes::Bytes;
use prost::Message as _;
use prost_reflect::MessageDescriptor;
use quire_rpc::client::{Codec, PathRef};
use serde_json::Value;

use super::fit::{Misfit, message_from_json};
use crate::template::{Sources, Template, Turn};

/// Maximum size of `--data`, and of a request made from it.
pub const DATA_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Maximum messages of a request.
pub const MESSAGES_MAX: usize = 1_000_000;
/// Turns whose data is tried before a run. Data of later turns may still fail to fit.
const TURNS_TRIED: u64 = 100;

/// The requests of a load.
#[derive(Clone)]
pub enum Requests {
    /// The same encoded messages every time.
    Constant(Arc<[Bytes]>),
    /// One encoded message, made for each turn before the clock starts, with its method if that is not the workload's:
    /// a mix of unary calls.
    Made(Arc<dyn Fn(Turn) -> (Option<PathRef>, Bytes) + Send + Sync>),
    /// Data with placeholders, filled in before the clock starts.
    Rendered(Arc<Payload>),
}

impl Requests {
    /// One message, the same every time.
    pub fn constant(encoded: impl Into<Bytes>) -> Self {
        Self::Constant(Arc::new([encoded.into()]))
    }
}

/// Messages in JSON with placeholders.
#[derive(Clone, Debug)]
pub struct Payload {
    template: Template,
    descriptor: MessageDescriptor,
    codec: Codec,
    is_stream: bool,
    repeat: usize,
}

impl Payload {
    /// Parses `data` as JSON: a message; for a method that takes a stream, a list of messages or messages one after
    /// another, which are sent `repeat` times over.
    pub fn read(
        data: &str,
        sources: &Sources,
        descriptor: &MessageDescriptor,
        codec: Codec,
        is_stream: bool,
        repeat: usize,
    ) -> anyhow::Result<Requests> {
        let template = Template::parse(data, sources).context("--data")?;
        let payload = Self { template, descriptor: descriptor.clone(), codec, is_stream, repeat };
        let first = payload.render(Turn { number: 0, client: 0, worker: 0 })?;
        if payload.template.constant().is_some() {
            return Ok(Requests::Constant(first.into()));
        }
        for number in 1..TURNS_TRIED {
            payload.render(Turn { number, client: 0, worker: 0 })?;
        }
        Ok(Requests::Rendered(Arc::new(payload)))
    }

    /// The encoded messages of a turn.
    pub(super) fn render(&self, turn: Turn) -> anyhow::Result<Vec<Bytes>> {
        let mut text = String::new();
        self.template.render(turn, &mut text);
        let mut values: Vec<Value> = serde_json::Deserializer::from_str(&text)
            .into_iter()
            .collect::<Result<_, _>>()
            .context("--data is not JSON")?;
        if let [Value::Array(_)] = &values[..]
            && self.is_stream
            && let Some(Value::Array(items)) = values.pop()
        {
            values = items;
        }
        match values.len() {
            0 => bail!("--data holds no message; write {{}} for an empty one"),
            1 => {}
            count if !self.is_stream => bail!("--data holds {count} messages; this method takes one"),
            _ => {}
        }
        let repeat = if self.is_stream { self.repeat } else { 1 };
        let count = values.len().saturating_mul(repeat);
        ensure!(count <= MESSAGES_MAX, "a request has {count} messages; it may have {MESSAGES_MAX}");
        let encode = |(at, value)| {
            let message = message_from_json(value, &self.descriptor);
            let message = message.map_err(|misfit| anyhow!("--data does not fit: {}", self.placed(at, misfit)))?;
            Ok(match self.codec {
                Codec::Proto => message.encode_to_vec().into(),
                Codec::Json => serde_json::to_vec(&message)?.into(),
            })
        };
        let encoded: Vec<Bytes> = values.iter().enumerate().map(encode).collect::<anyhow::Result<_>>()?;
        Ok(encoded.iter().cycle().take(count).cloned().collect())
    }

    /// Adds the position of the message to the error, if there are several.
    fn placed(&self, at: usize, misfit: Misfit) -> Misfit {
        if !self.is_stream {
            return misfit;
        }
        let dot = if misfit.path.is_empty() { "" } else { "." };
        Misfit { path: format!("[{at}]{dot}{}", misfit.path), ..misfit }
    }
}
