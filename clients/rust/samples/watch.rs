//! Watches a key and puts it.
#![expect(clippy::print_stdout, reason = "a sample shows what it gets")]

use quire_client::{Client, Error, Event};

#[tokio::main]
async fn main() -> Result<(), Error> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:10086".to_owned());
    let client = Client::connect(&address)?;
    let mut events = client.watch("greeting").await?;
    while let Some(event) = events.try_next().await? {
        match event {
            Event::Started => {
                println!("watching");
                client.put("greeting", "hello", None).await?;
            }
            Event::Put { key, value: Some(value), .. } => {
                println!("put {} = {}", String::from_utf8_lossy(&key), String::from_utf8_lossy(&value));
                break;
            }
            _ => {}
        }
    }
    Ok(())
}
