//! Limits, and the ends of conversations.

use std::time::Duration;

use tasks::{Concurrency, Limits, Settings};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    time::Instant,
};

use crate::client::{Lab, PIPE_BYTES, io, took};

fn limited(limits: Limits) -> Lab {
    Lab::new(&Settings { limits, ..Settings::default() })
}

#[tokio::test(start_paused = true)]
async fn a_bad_line_ends_the_connection_after_earlier_replies_and_is_counted() {
    let table =
        [("2:5", "type"), ("hello", "type"), ("", "type"), ("0:x", "seed"), ("1:", "seed"), (&"0".repeat(300), "long")];
    let lab = Lab::new(&Settings::default());
    for (line, _) in table {
        let mut client = lab.client();
        client.send(format!("1:42\n0:41\n{line}\n0:68\n")).await;
        let (replies, reason) = client.end().await;
        assert_eq!((replies, reason), (vec![io(42).0, 137], "bad line"), "{line}");
    }
    for (reason, count) in [("type", 3), ("seed", 2), ("long", 1)] {
        assert_eq!(lab.metric(&format!("quire_tasks_bad_lines_total{{reason=\"{reason}\"}}")), count, "{reason}");
    }
    assert_eq!(lab.metric("quire_tasks_closed_total{reason=\"bad line\"}"), 6);
}

#[tokio::test(start_paused = true)]
async fn a_half_closed_client_gets_all_replies_also_to_a_line_without_end() {
    let lab = Lab::new(&Settings::default());
    for (sent, replies) in [("1:42\n1:1", vec![io(42).0, io(1).0]), ("0:41", vec![137]), ("1:7\r", vec![io(7).0])] {
        let mut client = lab.client();
        client.send(sent).await;
        assert_eq!(client.finish().await, (replies, "finished"), "{sent}");
    }
    let mut client = lab.client();
    client.send("0:41\n0:").await;
    assert_eq!(client.finish().await, (vec![137], "bad line"));
}

#[tokio::test(start_paused = true)]
async fn text_is_answered_in_lines_and_outlives_bad_ones() {
    let lab = Lab::new(&Settings::default());
    let mut client = lab.client();
    client.send("0:41\nHELLO 2\n0:41\nnonsense\n1:42\n\n0:").await;
    assert_eq!(client.receive(1).await, [137]);
    assert_eq!(client.line().await, "OK 137");
    assert_eq!(client.line().await, "ERR the type is 'nonsense'; it must be 0 (CPU) or 1 (I/O), as in 0:42");
    assert_eq!(client.line().await, format!("OK {}", io(42).0));
    assert!(client.line().await.starts_with("ERR the type is ''"));
    client.send("0\n").await;
    assert_eq!(client.line().await, "OK 0", "the line is 0:0, after what came before");
    client.send("z".repeat(5000)).await;
    client.send("\n0:41").await;
    assert!(client.line().await.starts_with("ERR the line is longer than the server's limit tasks.line_bytes, 256;"));
    let (rest, reason) = client.finish().await;
    assert_eq!((String::from_utf8_lossy(&rest).into_owned(), reason), ("OK 137\n".to_owned(), "finished"));
}

#[tokio::test(start_paused = true)]
async fn no_more_is_read_while_the_limit_of_requests_is_in_flight() {
    let lab = limited(Limits { in_flight: 3, ..Limits::default() });
    let mut client = lab.client();
    let start = Instant::now();
    client.send("1:1\n1:42\n1:2\n1:7\n1:0\n").await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(lab.metric("quire_tasks_in_flight"), 2, "two of the three wait; the rest has not begun");
    assert_eq!(client.finish().await.0, [1, 42, 2, 7, 0].map(|seed| io(seed).0));
    took(start, io(1).1 + io(0).1);
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_requests_stays_outside_until_there_is_room() {
    const REQUESTS: usize = 100_000;
    let lab = limited(Limits { in_flight: 2, ..Limits::default() });
    let mut client = lab.client();
    let mut flood = &b"1:1\n".repeat(REQUESTS)[..];
    let stuck = tokio::time::timeout(Duration::from_millis(100), async {
        while !flood.is_empty() {
            let sent = client.stream.write(flood).await.expect("the connection is open");
            flood = &flood[sent..];
        }
    });
    assert!(stuck.await.is_err(), "the connection is full");
    assert!(client.is_open());
    // No reply is there yet; when they come, there is room for the rest.
    let (mut replies, mut requests) = tokio::io::split(&mut client.stream);
    let mut read = vec![0; REQUESTS];
    let (sent, received) = tokio::join!(requests.write_all(flood), replies.read_exact(&mut read));
    assert!(sent.is_ok() && received.is_ok(), "{sent:?} {received:?}");
    assert_eq!(read, [io(1).0].repeat(REQUESTS));
}

#[tokio::test(start_paused = true)]
async fn requests_of_all_connections_that_wait_are_bounded_and_each_connection_goes_on() {
    let lab = limited(Limits { waiting: 5, ..Limits::default() });
    let seeds = |client: u64| (0..20).map(move |number| 100 * client + number);
    let mut clients = [lab.client(), lab.client(), lab.client()];
    for (client, number) in clients.iter_mut().zip(0..) {
        client.send(seeds(number).fold(String::new(), |lines, seed| lines + &format!("1:{seed}\n"))).await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(lab.metric("quire_tasks_in_flight"), 3 + 5, "one of each connection, and five more");
    for (client, number) in clients.into_iter().zip(0..) {
        let results: Vec<u8> = seeds(number).map(|seed| io(seed).0).collect();
        assert_eq!(client.finish().await, (results, "finished"));
    }
    assert_eq!(lab.metric("quire_tasks_in_flight"), 0);
}

#[tokio::test(start_paused = true)]
async fn without_places_to_share_a_connection_has_one_request_at_a_time() {
    let lab = limited(Limits { waiting: 0, ..Limits::default() });
    let mut client = lab.client();
    let start = Instant::now();
    client.send("1:1\n1:42\n1:2").await;
    assert_eq!(client.finish().await.0, [1, 42, 2].map(|seed| io(seed).0));
    took(start, io(1).1 + io(42).1 + io(2).1);
}

#[tokio::test(start_paused = true)]
async fn cpu_tasks_beyond_the_limit_wait_for_their_turn_and_are_answered() {
    let lab = limited(Limits { cpu_tasks: 2, in_flight: 1000, ..Limits::default() });
    let mut client = lab.client();
    client.send((0..100).fold(String::new(), |lines, seed| lines + &format!("0:{seed}\n"))).await;
    let replies = client.receive(100).await;
    assert_eq!((replies[41], replies[68]), (137, 180));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_nothing_is_sent_away() {
    let lab = limited(Limits { idle: Duration::from_secs(5), ..Limits::default() });
    let mut client = lab.client();
    tokio::time::sleep(Duration::from_secs(4)).await;
    client.send("1:42\n").await;
    assert_eq!(client.receive(1).await, [io(42).0]);
    let start = Instant::now();
    assert_eq!(client.end().await, (vec![], "idle"));
    took(start, Duration::from_secs(5));
    assert_eq!(lab.metric("quire_tasks_closed_total{reason=\"idle\"}"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_a_line_byte_by_byte_for_ever_is_idle() {
    let lab = limited(Limits { idle: Duration::from_secs(5), ..Limits::default() });
    let mut client = lab.client();
    for _ in 0..4 {
        client.send("0").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(client.is_open());
    client.send("0").await;
    assert_eq!(client.end().await.1, "idle");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_holds_little_and_is_sent_away() {
    let lab = limited(Limits { unread: Duration::from_secs(5), ..Limits::default() });
    let (mut deaf, mut other) = (lab.client(), lab.client());
    deaf.send("HELLO 2\n").await;
    let start = Instant::now();
    let mut taken = 0;
    let flood = b"\n".repeat(1 << 20);
    while let Ok(wrote) = tokio::time::timeout(Duration::from_millis(1), deaf.stream.write(&flood[taken..])).await {
        taken += wrote.expect("the server reads or waits");
    }
    // A read of 8 KiB is processed until 16 KiB of replies wait, some 70 bytes each.
    assert!(taken < 16 * 1024 + PIPE_BYTES, "{taken} lines were taken");
    other.send("0:41\n").await;
    assert_eq!(other.receive(1).await, [137], "no other client notices");
    assert_eq!(deaf.closed().await, "unread");
    assert!(start.elapsed() < Duration::from_secs(6));
}

#[tokio::test(start_paused = true)]
async fn what_is_in_flight_is_answered_when_the_server_stops() {
    for concurrency in [Concurrency::None, Concurrency::Client, Concurrency::Task] {
        let lab = Lab::new(&Settings { concurrency, ..Settings::default() });
        let (mut client, idle) = (lab.client(), lab.client());
        client.send("1:42\n").await;
        tokio::time::sleep(Duration::from_millis(300)).await;
        let start = Instant::now();
        lab.stop.send_replace(true);
        assert_eq!(idle.end().await, (vec![], "drained"));
        assert_eq!(start.elapsed(), Duration::ZERO, "no one waits for a client that is merely connected");
        client.send("1:1\n").await;
        assert_eq!(client.end().await, (vec![io(42).0], "drained"), "{concurrency:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_on_its_way_is_answered_when_the_server_stops() {
    let lab = Lab::new(&Settings::default());
    let (mut answered, mut connected, silent) = (lab.client(), lab.client(), lab.client());
    answered.send("0:41\n").await;
    assert_eq!(answered.receive(1).await, [137]);
    let start = Instant::now();
    lab.stop.send_replace(true);
    tokio::time::sleep(Duration::from_millis(100)).await;
    for client in [&mut answered, &mut connected] {
        client.send("0:68\n").await;
        assert_eq!(client.receive(1).await, [180]);
    }
    for client in [answered, connected] {
        assert_eq!(client.closed().await, "drained");
    }
    assert!(start.elapsed() < Duration::from_millis(150), "each is closed behind its reply");
    assert_eq!(silent.closed().await, "drained");
    assert!(start.elapsed() < Duration::from_millis(300), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_client_that_goes_on_after_its_bad_line_is_listened_to_for_a_second() {
    let lab = Lab::new(&Settings::default());
    let mut client = lab.client();
    client.send("0:41\nx\n").await;
    assert_eq!(client.receive(1).await, [137]);
    let start = Instant::now();
    assert_eq!(client.stream.read(&mut [0]).await.expect("an end"), 0);
    assert_eq!(start.elapsed(), Duration::ZERO, "it is told at once");
    while client.is_open() {
        // Discarded, or refused because the server has closed.
        let _ = client.stream.write_all(b"0:41\n").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(start.elapsed() < Duration::from_millis(1100), "{:?}", start.elapsed());
}
