//! Buys all copies of a book. Each outcome is a value.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use quire_client::{Client, Error, Order, Outcome};

const BOOK: i32 = 12498;
/// Largest quantity of one purchase.
const QUANTITY_MAX: i32 = 1000;

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let left = buy(&client, 1).await?;
    buy(&client, QUANTITY_MAX).await?;
    buy(&client, left).await?;
    buy(&client, 1).await?;
    Ok(())
}

/// Returns the number of copies left.
async fn buy(client: &Client, quantity: i32) -> Result<i32, Error> {
    let purchase = client.buy(Order::of(BOOK).quantity(quantity)).await?;
    let left = purchase.stock_left.unwrap_or_default();
    match purchase.outcome {
        Outcome::Bought { .. } => println!("bought: {left} left"),
        Outcome::TooFew => println!("too few: {left} left"),
        Outcome::SoldOut => println!("sold out"),
        Outcome::NoSuchBook => println!("no such book"),
        Outcome::Unknown(fault) => println!("perhaps bought ({fault}); buy again with the key {}", purchase.key),
        _ => println!("not bought: {}", purchase.message),
    }
    Ok(left)
}
