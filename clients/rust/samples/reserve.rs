//! Reserves a copy and buys it; then reserves another, and comes too late.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use std::time::Duration;

use quire_client::{Client, Error, Reserved};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let held = client.reserve(53477, Some(Duration::from_mins(1))).await?;
    println!("held: {} left", held.stock_left.unwrap_or_default());
    let bought = client.confirm(&held.key).await?;
    println!("bought: purchase {}", bought.number);

    let brief = client.reserve(53477, Some(Duration::from_secs(1))).await?;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let late = client.confirm(&brief.key).await?;
    if late.outcome == Reserved::Expired {
        println!("too late: {} left", late.stock_left.unwrap_or_default());
    }
    Ok(())
}
