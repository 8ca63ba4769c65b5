//! HTTP features besides the rows: conditions, compression, HEAD, other methods, and the contract.

use std::io::Read as _;

use quire_rpc::client::Channel;
use records::{Limits, Settings};

use crate::common::{ask, get, http, reader, serve};

const QUERY: &str = "/search?headerKey=a&headerValue=x";

fn file() -> String {
    "a,b\n".to_owned() + &"x,0123456789\n".repeat(1000)
}

#[tokio::test]
async fn a_caller_who_has_the_answer_is_told_so() {
    let served = serve(file(), Settings::default()).await;
    let page = get(served.address, QUERY).await;
    let tag = page.header("etag").to_owned();
    assert!(tag.starts_with('"') && tag.ends_with('"') && tag.len() > 2, "{tag}");
    let again = http(served.address, "GET", QUERY, &[&format!("If-None-Match: \"other\", {tag}")]).await;
    assert_eq!((again.status, again.header("etag"), &*again.body), (304, &*tag, &b""[..]));
    let other = http(served.address, "GET", &format!("{QUERY}&limit=1"), &[&format!("If-None-Match: {tag}")]).await;
    assert_eq!(other.status, 200);
    assert_ne!(other.header("etag"), tag);
    // The same file in another server has the same tag.
    let twin = serve(file(), Settings::default()).await;
    assert_eq!(get(twin.address, QUERY).await.header("etag"), tag);
}

#[tokio::test]
async fn head_has_the_headers_and_nothing_else() {
    let served = serve(file(), Settings::default()).await;
    for path in [QUERY, "/search_string?headerKey=a&headerValue=x", "/search_string?headerKey=a&headerValue=none"] {
        let page = get(served.address, path).await;
        let head = http(served.address, "HEAD", path, &[]).await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(page.header("content-length"), page.body.len().to_string());
        for name in ["content-length", "content-type", "etag", "vary", "num-record", "num-matching"] {
            assert_eq!(head.header(name), page.header(name), "{name}");
        }
    }
    assert_eq!(http(served.address, "HEAD", "/search", &[]).await.status, 400);
}

#[tokio::test]
async fn answers_are_compressed_as_the_caller_accepts_and_kept() {
    let served = serve(file(), Settings::default()).await;
    let plain = get(served.address, QUERY).await;
    assert_eq!((plain.header("content-encoding"), plain.header("vary")), ("", "accept-encoding"));
    let mut tags = vec![plain.header("etag").to_owned()];
    for coding in ["gzip", "zstd"] {
        for _ in 0..2 {
            let page = http(served.address, "GET", QUERY, &[&format!("Accept-Encoding: {coding}")]).await;
            assert_eq!((page.status, page.header("content-encoding")), (200, coding));
            assert_eq!(page.header("content-length"), page.body.len().to_string());
            let mut unpacked = Vec::new();
            match coding {
                "gzip" => flate2::read::GzDecoder::new(&*page.body).read_to_end(&mut unpacked).unwrap(),
                _ => zstd::Decoder::new(&*page.body).unwrap().read_to_end(&mut unpacked).unwrap(),
            };
            assert_eq!(unpacked, plain.body);
            tags.push(page.header("etag").to_owned());
        }
    }
    tags.dedup();
    assert_eq!(tags.len(), 3, "{tags:?}");
    assert!(served.records.levels().cache_bytes > 0);
    let small = http(served.address, "GET", &format!("{QUERY}&limit=1"), &["Accept-Encoding: gzip"]).await;
    assert_eq!(small.header("content-encoding"), "");
}

#[tokio::test]
async fn kept_answers_stay_within_their_bound() {
    let limits = Limits { cache_bytes: 10_000, ..Limits::default() };
    let served = serve(file(), Settings { limits, ..Settings::default() }).await;
    for limit in 100..300 {
        let page = http(served.address, "GET", &format!("{QUERY}&limit={limit}"), &["Accept-Encoding: zstd"]).await;
        assert_eq!(page.header("content-encoding"), "zstd");
    }
    let held = served.records.levels().cache_bytes;
    assert!((1..=10_000).contains(&held), "{held}");
    let limits = Limits { cache_bytes: 0, ..Limits::default() };
    let served = serve(file(), Settings { limits, ..Settings::default() }).await;
    let page = http(served.address, "GET", QUERY, &["Accept-Encoding: zstd"]).await;
    assert_eq!((page.header("content-encoding"), served.records.levels().cache_bytes), ("zstd", 0));
}

/// A thousand matching rows among as many others.
fn scattered() -> String {
    let row = |number: u32| format!("{},{number:0>100}\n", if number.is_multiple_of(2) { "x" } else { "y" });
    (0..2000).map(row).fold("a,b\n".to_owned(), |file, row| file + &row)
}

#[tokio::test]
async fn scattered_rows_are_kept_in_one_piece_when_they_are_asked_for_again() {
    let served = serve(scattered(), Settings::default()).await;
    let first = get(served.address, QUERY).await;
    let noted = served.records.levels().kept_bytes;
    assert!(noted < 1000, "asked for once: {noted}");
    for _ in 0..3 {
        assert_eq!(get(served.address, QUERY).await.body, first.body);
    }
    let kept = served.records.levels().kept_bytes;
    assert!(kept > first.body.len() as u64, "{kept}");
    // Another part of the same rows is another answer.
    let half = get(served.address, &format!("{QUERY}&result_size=0.75")).await;
    for _ in 0..3 {
        assert_eq!(get(served.address, &format!("{QUERY}&result_size=0.75")).await.body, half.body);
    }
    assert!(half.body.len() < first.body.len());
    let limits = Limits { kept_bytes: 0, ..Limits::default() };
    let served = serve(scattered(), Settings { limits, ..Settings::default() }).await;
    for _ in 0..3 {
        assert_eq!(get(served.address, QUERY).await.body, first.body);
    }
    assert_eq!(served.records.levels().kept_bytes, 0);
}

/// Bytes received, compressed or not.
async fn received(channel: &Channel) -> u64 {
    let before = channel.traffic().received_bytes;
    let client = records::grpc::wire::reader_service_client::ReaderServiceClient::new(channel.clone());
    let answer = client.get_record(ask("a", "x")).await.unwrap().into_inner();
    assert_eq!(answer.records.len(), 1000);
    assert!(answer.records.iter().all(|record| record.fields[1].value == "0123456789"));
    channel.traffic().received_bytes - before
}

#[tokio::test]
async fn grpc_answers_are_compressed_unless_it_is_turned_off() {
    let served = serve(file(), Settings::default()).await;
    let packed = received(reader(served.address).channel()).await;
    let served = serve(file(), Settings { compress: false, ..Settings::default() }).await;
    let plain = received(reader(served.address).channel()).await;
    assert!(packed * 10 < plain, "{packed} bytes, and {plain} uncompressed");
}

#[tokio::test]
async fn other_methods_and_paths_are_told_apart() {
    let served = serve(file(), Settings::default()).await;
    for (path, _) in records::rest::site(served.records.clone()).pages {
        for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            let page = http(served.address, method, path, &["Content-Length: 0"]).await;
            assert_eq!((page.status, page.header("allow")), (405, "GET,HEAD"), "{method} {path}");
        }
    }
    assert_eq!(get(served.address, "/searches").await.status, 404);
}

#[tokio::test]
async fn the_contract_lists_the_columns_there_are() {
    let served = serve(file(), Settings::default()).await;
    let site = records::rest::site(served.records.clone());
    let [part] = &site.parts[..] else { panic!("one part") };
    let contract = part();
    for path in ["/search", "/search_string"] {
        let parameters = contract["paths"][path]["get"]["parameters"].as_array().unwrap();
        assert_eq!(parameters[0]["name"], "headerKey");
        assert_eq!(parameters[0]["schema"]["enum"], serde_json::json!(["a", "b"]));
    }
}
