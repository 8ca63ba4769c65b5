//! Stub.
#[derive(Clone, Copy)] pub(crate) struct MessageId(u32);
pub(crate) struct Schema;
impl Schema {
    pub(crate) fn new<'a>(_: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, String> { Ok(Self) }
    pub(crate) fn message(&self, _: &str) -> Option<MessageId> { Some(MessageId(0)) }
    pub(crate) fn write(&self, _: MessageId, _: &[u8], _: &mut Vec<u8>) -> Result<(), String> { Ok(()) }
    pub(crate) fn read(&self, _: MessageId, _: &[u8], _: &mut Vec<u8>) -> Result<(), String> { Ok(()) }
}
