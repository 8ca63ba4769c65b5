//! What the fuzz targets need of private modules; no part of the interface. Must not know how inputs are made.

use crate::json::{Error, MessageId, Schema};

/// One message of a contract, as JSON and as bytes.
#[derive(Debug)]
pub struct Json {
    schema: Schema,
    message: MessageId,
}

impl Json {
    /// `set` is an encoded `FileDescriptorSet`; None if it has no such message.
    pub fn new(set: &[u8], full_name: &str) -> Option<Self> {
        let schema = Schema::new([set]).ok()?;
        let message = schema.message(full_name)?;
        Some(Self { schema, message })
    }

    /// The bytes of a message from its JSON.
    pub fn read(&self, json: &[u8]) -> Result<Vec<u8>, String> {
        made(|out| self.schema.read(self.message, json, out))
    }

    /// The JSON of a message from its bytes.
    pub fn write(&self, wire: &[u8]) -> Result<Vec<u8>, String> {
        made(|out| self.schema.write(self.message, wire, out))
    }
}

fn made(make: impl FnOnce(&mut Vec<u8>) -> Result<(), Error>) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    make(&mut out).map_err(|error| error.to_string())?;
    Ok(out)
}
