//! The arena's contract on quire-rpc: `messages` as most users write a service; `bytes` (with `--bytes`) with methods
//! that read and write protobuf in place.

use std::{error::Error, future::pending};

use arena::{Fortunes, Options};
use quire_rpc::{Limits, Server};
use tokio::net::TcpListener;

mod bytes;
mod messages;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let options = Options::read()?;
    let fortunes = Fortunes::connect(options.redis.as_deref()).await?;
    let mut server = Server::builder().limits(Limits::default());
    server = if options.bytes {
        server.add_service(bytes::service(fortunes))
    } else {
        server.add_service(messages::service(fortunes))
    };
    if let Some(tls) = options.tls {
        server = server.tls(tls.config()?);
    }
    Ok(server.serve(TcpListener::bind(options.listen).await?, pending()).await?)
}
