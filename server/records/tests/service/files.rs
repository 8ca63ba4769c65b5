//! Files that are loaded, files that are rejected, and files that change.

use std::fs;

use records::{Delimiter, Limits, Problem, Settings};

use crate::common::{ask, get, open, reader, rows_of, serve};

fn refused(csv: &[u8], limits: Limits) -> String {
    let error = open(csv, Settings { limits, ..Settings::default() }).map(|_| ()).unwrap_err();
    let said = error.to_string();
    let (path, reason) = said.split_once(".csv: ").unwrap();
    assert!(path.ends_with("some"), "{said}");
    reason.to_owned()
}

#[track_caller]
fn is_refused(csv: impl AsRef<[u8]>, start: &str) {
    let said = refused(csv.as_ref(), Limits::default());
    assert!(said.starts_with(start), "{said}");
}

#[test]
fn what_is_wrong_with_a_file_is_named_with_its_line() {
    is_refused("", "the file is empty; its first line must name the columns");
    is_refused("\n\n", "the file is empty");
    is_refused("1,2.5,-3\n4,5,6\n", "line 1: every field is a number; the first line must be a header");
    is_refused("a,,c\n", "line 1: column 2 has no name");
    is_refused("a,b,a\n1,2,3\n", "line 1: columns 1 and 3 are both named 'a'");
    is_refused("a,b\n1,2\n\"x\ny\",2\n3\n", "line 5: 1 fields, where the header has 2");
    is_refused("a,b\n1,2\n1,2,3\n", "line 3: 3 fields, where the header has 2");
    is_refused(b"a,b\n1,2\n3,\xff\n", "line 3: the field in column 2 is not valid UTF-8");
    is_refused(b"a,b\xe9\n1,2\n", "line 1: the field in column 2 is not valid UTF-8");
    is_refused("a,b\n1,2\n3,\"4\n5,6\n", "line 3: the quote that begins the field in column 2 is not closed");
    is_refused("a,\"b\n", "line 1: the quote that begins the field in column 2 is not closed");
    is_refused("a,b\n\"x\"y,2\n", "line 2: text follows the closing quote of the field in column 1");
    is_refused("a,b\r\n1,\"x\r\ny\" \r\n", "line 3: text follows the closing quote of the field in column 2");
    // Valid only if the comma between the halves is forgotten.
    is_refused(b"a,b\n1,2\n\xc3,\xa9\n", "line 3: the field in column 1 is not valid UTF-8");
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let settings = Settings { csv: Some("/nowhere/none.csv".into()), ..Settings::default() };
    let error = records::Records::open(settings).map(|_| ()).unwrap_err();
    assert!(matches!(error.problem, Problem::Open(_)), "{error:?}");
    assert!(error.to_string().starts_with("/nowhere/none.csv: the file cannot be opened"), "{error}");
}

#[test]
fn limits_of_a_file_are_reached_and_named() {
    let limits = Limits { columns: 2, ..Limits::default() };
    assert_eq!(refused(b"a,b,c\n", limits), "line 1: 3 columns, and the limit records.columns is 2");
    let limits = Limits { rows: 2, ..Limits::default() };
    assert_eq!(refused(b"a\nx\ny\nz\n", limits.clone()), "line 4: more rows than the limit records.rows, which is 2");
    open(b"a\nx\ny\n", Settings { limits, ..Settings::default() }).unwrap();
    let limits = Limits { field_bytes: 3, ..Limits::default() };
    let wanted = "line 2: the field in column 2 has 4 bytes, and the limit records.field_bytes is 3";
    assert_eq!(refused(b"a,b\nxyz,four\n", limits), wanted);
    let limits = Limits { row_bytes: 10, ..Limits::default() };
    assert!(refused(b"a,b\nxyz,12345678\n", limits).contains("records.row_bytes, which is 10"));
    let limits = Limits { total_bytes: 10, ..Limits::default() };
    let file = "a\n".to_owned() + &"some text\n".repeat(100_000);
    assert!(refused(file.as_bytes(), limits).contains("records.total_bytes is 10"));
}

#[test]
fn a_quote_that_is_never_closed_is_not_read_to_the_end_of_memory() {
    let limits = Limits { row_bytes: 1 << 20, field_bytes: 1 << 20, ..Limits::default() };
    let file = "a,b\n1,2\n\"never closed,".to_owned() + &"text\n".repeat(1 << 20);
    let said = refused(file.as_bytes(), limits);
    assert!(said.starts_with("line 3: ") && said.contains("is a quote not closed?"), "{said}");
}

#[tokio::test]
async fn other_delimiters_are_found_in_the_header_or_set() {
    for (csv, delimiter) in [
        ("\"b,\n\";a\n2,3;1\n", None),
        ("\u{feff}\r\nb;\ta\n2,3\t1\n", Some(Delimiter::Tab)),
        ("b\ta\n2,3\t1\n", None),
        // A comma in the header is the delimiter, whatever else is there.
        ("b;\t,a\n\"2,3\",1\n", None),
        ("b,;a\n2,3;1\n", Some(Delimiter::Semicolon)),
    ] {
        let served = serve(csv, Settings { delimiter, ..Settings::default() }).await;
        let answer = reader(served.address).get_record(ask("a", "1")).await.unwrap().into_inner();
        let values: Vec<&str> = answer.records[0].fields.iter().map(|field| &*field.value).collect();
        assert_eq!(values, ["2,3", "1"], "{csv:?}");
    }
}

#[tokio::test]
async fn a_field_of_10_mb_is_a_field_like_others() {
    let long = "x".repeat(10 << 20);
    let served = serve(format!("a,b\n{long},1\nshort,2\n"), Settings::default()).await;
    let answer = reader(served.address).get_record(ask("b", "1")).await.unwrap().into_inner();
    assert_eq!(rows_of(&answer, &["a", "b"]), [[long, "1".to_owned()]]);
}

#[tokio::test]
async fn byte_order_mark_empty_lines_carriage_returns_and_a_missing_last_line_end_are_no_data() {
    let served = serve("\u{feff}a,b\r\n\r\n1,2\r\n\r\n3,\"4\r\n\"", Settings::default()).await;
    let answer = reader(served.address).get_record(ask("b", "4\r\n")).await.unwrap().into_inner();
    assert_eq!(rows_of(&answer, &["a", "b"]), [["3", "4\r\n"]]);
    assert_eq!(served.records.levels().rows, 2);
}

#[tokio::test]
async fn a_file_without_rows_has_columns_and_no_match() {
    let served = serve("a,b\n", Settings::default()).await;
    let page = get(served.address, "/search?headerKey=a&headerValue=").await;
    assert_eq!((page.status, page.header("num-matching")), (200, "0"));
}

#[tokio::test]
async fn a_reload_answers_from_the_new_file() {
    let served = serve("a\nold\n", Settings::default()).await;
    let old = get(served.address, "/search?headerKey=a&headerValue=old").await;
    fs::write(&served.file, "b,a\n1,new\n").unwrap();
    served.records.reload().unwrap();
    let page = get(served.address, "/search_string?headerKey=a&headerValue=new").await;
    assert_eq!(page.body, b"1,new\n");
    let gone = get(served.address, "/search?headerKey=a&headerValue=old").await;
    assert_eq!(gone.header("num-record"), "0");
    assert_ne!(gone.header("etag"), old.header("etag"));
    assert_eq!(served.records.levels().reloads, 1);
}

#[tokio::test]
async fn a_reload_that_fails_leaves_everything_as_it_is() {
    let served = serve("a\nold\n", Settings::default()).await;
    for broken in [Some(""), Some("a,a\n"), Some("a\n1,2\n"), None] {
        match broken {
            Some(broken) => fs::write(&served.file, broken).unwrap(),
            None => fs::remove_file(&served.file).unwrap(),
        }
        served.records.reload().unwrap_err();
        let page = get(served.address, "/search_string?headerKey=a&headerValue=old").await;
        assert_eq!(page.body, b"old\n");
    }
    let levels = served.records.levels();
    assert_eq!((levels.reloads, levels.reload_failures, levels.rows), (0, 4, 1));
}

#[tokio::test]
async fn a_stream_stays_with_the_file_it_began_with() {
    let rows = 2000;
    let old = (0..rows).map(|row| format!("x,{row}\n")).collect::<Vec<_>>().concat();
    let served = serve(format!("a,b\n{old}"), Settings::default()).await;
    let request = records::grpc::wire::StreamRequest {
        key: "a".to_owned(),
        value: "x".to_owned(),
        page_rows: 1,
        ..records::grpc::wire::StreamRequest::default()
    };
    let mut stream = crate::common::streams(served.address).stream_records(request).await.unwrap().into_inner();
    let first = stream.message().await.unwrap().unwrap();
    assert_eq!(rows_of(&first, &["a", "b"]), [["x", "0"]]);
    fs::write(&served.file, "c\n1\n").unwrap();
    served.records.reload().unwrap();
    for row in 1..rows {
        let message = stream.message().await.unwrap().unwrap();
        assert_eq!(rows_of(&message, &["a", "b"]), [["x".to_owned(), row.to_string()]]);
    }
    assert!(stream.message().await.unwrap().is_none());
}
