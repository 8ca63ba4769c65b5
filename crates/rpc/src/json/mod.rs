//! Protobuf's canonical JSON, by descriptors; not there yet, so that calls in JSON are refused.
#![allow(dead_code, reason = "the interface stands before what is behind it")]

/// A type of messages.
#[derive(Clone, Copy)]
pub(crate) struct MessageId(u32);

/// All messages of some contracts.
pub(crate) struct Schema;

impl Schema {
    pub(crate) fn new<'a>(_: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, &'static str> {
        Err("no JSON yet")
    }

    pub(crate) fn message(&self, _: &str) -> Option<MessageId> {
        None
    }

    pub(crate) fn write(&self, _: MessageId, _: &[u8], _: &mut Vec<u8>) -> Result<(), &'static str> {
        Err("no JSON yet")
    }

    pub(crate) fn read(&self, _: MessageId, _: &[u8], _: &mut Vec<u8>) -> Result<(), &'static str> {
        Err("no JSON yet")
    }
}
