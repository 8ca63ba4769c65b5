//! Lists the books of a topic.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use quire_client::{Client, Error};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let mut books = client.search("distributed systems");
    while let Some(book) = books.try_next().await? {
        println!("{} {}: {} at {}", book.id, book.title, book.stock, book.price);
    }
    Ok(())
}
