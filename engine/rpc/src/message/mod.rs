//! Messages between an application and a connection: encoded, compressed, framed, queued.

pub(crate) mod codec;
pub(crate) mod compression;
pub(crate) mod framing;
pub(crate) mod inbox;
pub(crate) mod streaming;
pub(crate) mod transcode;
