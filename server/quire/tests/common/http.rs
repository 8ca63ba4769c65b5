//! HTTP/1.1 as `curl` would speak it, and the counters on `/metrics`.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
};

use super::PATIENCE;

/// An answer.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

/// GET on a new connection; the error is the connection's.
pub(crate) fn try_get(address: SocketAddr, path: &str) -> std::io::Result<Page> {
    try_get_as(address, path, "*/*")
}

fn try_get_as(address: SocketAddr, path: &str, accepted: &str) -> std::io::Result<Page> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: {accepted}\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let status =
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or(std::io::ErrorKind::InvalidData)?;
    Ok(Page { status, head: head.to_owned(), body: body.to_owned() })
}

pub(crate) fn get(address: SocketAddr, path: &str) -> Page {
    try_get(address, path).unwrap_or_else(|error| panic!("GET {path}: {error}"))
}

/// GET of a page in this media type.
pub(crate) fn get_as(address: SocketAddr, path: &str, accepted: &str) -> Page {
    try_get_as(address, path, accepted).unwrap_or_else(|error| panic!("GET {path}: {error}"))
}

/// The value of a counter, gauge, or histogram's sum on `/metrics`, given as there: `name{label="value"}`.
pub(crate) fn metric(address: SocketAddr, series: &str) -> u64 {
    let page = get(address, "/metrics").body;
    let line = page.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no series {series} in\n{page}"));
    let value = line.rsplit(' ').next().map(|value| value.strip_suffix(".0").unwrap_or(value));
    value.and_then(|value| value.parse().ok()).expect("a whole number")
}

/// Number of refusals by a limit.
pub(crate) fn refused(address: SocketAddr, limit: &str) -> u64 {
    metric(address, &format!("quire_refused_total{{limit=\"limits.{limit}\"}}"))
}
