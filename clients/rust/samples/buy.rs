//! Buys one copy of a book.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use quire_client::{Client, Error, Outcome};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let purchase = client.buy(53573).await?;
    match purchase.outcome {
        Outcome::Bought { number } => {
            println!("bought: purchase {number}, {} left", purchase.stock_left.unwrap_or_default());
        }
        Outcome::Unknown(fault) => println!("perhaps bought ({fault}); buy again with the key {}", purchase.key),
        _ => println!("not bought: {}", purchase.message),
    }
    Ok(())
}
