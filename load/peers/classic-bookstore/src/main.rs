//! `classic-bookstore --listen ADDRESS --data DIR --stock N`.

use std::{net::SocketAddr, path::PathBuf};

use anyhow::Context;
use clap::Parser;
use classic_bookstore::{serve, store::Store};
use tonic::transport::server::TcpIncoming;

/// The bookstore as it is usually written: tonic, a pool of SQLite connections, one transaction a purchase
#[derive(Debug, Parser)]
struct Arguments {
    /// Port 0 takes any that is free
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:10087")]
    listen: SocketAddr,
    /// Folder of bookstore.db
    #[arg(long, value_name = "DIR", default_value = "classic-data")]
    data: PathBuf,
    /// Copies of each book at the start
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(i32).range(0..))]
    stock: i32,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let Arguments { listen, data, stock } = Arguments::parse();
    let store = Store::open(&data, stock).with_context(|| format!("cannot open a store in {}", data.display()))?;
    let incoming = TcpIncoming::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    let incoming = incoming.with_nodelay(Some(true));
    eprintln!("listening on {}", incoming.local_addr()?);
    serve(incoming, store).await?;
    Ok(())
}
