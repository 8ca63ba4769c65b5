//! The service over gRPC, through a client of the contract.

use std::{net::SocketAddr, path::Path};

use bytes::Bytes;
use kv::{
    Clock, KeyValue, Limits, Settings,
    grpc::{
        PairsService, RangeService,
        wire::{
            CreateRequest, DeleteRequest, RetrieveRequest, ScanRequest, UpdateRequest, WatchEventKind, WatchRequest,
            key_range_service_client::KeyRangeServiceClient, key_range_service_server::KeyRangeServiceServer,
            key_value_service_client::KeyValueServiceClient, key_value_service_server::KeyValueServiceServer,
        },
    },
};
use quire_rpc::prost::Message;
use quire_rpc::{
    Code, Encoding, Server, Status,
    client::{Channel, Settings as ChannelSettings},
};
use tokio::net::TcpListener;

async fn serve(settings: Settings) -> (KeyValue, SocketAddr) {
    let kv = KeyValue::open(Path::new("unused"), settings, Clock::Wall).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::builder()
        .add_service(KeyValueServiceServer::new(PairsService::new(kv.clone())))
        .add_service(KeyRangeServiceServer::new(RangeService::new(kv.clone())))
        .build();
    tokio::spawn(async move { server.serve(listener, std::future::pending()).await });
    (kv, address)
}

fn channel(address: SocketAddr, compression: Option<Encoding>) -> Channel {
    let settings = ChannelSettings {
        message_bytes_max: 64 << 20,
        compression: compression.map(|encoding| (encoding, 0)),
        ..ChannelSettings::default()
    };
    Channel::builder(&format!("http://{address}")).unwrap().settings(settings).connect_lazy().unwrap()
}

fn refused<T: std::fmt::Debug>(answer: Result<T, Status>) -> (Code, String) {
    let status = answer.unwrap_err();
    (status.code(), status.message().to_owned())
}

fn create(key: &'static [u8], value: impl Into<Bytes>) -> CreateRequest {
    CreateRequest { key: Bytes::from_static(key), value: value.into(), ..CreateRequest::default() }
}

fn retrieve(key: &'static [u8]) -> RetrieveRequest {
    RetrieveRequest { key: Bytes::from_static(key), want_details: false }
}

#[tokio::test]
async fn refusals_of_the_contract_have_their_codes_and_no_words() {
    for read_delay_ms in [0, 1] {
        let read_delay = std::time::Duration::from_millis(read_delay_ms);
        let (_, address) = serve(Settings { read_delay, ..Settings::default() }).await;
        let client = KeyValueServiceClient::new(channel(address, None));
        let silent = |code| (code, String::new());
        assert_eq!(refused(client.retrieve(retrieve(b"k")).await), silent(Code::NotFound));
        let update = UpdateRequest { key: b"k"[..].into(), ..UpdateRequest::default() };
        assert_eq!(refused(client.update(update.clone()).await), silent(Code::NotFound));
        client.create(create(b"k", "v")).await.unwrap();
        assert_eq!(refused(client.create(create(b"k", "w")).await), silent(Code::AlreadyExists));
        let delete = DeleteRequest { key: b"k"[..].into(), want_details: true, ..DeleteRequest::default() };
        assert!(client.delete(delete.clone()).await.unwrap().get_ref().deleted);
        assert!(!client.delete(delete).await.unwrap().get_ref().deleted);
    }
}

#[tokio::test]
async fn refusals_of_ours_say_what_was_wrong() {
    let limits = Limits { key_bytes: 3, watchers: 1.into(), ..Limits::default() };
    let (_, address) = serve(Settings { limits, ..Settings::default() }).await;
    let client = KeyValueServiceClient::new(channel(address, None));
    let (code, said) = refused(client.create(create(b"long", "v")).await);
    assert_eq!((code, said.contains("kv.key_bytes is 3")), (Code::ResourceExhausted, true), "{said}");
    client.create(create(b"k", "v")).await.unwrap();
    let update = UpdateRequest { key: b"k"[..].into(), expected_version: Some(99), ..UpdateRequest::default() };
    let (code, said) = refused(client.update(update).await);
    assert_eq!((code, said.contains("read it again")), (Code::Aborted, true), "{said}");
    let range = KeyRangeServiceClient::new(channel(address, None));
    let _watch = range.watch(WatchRequest::default()).await.unwrap();
    let (code, said) = refused(range.watch(WatchRequest::default()).await);
    assert_eq!((code, said.contains("kv.watchers is 1")), (Code::ResourceExhausted, true), "{said}");
}

#[tokio::test]
async fn values_of_any_size_come_back_as_they_were_sent_compressed_or_not() {
    for (compression, read_delay_ms) in [(None, 0), (Some(Encoding::Gzip), 0), (None, 1)] {
        let read_delay = std::time::Duration::from_millis(read_delay_ms);
        let (kv, address) = serve(Settings { read_delay, ..Settings::default() }).await;
        let client = KeyValueServiceClient::new(channel(address, compression));
        for size in [0, 1, 100, 8191, 8192, 16_383, 16_384, 65_536, 1_000_000, (4 << 20) - 64] {
            let value: Vec<u8> = (0..size).map(|place: usize| u8::try_from(place * 7 % 251).unwrap()).collect();
            client.create(create(b"k", value.clone())).await.unwrap();
            let found = client.retrieve(retrieve(b"k")).await.unwrap().into_inner();
            assert!(found.value == value && found.version == 0 && found.time_to_live_ms.is_none(), "{size}");
            let found = client.retrieve(RetrieveRequest { want_details: true, ..retrieve(b"k") }).await.unwrap();
            assert!(found.get_ref().value == value && found.get_ref().version > 0, "{size}");
            let bytes = kv.levels().bytes;
            assert!(bytes < size + 1000, "{size} bytes are held by {bytes}");
            client.delete(DeleteRequest { key: b"k"[..].into(), ..DeleteRequest::default() }).await.unwrap();
        }
    }
}

#[tokio::test]
async fn replies_have_details_only_if_the_request_wants_them() {
    // With a delay the calls use the waiting path.
    for delay_ms in [0, 1] {
        let delay = std::time::Duration::from_millis(delay_ms);
        let (_, address) = serve(Settings { read_delay: delay, write_delay: delay, ..Settings::default() }).await;
        let client = KeyValueServiceClient::new(channel(address, None));
        for want_details in [false, true] {
            let create = CreateRequest { time_to_live_ms: 60_000, want_details, ..create(b"k", "v") };
            let created = client.create(create).await.unwrap().get_ref().version;
            let found = client.retrieve(RetrieveRequest { want_details, ..retrieve(b"k") }).await.unwrap().into_inner();
            assert_eq!((found.version, found.time_to_live_ms.is_some()), (created, want_details));
            let update = UpdateRequest {
                key: b"k"[..].into(),
                value: b"w"[..].into(),
                want_details,
                ..UpdateRequest::default()
            };
            let updated = client.update(update).await.unwrap().get_ref().version;
            assert_eq!((created > 0, updated > created), (want_details, want_details));
            let delete = DeleteRequest { key: b"k"[..].into(), want_details, ..DeleteRequest::default() };
            assert_eq!(client.delete(delete).await.unwrap().get_ref().deleted, want_details);
        }
    }
}

#[tokio::test]
async fn a_client_with_the_usual_limit_scans_and_watches_the_largest_values_too() {
    let (_, address) = serve(Settings::default()).await;
    let usual = || Channel::builder(&format!("http://{address}")).unwrap().connect_lazy().unwrap();
    let (client, range) = (KeyValueServiceClient::new(usual()), KeyRangeServiceClient::new(usual()));
    let mut watch = range.watch(WatchRequest::default()).await.unwrap().into_inner();
    watch.message().await.unwrap().unwrap();
    let largest = Limits::default().value_bytes;
    let sizes = [(&b""[..], largest), (b"k", 1000), (b"l", largest - 3), (b"m", largest - 1000)];
    for (key, bytes) in sizes {
        client.create(create(key, vec![7; bytes])).await.unwrap();
        let event = watch.message().await.unwrap().unwrap();
        assert_eq!(
            (event.value_left_out, event.value.len()),
            if bytes > largest - 10 { (true, 0) } else { (false, bytes) }
        );
    }
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let request = ScanRequest { start_after: after, ..ScanRequest::default() };
        let page = range.scan(request).await.unwrap().into_inner();
        seen.extend(page.entries.into_iter().map(|entry| (entry.key, entry.value.len(), entry.value_left_out)));
        after = page.next_start_after;
        if after.is_none() {
            break;
        }
    }
    let found: Vec<_> = seen.iter().map(|(key, bytes, left_out)| (&key[..], *bytes, *left_out)).collect();
    assert_eq!(found, [(&b""[..], 0, true), (b"k", 1000, false), (b"l", 0, true), (b"m", largest - 1000, false)]);
    for (key, bytes) in sizes {
        assert_eq!(client.retrieve(retrieve(key)).await.unwrap().get_ref().value.len(), bytes);
    }
}

#[tokio::test]
async fn a_value_beside_a_flood_of_unknown_fields_does_not_keep_the_flood() {
    let (kv, address) = serve(Settings::default()).await;
    let padded = [
        Message::encode_to_vec(&create(b"k", vec![1; 20_000])),
        // Field 9, 150,000 bytes; all of it fits the stream's first window.
        [&[9 << 3 | 2, 0xf0, 0x93, 0x09][..], &vec![0; 150_000]].concat(),
    ]
    .concat();
    let decoded = <CreateRequest as Message>::decode(&padded[..]).unwrap();
    assert_eq!(decoded.value.len(), 20_000);
    let body = [&[0][..], &u32::try_from(padded.len()).unwrap().to_be_bytes(), &padded].concat();
    post(address, "/io.grpc.KeyValueService/Create", &body).await;
    let levels = kv.levels();
    assert!(levels.entries == 1 && levels.bytes < 21_000, "{levels:?}");
}

/// One call over a raw connection, for bytes that no generated client would send.
async fn post(address: SocketAddr, path: &str, body: &[u8]) {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut io = tokio::net::TcpStream::connect(address).await.unwrap();
    let head =
        [&[0x83, 0x86, 0x44, u8::try_from(path.len()).unwrap()][..], path.as_bytes(), &[0x5f, 16], b"application/grpc"];
    let mut sent = [&quire_rpc::http2::PREFACE[..], &frame(4, 0, 0, &[]), &frame(1, 4, 1, &head.concat())].concat();
    let mut chunks = body.chunks(16_384).peekable();
    while let Some(chunk) = chunks.next() {
        sent.extend(frame(0, u8::from(chunks.peek().is_none()), 1, chunk));
    }
    io.write_all(&sent).await.unwrap();
    let (mut seen, mut buffer) = (Vec::new(), [0; 4096]);
    // The trailers' only field whose name is not in HPACK's static table.
    while !seen.windows(8).any(|window| window == GRPC_STATUS) {
        let count = io.read(&mut buffer).await.unwrap();
        assert!(count > 0, "closed without an answer");
        seen.extend_from_slice(&buffer[..count]);
    }
}

/// The name `grpc-status` in HPACK's Huffman code.
const GRPC_STATUS: [u8; 8] = [0x9a, 0xca, 0xc8, 0xb2, 0x12, 0x34, 0xda, 0x8f];

#[tokio::test]
async fn pages_carry_large_values_and_the_place_to_go_on() {
    let (_, address) = serve(Settings::default()).await;
    let client = KeyValueServiceClient::new(channel(address, None));
    for key in [&b"a1"[..], b"a2", b"a3", b"b"] {
        let value = vec![key[key.len() - 1]; if key == b"a2" { 100_000 } else { 3 }];
        let request =
            CreateRequest { key: key.into(), value: value.into(), time_to_live_ms: 60_000, want_details: false };
        client.create(request).await.unwrap();
    }
    let range = KeyRangeServiceClient::new(channel(address, None));
    let ask = |page_size, start_after: Option<&'static [u8]>, keys_only| ScanRequest {
        prefix: b"a"[..].into(),
        start_after: start_after.map(Bytes::from_static),
        page_size,
        keys_only,
    };
    let page = range.scan(ask(2, None, false)).await.unwrap().into_inner();
    let sizes: Vec<_> = page.entries.iter().map(|entry| (entry.key.clone(), entry.value.len())).collect();
    assert_eq!(sizes, [(b"a1"[..].into(), 3), (b"a2"[..].into(), 100_000)]);
    assert!(page.entries.iter().all(|entry| entry.time_to_live_ms.is_some_and(|left| left <= 60_000)));
    assert_eq!(page.next_start_after.as_deref(), Some(&b"a2"[..]));
    let page = range.scan(ask(2, Some(b"a2"), true)).await.unwrap().into_inner();
    assert_eq!((page.entries.len(), page.entries[0].value.len(), page.next_start_after), (1, 0, None));
}

#[tokio::test]
async fn a_watch_begins_with_a_word_and_ends_with_a_reason() {
    let limits = Limits { watch_events: 2, ..Limits::default() };
    let (kv, address) = serve(Settings { limits, ..Settings::default() }).await;
    let client = KeyValueServiceClient::new(channel(address, None));
    let range = KeyRangeServiceClient::new(channel(address, None));
    let mut watch = range.watch(WatchRequest { prefix: b"k"[..].into() }).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().kind(), WatchEventKind::Started);
    let request = CreateRequest { want_details: true, ..create(b"k", "v") };
    let version = client.create(request).await.unwrap().get_ref().version;
    let event = watch.message().await.unwrap().unwrap();
    assert_eq!((event.kind(), &event.value[..], event.version), (WatchEventKind::Put, &b"v"[..], version));
    // Far more than the windows hold while the client does not read.
    let value = vec![7; 1 << 20];
    for _ in 0..40 {
        let update = UpdateRequest { key: b"k"[..].into(), value: value.clone().into(), ..UpdateRequest::default() };
        client.update(update).await.unwrap();
        if kv.levels().watchers == 0 {
            break;
        }
    }
    assert_eq!(kv.levels().watchers, 0);
    let end = loop {
        match watch.message().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    let (code, said) = refused(end);
    assert_eq!((code, said.contains("kv.watch_events is 2")), (Code::ResourceExhausted, true), "{said}");
}
