//! Sends the same purchase twice: its key makes it happen once.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use quire_client::{Client, Error, Key, Order, Outcome};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let order = Order::of(12365).key(Key::random());
    for _ in 0..2 {
        let purchase = client.buy(order.clone()).await?;
        if let Outcome::Bought { number } = purchase.outcome {
            println!("purchase {number}, {}", if purchase.replayed { "replayed" } else { "new" });
        }
    }
    Ok(())
}
