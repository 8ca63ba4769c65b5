//! Decoding of a call's messages: decompression, and conversion from JSON.
//!
//! Handlers only see protobuf.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use prost_types::FileDescriptorSet;

use crate::message::codec::{Decode, Payload};
use crate::message::compression::{Budget, Encoding, too_large};
use crate::message::framing::Framed;
use crate::status::Status;
use quire_json::{MessageId, Schema};

/// A message type of a call in JSON.
#[derive(Clone)]
pub(crate) struct Json {
    pub(crate) schema: Arc<Schema>,
    pub(crate) message: MessageId,
}

impl Json {
    /// Appends an encoded message as JSON.
    pub(crate) fn write(&self, message: &[u8], out: &mut Vec<u8>) -> Result<(), Status> {
        self.schema
            .write(self.message, message, out)
            .map_err(|error| Status::internal(format!("the message cannot be written as JSON: {error}")))
    }

    /// Converts a JSON message to protobuf.
    pub(crate) fn read(&self, json: &[u8]) -> Result<Vec<u8>, Status> {
        let mut message = Vec::with_capacity(json.len());
        match self.schema.read(self.message, json, &mut message) {
            Ok(()) => Ok(message),
            Err(error) => Err(Status::invalid_argument(format!("the message cannot be read as JSON: {error}"))),
        }
    }
}

impl std::fmt::Debug for Json {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Json")
    }
}

/// Methods of an encoded `FileDescriptorSet`: path, request type, response type. Empty if it is invalid.
pub(crate) fn methods(contract: &[u8]) -> Vec<(String, String, String)> {
    let mut methods = Vec::new();
    let set = <FileDescriptorSet as prost::Message>::decode(contract).unwrap_or_default();
    for file in set.file {
        let dot = if file.package().is_empty() { "" } else { "." };
        for service in &file.service {
            for method in &service.method {
                let path = format!("/{}{dot}{}/{}", file.package(), service.name(), method.name());
                let message = |name: &str| name.trim_start_matches('.').to_owned();
                methods.push((path, message(method.input_type()), message(method.output_type())));
            }
        }
    }
    methods
}

/// Request and response types of a contract's method; `None` if there is no such method. The schema of a contract is
/// built once.
pub(crate) fn json_of(contract: &'static [u8], path: &str) -> Option<(Json, Json)> {
    static SCHEMAS: Mutex<Vec<(&'static [u8], Arc<Schema>)>> = Mutex::new(Vec::new());
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = schemas.iter().find(|(known, _)| *known == contract).map(|(_, schema)| Arc::clone(schema));
    let schema = if let Some(schema) = known {
        schema
    } else {
        let schema = Arc::new(Schema::new([contract]).ok()?);
        schemas.push((contract, Arc::clone(&schema)));
        schema
    };
    drop(schemas);
    let (_, request, answer) = methods(contract).into_iter().find(|(known, ..)| known == path)?;
    let json = |name: &str| Some(Json { message: schema.message(name)?, schema: Arc::clone(&schema) });
    json(&request).zip(json(&answer))
}

/// Decodes the messages of a call.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) encoding: Option<Encoding>,
    pub(crate) json: Option<Json>,
    pub(crate) message_bytes_max: usize,
    /// Budget that decompression is charged to.
    pub(crate) budget: Option<Arc<Budget>>,
}

impl Reading {
    /// True if the received bytes are plain protobuf.
    #[inline]
    pub(crate) fn is_open<T>(&self, message: &Framed<T>) -> bool {
        !message.compressed && self.json.is_none()
    }

    /// The message in protobuf, decompressed if its flag is set.
    #[inline]
    pub(crate) fn open<'a>(&self, message: Framed<Payload<'a>>) -> Result<Payload<'a>, Status> {
        let plain = match self.encoding {
            _ if !message.compressed => message.bytes,
            Some(encoding) => {
                let (bytes, bytes_max) = (message.bytes.as_slice(), self.message_bytes_max);
                let mut plain = match &self.budget {
                    Some(budget) => budget.decompress(encoding, bytes, bytes_max, Instant::now())?,
                    None => Budget::default().decompress(encoding, bytes, bytes_max, Instant::now())?,
                };
                plain.shrink_to_fit();
                Payload::Owned(plain.into())
            }
            None => return Err(Status::internal("a compressed message, though its call names no compression")),
        };
        match &self.json {
            None => Ok(plain),
            Some(json) => {
                let message = json.read(plain.as_slice())?;
                // Some lists are longer in protobuf than in JSON.
                if message.len() > self.message_bytes_max {
                    return Err(too_large(message.len(), self.message_bytes_max));
                }
                Ok(Payload::Owned(message.into()))
            }
        }
    }

    /// Decodes a received message.
    #[inline]
    pub(crate) fn decode<T: Decode>(&self, message: Framed<Payload<'_>>) -> Result<T, Status> {
        T::decode(self.open(message)?)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::Code;

    #[test]
    fn message_in_json_has_the_limit_of_its_protobuf() {
        let proto = concat!(env!("CARGO_MANIFEST_DIR"), "/../json/proto");
        let set = protox::compile(["kinds.proto"], [proto]).unwrap();
        let schema = Arc::new(Schema::new([&prost::Message::encode_to_vec(&set)[..]]).unwrap());
        let json = Json { message: schema.message("kinds.Lists").unwrap(), schema };
        let reading = Reading { encoding: None, json: Some(json), message_bytes_max: 100, budget: None };
        let open = |count| {
            let text = format!(r#"{{"int32s":[{}]}}"#, vec!["-1"; count].join(","));
            assert!(text.len() < 100);
            let message = Framed { compressed: false, bytes: Payload::Owned(text.into()) };
            reading.open(message).map(|message| message.as_slice().len()).map_err(|status| status.code())
        };
        assert_eq!((open(9), open(10)), (Ok(92), Err(Code::ResourceExhausted)));
    }

    #[test]
    fn bytes_of_a_gathered_message_share_its_buffer() {
        let reading = Reading { encoding: None, json: None, message_bytes_max: 100, budget: None };
        let body = Bytes::from(vec![10, 3, 1, 2, 3]);
        let place = body[2..].as_ptr();
        let message = Framed { compressed: false, bytes: Payload::Owned(body) };
        let payload = reading.open(message).unwrap();
        assert_eq!(payload.buffer_bytes(), 5);
        let decoded = Bytes::decode(payload).unwrap();
        assert_eq!((&decoded[..], decoded.as_ptr()), (&[1, 2, 3][..], place));
        let message = Framed { compressed: false, bytes: Payload::Borrowed(&[10, 1, 9]) };
        assert_eq!(reading.open(message).unwrap().buffer_bytes(), 0);
    }
}
