//! Lower bound of every server's figures with one call in flight: `tcp-floor serve LISTEN` waits, reads and writes and
//! does nothing else; `tcp-floor ask ADDRESS SECONDS` sends a message the size of a small gRPC call, waits for an
//! answer, and prints how many exchanges there were. No protocol can be faster than that.

use std::{
    env,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    process::ExitCode,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token};

/// Size of a small unary call with cached headers, and of its answer: that of Lookup.
const CALL: [u8; 36] = [0; 36];
const ANSWER: [u8; 128] = [0; 128];

fn serve(address: SocketAddr) -> std::io::Result<()> {
    let listener = std::net::TcpListener::bind(address)?;
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let mut stream = mio::net::TcpStream::from_std(stream);
        let (mut poll, mut events, mut bytes) = (Poll::new()?, Events::with_capacity(8), [0; 4096]);
        poll.registry().register(&mut stream, Token(0), Interest::READABLE)?;
        loop {
            poll.poll(&mut events, None)?;
            match stream.read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => stream.write_all(&ANSWER)?,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
        }
    }
}

fn ask(address: SocketAddr, time: Duration) -> std::io::Result<u64> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let (start, mut bytes, mut exchanges) = (Instant::now(), [0; ANSWER.len()], 0);
    while start.elapsed() < time {
        stream.write_all(&CALL)?;
        stream.read_exact(&mut bytes)?;
        exchanges += 1;
    }
    Ok(exchanges)
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["serve", address] => serve(address.parse()?)?,
        ["ask", address, seconds] => {
            println!("{}", ask(address.parse()?, Duration::from_secs_f64(seconds.parse()?))?);
        }
        _ => return Err("usage: tcp-floor serve LISTEN | tcp-floor ask ADDRESS SECONDS".into()),
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tcp-floor: {error}");
            ExitCode::FAILURE
        }
    }
}
