//! The same rows by every way of querying, finding and encoding.

use proptest::{prelude::*, test_runner::TestRunner};
use quire_rpc::Code;
use records::{Encode, Keep, Scan, Settings};

use crate::common::{ask, encoded, get, lines_of, objects_of, reader, refused, rows_of, serve};

const TICKETS: &str =
    "plate,street,fine\nA1,Jacobs,10\nB2,Main,20\nC3,Jacobs,30\nD4,\"Jacobs, east\",\"4\"\"0\"\nE5,Jacobs,\n";

fn ways() -> Vec<Settings> {
    let mut ways = Vec::new();
    for scan in [Scan::Sequential, Scan::Parallel, Scan::Indexed] {
        for encode in [Encode::Each, Encode::Once] {
            ways.push(Settings { scan, encode, scan_threads: 3, ..Settings::default() });
        }
    }
    let none = Keep { protobuf: false, json: false, text: false };
    ways.push(Settings { keep: none, ..Settings::default() });
    ways
}

#[tokio::test]
async fn every_way_gives_the_same_bytes() {
    let mut seen = Vec::new();
    for settings in ways() {
        let served = serve(TICKETS, settings).await;
        let client = reader(served.address);
        let records = client.get_record(ask("street", "Jacobs")).await.unwrap().into_inner();
        let string = client.get_record_string(ask("street", "Jacobs")).await.unwrap().into_inner();
        let object = get(served.address, "/search?headerKey=street&headerValue=Jacobs").await;
        let lines = get(served.address, "/search_string?headerKey=street&headerValue=Jacobs").await;
        assert_eq!((object.status, lines.status), (200, 200));
        assert_eq!(string.data.as_bytes(), lines.body, "gRPC and HTTP");
        assert_eq!((records.num_record, records.num_matching), (3, 3));
        let tags = [object.header("etag").to_owned(), lines.header("etag").to_owned()];
        seen.push((records, string, object.body, lines.body, tags));
    }
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    let (records, string, object, ..) = &seen[0];
    assert_eq!(string.data, "A1,Jacobs,10\nC3,Jacobs,30\nE5,Jacobs,\n");
    let wanted = concat!(
        r#"{"records":[{"plate":"A1","street":"Jacobs","fine":"10"},{"plate":"C3","street":"Jacobs","fine":"30"},"#,
        r#"{"plate":"E5","street":"Jacobs","fine":""}],"num_record":3,"num_matching":3}"#
    );
    assert_eq!(String::from_utf8_lossy(object), wanted);
    assert_eq!(rows_of(records, &["plate", "street", "fine"]), lines_of(string.data.as_bytes()));
}

#[tokio::test]
async fn a_share_and_a_page_of_it_are_answered_alike_by_every_way() {
    for settings in ways() {
        let served = serve(TICKETS, settings).await;
        let request = records::grpc::wire::ReaderRequest {
            result_size: Some(0.9),
            offset: 1,
            limit: 5,
            ..ask("street", "Jacobs")
        };
        let answer = reader(served.address).get_record(request).await.unwrap().into_inner();
        let page =
            get(served.address, "/search?headerKey=street&headerValue=Jacobs&result_size=0.9&offset=1&limit=5").await;
        let names = ["plate", "street", "fine"];
        // 0.9 of 3 is 2, of which the first is skipped.
        assert_eq!(rows_of(&answer, &names), [["C3", "Jacobs", "30"]]);
        assert_eq!(objects_of(&page, &names), [["C3", "Jacobs", "30"]]);
        assert_eq!((answer.num_record, answer.num_matching), (1, 3));
        assert_eq!((page.header("num-record"), page.header("num-matching")), ("1", "3"));
    }
}

#[tokio::test]
async fn a_value_in_quotes_that_no_row_has_is_the_value_that_the_quotes_hold() {
    let csv = "plate,street\nA1,\"Jacobs\"\nB2,\"\"\"Main\"\"\"\nC3,Main\nD4,\nE5,\"7\"\" pipe\"\n";
    for settings in ways() {
        let served = serve(csv, settings).await;
        let client = reader(served.address);
        for (value, plate) in [
            ("\"Jacobs\"", Some("A1")),
            ("\"Main\"", Some("B2")),
            ("\"\"", Some("D4")),
            ("\"7\"\" pipe\"", Some("E5")),
            ("\"jacobs\"", None),
            ("\"", None),
        ] {
            let answer = client.get_record(ask("street", value)).await.unwrap().into_inner();
            let plates: Vec<_> = answer.records.iter().map(|record| &*record.fields[0].value).collect();
            assert_eq!(plates, plate.into_iter().collect::<Vec<_>>(), "{value}");
            assert_eq!(answer.num_matching, i64::from(plate.is_some()), "{value}");
        }
    }
}

#[tokio::test]
async fn no_match_is_an_empty_answer() {
    for settings in ways() {
        let served = serve(TICKETS, settings).await;
        let client = reader(served.address);
        let answer = client.get_record(ask("street", "jacobs")).await.unwrap().into_inner();
        assert_eq!(answer, records::grpc::wire::ReaderResponse::default());
        let answer = client.get_record_string(ask("street", "jacobs")).await.unwrap().into_inner();
        assert_eq!(answer, records::grpc::wire::ReaderResponseString::default());
        let page = get(served.address, "/search?headerKey=street&headerValue=jacobs").await;
        assert_eq!(page.body, br#"{"records":[],"num_record":0,"num_matching":0}"#);
        let page = get(served.address, "/search_string?headerKey=street&headerValue=jacobs").await;
        assert_eq!((page.status, &*page.body), (200, &b""[..]));
    }
}

#[tokio::test]
async fn questions_that_are_none_are_told_what_would_be_one() {
    let served = serve(TICKETS, Settings::default()).await;
    let client = reader(served.address);
    let (code, said) = refused(client.get_record(ask("Street", "x")).await);
    assert_eq!(code, Code::InvalidArgument);
    assert_eq!(said, "there is no column 'Street'; the columns are plate, street, fine");
    let (code, _) = refused(client.get_record_string(ask("", "x")).await);
    assert_eq!(code, Code::InvalidArgument);
    for share in [-0.1, 1.5, f64::NAN] {
        let request = records::grpc::wire::ReaderRequest { result_size: Some(share), ..ask("street", "Jacobs") };
        let (code, said) = refused(client.get_record(request).await);
        assert!(code == Code::InvalidArgument && said.contains("from 0 to 1"), "{said}");
    }
    for path in ["/search", "/search_string"] {
        let error = get(served.address, path).await.error(400);
        assert_eq!(error, "the parameter headerKey is missing; it must be a column's name");
        let error = get(served.address, &format!("{path}?headerKey=Street&headerValue=x")).await.error(400);
        assert!(error.contains("plate, street, fine"), "{error}");
        let error = get(served.address, &format!("{path}?headerKey=street&headerValue=x&result_size=NaN")).await;
        assert!(error.error(400).contains("from 0 to 1"));
    }
}

#[tokio::test]
async fn without_a_file_callers_are_told_which_setting_names_one() {
    let records = records::Records::open(Settings::default()).unwrap();
    assert!(!records.is_loaded());
    let address = crate::common::listen(records).await;
    let (code, said) = refused(reader(address).get_record(ask("a", "b")).await);
    assert!(code == Code::FailedPrecondition && said.contains("records.csv"), "{said}");
    let error = get(address, "/search?headerKey=a&headerValue=b").await.error(503);
    assert!(error.contains("records.csv"), "{error}");
}

/// Values of few characters, so that some are equal, all needing escapes in one form or another.
fn value() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "\"", ",", "\n", "\r", "\0", "\u{1b}", "😀", "\\", ""]), 0..4)
        .prop_map(|parts| parts.concat())
}

#[test]
fn any_file_is_answered_row_by_row_as_a_reader_of_csv_has_it() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let files =
        (1..4usize).prop_flat_map(|columns| prop::collection::vec(prop::collection::vec(value(), columns), 1..30));
    let mut runner = TestRunner::new(ProptestConfig { cases: 40, ..ProptestConfig::default() });
    let checked = runner.run(&(files, any::<prop::sample::Index>()), |(rows, pick)| {
        let names = &["x", "\"y", "z\u{1}😀"][..rows[0].len()];
        let mut writer = csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).from_writer(Vec::new());
        writer.write_record(names).unwrap();
        for row in &rows {
            writer.write_record(row).unwrap();
        }
        let file = writer.into_inner().unwrap();
        let place = pick.index(rows[0].len() * rows.len());
        let (column, value) = (place % rows[0].len(), rows[place / rows[0].len()][place % rows[0].len()].clone());
        let wanted: Vec<Vec<String>> = rows.iter().filter(|row| row[column] == value).cloned().collect();
        runtime.block_on(async {
            let served = serve(file, Settings::default()).await;
            let answer = reader(served.address).get_record(ask(names[column], &value)).await.unwrap().into_inner();
            prop_assert_eq!(rows_of(&answer, names), wanted.clone());
            let query = format!("headerKey={}&headerValue={}", encoded(names[column]), encoded(&value));
            let page = get(served.address, &format!("/search?{query}")).await;
            prop_assert_eq!(objects_of(&page, names), wanted.clone());
            let page = get(served.address, &format!("/search_string?{query}")).await;
            prop_assert_eq!(lines_of(&page.body), wanted);
            Ok(())
        })
    });
    checked.unwrap();
}
