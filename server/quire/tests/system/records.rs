//! The record queries in the server: on by default, loaded at the start, counted, and reloaded at SIGHUP.

use std::{fs, path::Path};

use quire_rpc::Code;
use records::grpc::wire::record_stream_service_client::RecordStreamServiceClient;
use records::grpc::wire::{
    ReaderRequest, StreamRequest, reader::reader_service_client, reader_service_client::ReaderServiceClient,
};

use super::bad_starts::one_line;
use crate::common::{
    http, poll,
    process::{Server, Start},
    store::folder,
};

const TICKETS: &str = "plate,street\nA1,Jacobs\nB2,Main\nC3,Jacobs\n";

fn ask(key: &str, value: &str) -> ReaderRequest {
    ReaderRequest { key: key.to_owned(), value: value.to_owned(), ..ReaderRequest::default() }
}

fn serve(folder: &Path, csv: &str) -> Server {
    fs::write(folder.join("tickets.csv"), csv).expect("a file");
    Start::default().flag("--records-csv=tickets.csv").serve(folder)
}

fn plates(server: &Server, street: &str) -> String {
    let page = http::get(server.address, &format!("/search_string?headerKey=street&headerValue={street}"));
    assert_eq!(page.status, 200, "{page:?}");
    page.body
}

#[tokio::test]
async fn a_file_is_answered_over_grpc_streams_and_http_and_counted() {
    let folder = folder();
    let server = serve(folder.path(), TICKETS);
    let client = ReaderServiceClient::new(server.channel());
    let answer = client.get_record(ask("street", "Jacobs")).await.expect("an answer").into_inner();
    assert_eq!(answer.num_record, 2);
    client.get_record_string(ask("street", "Jacobs")).await.expect("an answer");
    let streams = RecordStreamServiceClient::new(server.channel());
    let request = StreamRequest { key: "street".to_owned(), ..StreamRequest::default() };
    let mut stream = streams.stream_records(request).await.expect("a stream").into_inner();
    while stream.message().await.expect("a message").is_some() {}
    assert_eq!(plates(&server, "Jacobs"), "A1,Jacobs\nC3,Jacobs\n");
    assert_eq!(http::get(server.address, "/search?headerKey=x&headerValue=y").status, 400);
    let log = server.log.until("records are loaded");
    assert!(log.contains("\"rows\":3"), "{log}");
    let value = |series: &str| http::metric(server.address, series);
    assert_eq!(value("quire_records_rows"), 3);
    assert!(value("quire_records_bytes") > 100);
    assert_eq!(value("quire_records_rest_answers_total"), 1);
    assert_eq!(value("quire_records_rest_refusals_total"), 1);
    // The same methods in the package of some clients' contract.
    let packaged = reader_service_client::ReaderServiceClient::new(server.channel());
    let again = packaged.get_record(ask("street", "Jacobs")).await.expect("an answer").into_inner();
    assert_eq!(again, answer);
    packaged.get_record_string(ask("street", "Jacobs")).await.expect("an answer");
    assert_eq!(value("quire_grpc_calls_total{method=\"/reader.ReaderService/GetRecord\",code=\"Ok\"}"), 1);
    for method in ["ReaderService/GetRecord", "ReaderService/GetRecordString", "RecordStreamService/StreamRecords"] {
        assert_eq!(value(&format!("quire_grpc_calls_total{{method=\"/{method}\",code=\"Ok\"}}")), 1);
    }
    server.stop();
}

#[tokio::test]
async fn without_a_file_the_service_says_so_and_turned_off_it_is_not_there() {
    let folder = folder();
    let server = Server::start(folder.path());
    let client = ReaderServiceClient::new(server.channel());
    let told = client.get_record(ask("a", "b")).await.expect_err("no file");
    assert!(told.code() == Code::FailedPrecondition && told.message().contains("records.csv"), "{told}");
    let page = http::get(server.address, "/search?headerKey=a&headerValue=b");
    assert!(page.status == 503 && page.body.contains("records.csv"), "{page:?}");
    server.stop();
    let server = Start::default().set("records.enabled=false").serve(folder.path());
    let client = ReaderServiceClient::new(server.channel());
    assert_eq!(client.get_record(ask("a", "b")).await.expect_err("off").code(), Code::Unimplemented);
    assert_eq!(http::get(server.address, "/search").status, 404);
    server.stop();
}

#[test]
fn a_hangup_loads_the_file_again_and_a_bad_one_is_told_and_left() {
    let folder = folder();
    let server = serve(folder.path(), TICKETS);
    let file = folder.path().join("tickets.csv");
    let series = |name: &str| format!("quire_records_{name}_total");
    fs::write(&file, "plate,street\nD4,Jacobs\n").expect("a file");
    server.signal("HUP");
    crate::common::wait_for("the new file", || (plates(&server, "Jacobs") == "D4,Jacobs\n").then_some(()));
    fs::remove_file(&file).expect("it goes");
    server.signal("HUP");
    let log = server.log.until("records were not loaded again; the last ones are still served");
    assert!(log.contains("tickets.csv: the file cannot be opened"), "{log}");
    assert_eq!(plates(&server, "Jacobs"), "D4,Jacobs\n");
    assert_eq!(http::metric(server.address, &series("reloads")), 1);
    assert_eq!(http::metric(server.address, &series("reload_failures")), 1);
    server.stop();
}

#[tokio::test]
async fn answers_keep_coming_while_the_file_is_loaded_anew() {
    let folder = folder();
    let rows = (0..20_000).map(|row| format!("P{row},Other\n")).collect::<Vec<_>>().concat();
    let csv = TICKETS.to_owned() + &rows;
    let server = serve(folder.path(), &csv);
    let client = ReaderServiceClient::new(server.channel());
    for round in 1..=3 {
        server.signal("HUP");
        poll("the reload", async || {
            let answer = client.get_record(ask("street", "Jacobs")).await.expect("an answer").into_inner();
            assert_eq!(answer.num_record, 2);
            (http::metric(server.address, "quire_records_reloads_total") >= round).then_some(())
        })
        .await;
    }
    server.stop();
}

#[test]
fn a_delimiter_found_in_the_header_is_logged() {
    let folder = folder();
    let server = serve(folder.path(), "plate;street\nA1;Jacobs\n");
    assert_eq!(plates(&server, "Jacobs"), "A1,Jacobs\n");
    server.log.until("records.delimiter=semicolon");
    server.stop();
}

#[test]
fn a_file_that_cannot_be_loaded_is_a_start_that_cannot_be() {
    let folder = folder();
    let start = Start::default().flag("--records-csv=none.csv");
    let line = one_line(&mut start.command(folder.path()));
    assert!(line.starts_with("none.csv: the file cannot be opened: "), "{line}");
    fs::write(folder.path().join("bad.csv"), "a,b\n1\n").expect("a file");
    let start = Start::default().set("records.csv=bad.csv");
    let line = one_line(&mut start.command(folder.path()));
    assert_eq!(line, "bad.csv: line 2: 1 fields, where the header has 2; every row needs as many");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[test]
fn settings_that_cannot_be_are_named() {
    let folder = folder();
    for (setting, said) in [
        ("records.scan=fast", "records.scan"),
        ("records.encode=never", "records.encode"),
        ("records.answer_bytes=0", "from 1"),
        ("records.rows=4294967295", "from 0 to 4294967294"),
        ("records.csv=", "the path of a CSV file"),
    ] {
        let line = one_line(&mut Start::default().set(setting).command(folder.path()));
        assert!(line.contains(said), "{setting}: {line}");
    }
}
