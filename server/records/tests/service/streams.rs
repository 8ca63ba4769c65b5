//! Answers in many messages.

use quire_rpc::Code;
use records::{
    Encode, Limits, Settings,
    grpc::wire::{ReaderResponse, StreamRequest},
};

use crate::common::{Served, refused, rows_of, serve, streams};

fn ask(page_rows: u32) -> StreamRequest {
    StreamRequest { key: "a".to_owned(), value: "x".to_owned(), page_rows, ..StreamRequest::default() }
}

async fn messages(served: &Served, request: StreamRequest) -> Vec<ReaderResponse> {
    let mut stream = streams(served.address).stream_records(request).await.unwrap().into_inner();
    let mut messages = Vec::new();
    while let Some(message) = stream.message().await.unwrap() {
        messages.push(message);
    }
    messages
}

fn file(rows: usize) -> String {
    let rows = (0..rows).map(|row| if row % 3 == 2 { "y,none\n".to_owned() } else { format!("x,{row}\n") });
    "a,b\n".to_owned() + &rows.collect::<String>()
}

#[tokio::test]
async fn messages_have_as_many_rows_as_were_asked_for_and_all_in_order() {
    for encode in [Encode::Once, Encode::Each] {
        let served = serve(file(100), Settings { encode, ..Settings::default() }).await;
        let messages = messages(&served, ask(10)).await;
        let sizes: Vec<i64> = messages.iter().map(|message| message.num_record).collect();
        assert_eq!(sizes, [10, 10, 10, 10, 10, 10, 7]);
        assert!(messages.iter().all(|message| message.num_matching == 67));
        let rows: Vec<_> = messages.iter().flat_map(|message| rows_of(message, &["a", "b"])).collect();
        let wanted: Vec<_> = (0..100).filter(|row| row % 3 != 2).map(|row| ["x".to_owned(), row.to_string()]).collect();
        assert_eq!(rows, wanted);
    }
}

#[tokio::test]
async fn messages_are_bounded_in_bytes_but_hold_at_least_a_row() {
    for (page_bytes, most) in [(1, 1), (200, 17), (1 << 20, 67)] {
        let limits = Limits { page_bytes, ..Limits::default() };
        let served = serve(file(100), Settings { limits, ..Settings::default() }).await;
        let messages = messages(&served, ask(0)).await;
        assert_eq!(messages.iter().map(|message| message.records.len()).sum::<usize>(), 67);
        for message in &messages {
            let rows = ReaderResponse { num_record: 0, num_matching: 0, ..message.clone() };
            let bytes = quire_rpc::prost::Message::encoded_len(&rows);
            assert!((1..=most).contains(&message.records.len()), "{} rows", message.records.len());
            assert!(bytes <= page_bytes || message.records.len() == 1, "{bytes}");
        }
    }
}

#[tokio::test]
async fn a_stream_has_a_share_a_page_and_an_end() {
    let served = serve(file(100), Settings::default()).await;
    let request = StreamRequest { result_size: Some(0.5), offset: 30, limit: 10, ..ask(0) };
    let part = messages(&served, request).await;
    assert_eq!(part.iter().map(|message| message.num_record).sum::<i64>(), 3);
    let nothing = messages(&served, StreamRequest { value: "z".to_owned(), ..ask(0) }).await;
    assert_eq!(nothing, [ReaderResponse::default()]);
}

#[tokio::test]
async fn a_question_that_is_none_ends_the_stream_with_the_reason() {
    let served = serve(file(3), Settings::default()).await;
    let request = StreamRequest { key: "c".to_owned(), ..ask(0) };
    let mut stream = match streams(served.address).stream_records(request).await {
        Ok(stream) => stream.into_inner(),
        Err(status) => return assert_eq!(status.code(), Code::InvalidArgument),
    };
    let (code, said) = refused(stream.message().await);
    assert!(code == Code::InvalidArgument && said.contains("a, b"), "{said}");
}

#[tokio::test]
async fn an_answer_too_large_for_one_message_comes_in_a_stream() {
    let long = "z".repeat(1 << 20);
    let file = "a,b\n".to_owned() + &format!("x,{long}\n").repeat(20);
    let limits = Limits { answer_bytes: 1 << 20, ..Limits::default() };
    let served = serve(file, Settings { limits, ..Settings::default() }).await;
    let messages = messages(&served, ask(0)).await;
    assert_eq!(messages.len(), 20);
    assert!(messages.iter().all(|message| message.records[0].fields[1].value == long));
}
