//! Connections other than TCP to a host: Unix sockets, a proxy, and none at all: `cargo run --example connectors`.
#![expect(clippy::print_stdout, reason = "the example shows what it gets")]

use std::error::Error;
use std::future::pending;
use std::io;
use std::net::SocketAddr;

use hello::greeter_client::GreeterClient;
use hello::greeter_server::{Greeter, GreeterServer};
use hello::{HelloReply, HelloRequest};
use quire_rpc::client::Channel;
use quire_rpc::{Request, Response, Server, Status};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream, UnixListener};

mod hello {
    quire_rpc::include_proto!("hello");
}

struct Usher;

impl Greeter for Usher {
    async fn hello(&self, request: Request<HelloRequest>) -> Result<Response<HelloReply>, Status> {
        let credentials = request.peer().and_then(|peer| peer.credentials);
        let caller = credentials.map_or("somewhere".to_owned(), |known| format!("user {}", known.user));
        Ok(Response::new(HelloReply { text: format!("Hello {} of {caller}", request.get_ref().name) }))
    }
}

/// A connection to `host` through an HTTP proxy (RFC 9110 section 9.3.6).
async fn through(proxy: SocketAddr, host: String) -> io::Result<BufReader<TcpStream>> {
    let mut stream = BufReader::new(TcpStream::connect(proxy).await?);
    stream.write_all(format!("CONNECT {host} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    while !answer.ends_with("\r\n\r\n") {
        if stream.read_line(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let is_accepted = answer.split(' ').nth(1) == Some("200");
    if is_accepted { Ok(stream) } else { Err(io::Error::other(format!("the proxy refused: {answer}"))) }
}

/// A proxy for one connection.
async fn proxy(listener: TcpListener) -> io::Result<()> {
    let mut near = BufReader::new(listener.accept().await?.0);
    let mut request = String::new();
    while !request.ends_with("\r\n\r\n") && near.read_line(&mut request).await? > 0 {}
    let mut far = TcpStream::connect(request.split(' ').nth(1).unwrap_or_default()).await?;
    near.write_all(b"HTTP/1.1 200 connected\r\n\r\n").await?;
    copy_bidirectional(&mut near, &mut far).await.map(drop)
}

async fn greeted(channel: Channel) -> Result<String, Status> {
    let reply = GreeterClient::new(channel).hello(HelloRequest { name: "Ada".to_owned() }).await?.into_inner();
    println!("{}", reply.text);
    Ok(reply.text)
}

#[tokio::main]
pub(crate) async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().add_service(GreeterServer::new(Usher)).build();

    // Within the process: no port, no socket.
    let channel = Channel::builder("http://here")?.connector(server.clone()).connect().await?;
    assert_eq!(greeted(channel).await?, "Hello Ada of somewhere");

    // Over a Unix socket, whose other end the system knows.
    let path = std::env::temp_dir().join(format!("greeter-{}.sock", std::process::id()));
    let (listener, serving) = (UnixListener::bind(&path)?, server.clone());
    tokio::spawn(async move { serving.serve_incoming(listener, pending()).await });
    let channel = Channel::builder(&format!("unix:{}", path.display()))?.connect().await?;
    std::fs::remove_file(&path)?;
    assert!(greeted(channel).await?.starts_with("Hello Ada of user "));

    // Through a proxy.
    let (listener, tunnel) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    let (host, proxy_address) = (listener.local_addr()?.to_string(), tunnel.local_addr()?);
    tokio::spawn(async move { server.serve(listener, pending()).await });
    tokio::spawn(proxy(tunnel));
    let channel = Channel::builder(&format!("http://{host}"))?.connector(move || through(proxy_address, host.clone()));
    assert_eq!(greeted(channel.connect().await?).await?, "Hello Ada of somewhere");
    Ok(())
}
