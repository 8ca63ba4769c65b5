//! Keeps the receipt of a purchase, with which anyone can verify it without the server.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use std::{error::Error, fs};

use quire_client::{Client, Outcome};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let purchase = client.buy(53573).await?;
    let Outcome::Bought { number } = purchase.outcome else { return Err(purchase.message.into()) };
    let receipt = client.receipt(number, &purchase.key).await?.ok_or("there is no receipt")?;
    fs::write("my.tlog-proof", receipt.text)?;
    // It proves little if it comes from the same server as the receipt; the shop publishes it elsewhere as well.
    fs::write("log-key", receipt.log_key + "\n")?;
    println!("kept: purchase {number}\nverify it: quire receipt my.tlog-proof --key log-key");
    Ok(())
}
