//! A server in this process, and clients for it.

use std::{collections::HashMap, net::SocketAddr, path::PathBuf};

use quire_rpc::{
    Code, Server, Status,
    client::{Channel, Settings as ChannelSettings},
};
use records::{
    LoadError, Records, Settings,
    grpc::{
        ReaderGrpc, StreamGrpc,
        wire::{
            ReaderRequest, ReaderResponse, reader_service_client::ReaderServiceClient,
            reader_service_server::ReaderServiceServer, record_stream_service_client::RecordStreamServiceClient,
            record_stream_service_server::RecordStreamServiceServer,
        },
    },
    rest,
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// Rows as a CSV reader returns them.
pub(crate) type Rows = Vec<Vec<String>>;

pub(crate) struct Served {
    pub(crate) records: Records,
    pub(crate) address: SocketAddr,
    pub(crate) file: PathBuf,
    _folder: TempDir,
}

/// Opens a file with these bytes.
pub(crate) fn open(csv: &[u8], settings: Settings) -> Result<Records, LoadError> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.csv");
    std::fs::write(&file, csv).unwrap();
    Records::open(Settings { csv: Some(file), ..settings })
}

pub(crate) async fn serve(csv: impl AsRef<[u8]>, settings: Settings) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("some.csv");
    std::fs::write(&file, csv).unwrap();
    let records = Records::open(Settings { csv: Some(file.clone()), ..settings }).unwrap();
    let address = listen(records.clone()).await;
    Served { records, address, file, _folder: folder }
}

pub(crate) async fn listen(records: Records) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .add_service(ReaderServiceServer::new(ReaderGrpc::new(records.clone())))
        .add_service(RecordStreamServiceServer::new(StreamGrpc::new(records.clone())))
        .http(rest::site(records).router)
        .build();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    address
}

pub(crate) fn channel(address: SocketAddr) -> Channel {
    let settings = ChannelSettings { message_bytes_max: 256 << 20, ..ChannelSettings::default() };
    Channel::builder(&format!("http://{address}")).unwrap().settings(settings).connect_lazy().unwrap()
}

pub(crate) fn reader(address: SocketAddr) -> ReaderServiceClient {
    ReaderServiceClient::new(channel(address))
}

pub(crate) fn streams(address: SocketAddr) -> RecordStreamServiceClient {
    RecordStreamServiceClient::new(channel(address))
}

pub(crate) fn ask(key: &str, value: &str) -> ReaderRequest {
    ReaderRequest { key: key.to_owned(), value: value.to_owned(), ..ReaderRequest::default() }
}

#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

/// The rows of an answer, checked to have these columns.
pub(crate) fn rows_of(answer: &ReaderResponse, names: &[&str]) -> Rows {
    let row = |record: &records::grpc::wire::Record| {
        let keys: Vec<&str> = record.fields.iter().map(|field| &*field.key).collect();
        assert_eq!(keys, names);
        record.fields.iter().map(|field| field.value.clone()).collect()
    };
    answer.records.iter().map(row).collect()
}

/// An HTTP response.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    headers: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Page {
    /// The value; empty if there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        assert_eq!(self.header("content-type"), "application/json");
        serde_json::from_slice(&self.body).unwrap()
    }

    /// The error text of a refusal.
    #[track_caller]
    pub(crate) fn error(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{self:?}");
        self.json()["error"].as_str().unwrap().to_owned()
    }
}

/// A request on its own connection; `head` is further header lines.
pub(crate) async fn http(address: SocketAddr, method: &str, path: &str, head: &[&str]) -> Page {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let lines = head.iter().map(|line| format!("{line}\r\n")).collect::<Vec<_>>().concat();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{lines}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers = lines.map(|line| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_lowercase(), value.trim().to_owned())
    });
    Page { status, headers: headers.collect(), body }
}

pub(crate) async fn get(address: SocketAddr, path: &str) -> Page {
    http(address, "GET", path, &[]).await
}

/// Percent-encoded for a query string.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect::<Vec<_>>().concat()
}

/// Rows of the text form, parsed by a third-party reader.
pub(crate) fn lines_of(text: &[u8]) -> Rows {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text);
    reader.deserialize().map(Result::unwrap).collect()
}

/// Rows of the JSON object.
pub(crate) fn objects_of(page: &Page, names: &[&str]) -> Rows {
    let object = page.json();
    let records = object["records"].as_array().unwrap();
    assert_eq!(object["num_record"], records.len());
    let row = |record: &serde_json::Value| {
        assert_eq!(record.as_object().unwrap().len(), names.len());
        names.iter().map(|name| record[name].as_str().unwrap().to_owned()).collect()
    };
    records.iter().map(row).collect()
}
