//! Limits of answers and of work.

use quire_rpc::Code;
use records::{Encode, Limits, Scan, Settings, grpc::wire::ReaderRequest};

use crate::common::{ask, get, reader, refused, serve};

fn file() -> String {
    "a,b\n".to_owned() + &"x,0123456789\n".repeat(1000)
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_refused_with_the_way_out() {
    for encode in [Encode::Once, Encode::Each] {
        let limits = Limits { answer_bytes: 10_000, ..Limits::default() };
        let served = serve(file(), Settings { encode, limits, ..Settings::default() }).await;
        let client = reader(served.address);
        let (code, said) = refused(client.get_record(ask("a", "x")).await);
        assert_eq!(code, Code::ResourceExhausted);
        for part in ["records.answer_bytes is 10000", "offset and limit", "StreamRecords"] {
            assert!(said.contains(part), "{said}");
        }
        let (code, _) = refused(client.get_record_string(ask("a", "x")).await);
        assert_eq!(code, Code::ResourceExhausted);
        for path in ["/search", "/search_string"] {
            let error = get(served.address, &format!("{path}?headerKey=a&headerValue=x")).await.error(413);
            assert!(error.contains("offset and limit"), "{error}");
        }
        let page = ReaderRequest { offset: 990, limit: 100, ..ask("a", "x") };
        assert_eq!(client.get_record(page).await.unwrap().get_ref().num_record, 10);
    }
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_given() {
    // 13 bytes per line.
    let limits = Limits { answer_bytes: 13_000, ..Limits::default() };
    let served = serve(file(), Settings { limits, ..Settings::default() }).await;
    let page = get(served.address, "/search_string?headerKey=a&headerValue=x").await;
    assert_eq!((page.status, page.body.len()), (200, 13_000));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_beyond_those_that_may_wait_are_refused_and_the_others_answered() {
    let limits = Limits { jobs: 1, jobs_queued: 1, ..Limits::default() };
    let settings = Settings { scan: Scan::Sequential, limits, ..Settings::default() };
    let served = serve("a,b\n".to_owned() + &"x,y\n".repeat(200_000), settings).await;
    let client = reader(served.address);
    let calls = (0..50).map(|_| {
        let client = client.clone();
        tokio::spawn(async move { client.get_record(ask("a", "z")).await.map(|answer| answer.into_inner().num_record) })
    });
    let (mut answered, mut busy) = (0, 0);
    for call in calls.collect::<Vec<_>>() {
        match call.await.unwrap() {
            Ok(rows) => {
                assert_eq!(rows, 0);
                answered += 1;
            }
            Err(status) => {
                let said = status.message();
                assert!(
                    status.code() == Code::ResourceExhausted && said.contains("records.jobs_queued is 1"),
                    "{said}"
                );
                busy += 1;
            }
        }
    }
    assert!(answered >= 1 && busy >= 1, "{answered} answered, {busy} refused");
    assert_eq!(served.records.levels().jobs_queued, 0);
}
