//! Channels to a server of the same process.

use std::future::pending;
use std::io;

use tokio::io::{DuplexStream, duplex};

use crate::client::Connector;
use crate::envelope::Peer;
use crate::server::Server;

/// Bytes on their way in one direction.
const PIPE_BYTES: usize = 64 * 1024;

/// Connects within the process: each connection is a pipe, which the server serves on the current runtime.
impl Connector for Server {
    type Stream = DuplexStream;

    async fn connect(&self) -> io::Result<DuplexStream> {
        let (ours, theirs) = duplex(PIPE_BYTES);
        let server = self.clone();
        tokio::spawn(async move { server.serve_connection(theirs, Peer::default(), pending()).await });
        Ok(ours)
    }
}
