//! A TCP proxy that loses answers on purpose.

use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
};

/// Fault in a connection's answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// None: everything is forwarded.
    None,
    /// The connection begins normally; everything after the server's first bytes is lost.
    Swallow,
}

/// Proxy that forwards requests and applies faults to answers.
#[derive(Debug)]
pub struct Proxy {
    /// Its listening address.
    pub address: SocketAddr,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Proxy {
    /// The connections get these faults in order, later ones the last.
    pub fn start(server: SocketAddr, faults: &'static [Fault]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let open = Arc::<Mutex<Vec<TcpStream>>>::default();
        let kept = Arc::clone(&open);
        thread::spawn(move || {
            for (number, client) in listener.incoming().enumerate() {
                let fault = faults[number.min(faults.len() - 1)];
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { return };
                let copy = |stream: &TcpStream| stream.try_clone().expect("a socket");
                kept.lock().unwrap_or_else(PoisonError::into_inner).extend([copy(&client), copy(&server)]);
                let (from_client, to_server) = (copy(&client), copy(&server));
                thread::spawn(move || pass(from_client, to_server, Fault::None));
                thread::spawn(move || pass(server, client, fault));
            }
        });
        Self { address, open }
    }

    /// Ends every open connection.
    pub fn cut(&self) {
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // The other side may have ended it.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, fault: Fault) {
    let mut bytes = [0; 16 * 1024];
    let mut reads = 0;
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        reads += 1;
        let passes = fault == Fault::None || reads == 1;
        if passes && to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}
