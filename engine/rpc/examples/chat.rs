//! Streams both ways: a room in which everyone reads everyone's lines: `cargo run --example chat`.
#![expect(clippy::print_stdout, reason = "the example shows what it hears")]

use std::future::pending;
use std::pin::Pin;

use chat::Line;
use chat::chat_client::ChatClient;
use chat::chat_server::{Chat, ChatServer};
use quire_rpc::client::Channel;
use quire_rpc::{Request, Response, Server, Status, Stream, Streaming, unfold};
use tokio::net::TcpListener;
use tokio::sync::{broadcast, mpsc};

mod chat {
    quire_rpc::include_proto!("chat");
}

/// Lines that a slow reader may lag behind.
const BEHIND_MAX: usize = 100;

struct Room {
    lines: broadcast::Sender<Line>,
}

impl Chat for Room {
    type TalkStream = Pin<Box<dyn Stream<Item = Result<Line, Status>> + Send>>;

    async fn talk(&self, request: Request<Streaming<Line>>) -> Result<Response<Self::TalkStream>, Status> {
        let caller = (request.into_inner(), self.lines.clone(), self.lines.subscribe());
        // One step per line to the caller; the caller's own lines are passed on meanwhile.
        let heard = unfold(caller, |(mut said, room, mut heard)| async move {
            loop {
                tokio::select! {
                    line = said.message() => {
                        let Ok(Some(line)) = line else { return None };
                        // It fails only without receivers, and this call is one.
                        let _ = room.send(line);
                    }
                    line = heard.recv() => {
                        let line = line.map_err(|_| Status::resource_exhausted("you read too slowly: join again"));
                        return Some((line, (said, room, heard)));
                    }
                }
            }
        });
        Ok(Response::new(Box::pin(heard)))
    }
}

/// Joins the room; lines sent into the channel are posted there.
async fn join(client: &ChatClient) -> Result<(mpsc::Sender<Line>, Streaming<Line>), Status> {
    let (say, said) = mpsc::channel(BEHIND_MAX);
    let lines = unfold(said, |mut said| async move { Some((said.recv().await?, said)) });
    Ok((say, client.talk(lines).await?.into_inner()))
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let room = ChatServer::new(Room { lines: broadcast::Sender::new(BEHIND_MAX) });
    tokio::spawn(Server::builder().add_service(room).serve(listener, pending()));

    let client = ChatClient::new(Channel::builder(&url)?.connect().await?);
    let (ada, mut ada_hears) = join(&client).await?;
    ada.send(Line { author: "Ada".to_owned(), text: "Anyone here?".to_owned() }).await?;
    let echo = ada_hears.message().await?.ok_or("the room closed")?;
    println!("Ada hears {}: {}", echo.author, echo.text);

    let (bob, mut bob_hears) = join(&client).await?;
    bob.send(Line { author: "Bob".to_owned(), text: "I am.".to_owned() }).await?;
    for (name, hears) in [("Ada", &mut ada_hears), ("Bob", &mut bob_hears)] {
        let line = hears.message().await?.ok_or("the room closed")?;
        println!("{name} hears {}: {}", line.author, line.text);
        assert_eq!((line.author.as_str(), line.text.as_str()), ("Bob", "I am."));
    }
    drop(ada);
    assert!(ada_hears.message().await?.is_none(), "a caller that stops sending leaves");
    Ok(())
}
