//! Updates an entry only if no one else has changed it.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use quire_client::{Client, Created, Error, Updated};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    match client.create("counter", "1", None).await? {
        Created::Version(_) => println!("created 1"),
        _ => println!("exists"),
    }
    let version = client.get("counter").await?.map(|found| found.version);
    for _ in 0..2 {
        match client.update("counter", "2", version, None).await? {
            Updated::Version(_) => println!("updated 2"),
            Updated::AnotherVersion(_) => println!("another version: read again"),
            _ => println!("no such key"),
        }
    }
    Ok(())
}
