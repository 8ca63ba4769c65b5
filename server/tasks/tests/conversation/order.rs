//! Replies, their order, and concurrency.

use std::time::Duration;

use tasks::{Concurrency, Limits, Settings};
use tokio::time::Instant;

use crate::client::{Lab, io, took};

/// Waits of 48, 1238, 143, 46, 1028 and 37 ms, of at most 2000.
const SEEDS: [u64; 6] = [0, 1, 2, 7, 42, 255];

fn lines(seeds: &[u64]) -> String {
    seeds.iter().map(|seed| ["1:", &seed.to_string(), "\n"].concat()).collect()
}

fn results(seeds: &[u64]) -> Vec<u8> {
    seeds.iter().map(|seed| io(*seed).0).collect()
}

fn settings(concurrency: Concurrency, cache: bool) -> Settings {
    Settings { concurrency, cache, ..Settings::default() }
}

#[tokio::test(start_paused = true)]
async fn tasks_of_a_connection_run_beside_each_other_and_replies_leave_in_order() {
    let lab = Lab::new(&Settings::default());
    let mut client = lab.client();
    let start = Instant::now();
    client.send(lines(&SEEDS)).await;
    assert_eq!(client.receive(1).await, results(&SEEDS[..1]));
    took(start, io(0).1);
    assert_eq!(client.receive(5).await, results(&SEEDS[1..]));
    took(start, io(1).1);
    assert_eq!(client.finish().await, (vec![], "finished"));
}

#[tokio::test(start_paused = true)]
async fn requests_of_a_client_wait_for_each_other_where_that_is_set_and_clients_do_not() {
    let lab = Lab::new(&settings(Concurrency::Client, false));
    let (mut one, mut other) = (lab.client(), lab.client());
    let start = Instant::now();
    one.send(lines(&SEEDS)).await;
    other.send("1:1\n").await;
    assert_eq!(other.receive(1).await, results(&[1]));
    took(start, io(1).1);
    assert_eq!(one.finish().await, (results(&SEEDS), "finished"));
    let sum: Duration = SEEDS.iter().map(|seed| io(*seed).1).sum();
    let elapsed = start.elapsed();
    assert!(elapsed >= sum && elapsed < sum + Duration::from_millis(10), "{elapsed:?} and not {sum:?}");
}

#[tokio::test(start_paused = true)]
async fn all_requests_wait_for_each_other_where_that_is_set() {
    let lab = Lab::new(&settings(Concurrency::None, false));
    let (mut one, mut other) = (lab.client(), lab.client());
    let start = Instant::now();
    one.send("1:42\n").await;
    other.send("1:1\n").await;
    let _ = (one.receive(1).await, other.receive(1).await);
    took(start, io(42).1 + io(1).1);
}

#[tokio::test(start_paused = true)]
async fn equal_requests_at_once_are_computed_once_and_the_later_waits_for_the_rest() {
    let lab = Lab::new(&Settings::default());
    let (mut first, mut second) = (lab.client(), lab.client());
    let start = Instant::now();
    first.send("1:1\n").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    second.send("1:1\n").await;
    assert_eq!(second.receive(1).await, results(&[1]));
    took(start, io(1).1);
    assert_eq!(first.receive(1).await, results(&[1]));
    let start = Instant::now();
    second.send("1:1\n").await;
    assert_eq!(second.receive(1).await, results(&[1]));
    assert_eq!(start.elapsed(), Duration::ZERO, "a kept result takes no time");
    for (outcome, count) in [("computed", 1), ("shared", 1), ("cached", 1), ("dropped", 0)] {
        let series = format!("quire_tasks_requests_total{{type=\"io\",outcome=\"{outcome}\"}}");
        assert_eq!(lab.metric(&series), count, "{outcome}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_the_cache_equal_requests_are_computed_each() {
    let lab = Lab::new(&settings(Concurrency::Task, false));
    let mut client = lab.client();
    client.send("1:1\n1:1\n").await;
    assert_eq!(client.finish().await.0, results(&[1, 1]));
    assert_eq!(lab.metric("quire_tasks_requests_total{type=\"io\",outcome=\"computed\"}"), 2);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_a_task_of_a_client_that_vanished_takes_it_over() {
    let lab = Lab::new(&Settings::default());
    let (mut first, mut second) = (lab.client(), lab.client());
    // The first reply finds the client gone, and the connection ends with its running tasks.
    first.send("1:0\n1:1\n").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    second.send("1:1\n").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(first.vanish().await, "broken");
    assert_eq!(second.receive(1).await, results(&[1]));
    assert_eq!(lab.metric("quire_tasks_requests_total{type=\"io\",outcome=\"dropped\"}"), 1);
    assert_eq!(lab.metric("quire_tasks_in_flight"), 0);
}

#[tokio::test(start_paused = true)]
async fn cpu_tasks_are_answered_in_order_among_others() {
    let lab = Lab::new(&Settings::default());
    let mut client = lab.client();
    client.send("1:42\n0:41\n0:68\n1:0\n0:0\n").await;
    assert_eq!(client.finish().await, (vec![io(42).0, 137, 180, io(0).0, 0], "finished"));
}

#[tokio::test(start_paused = true)]
async fn the_cache_keeps_no_more_than_its_limit() {
    let entries = 100;
    let limits = Limits { cache_entries: entries, ..Limits::default() };
    let lab = Lab::new(&Settings { limits, ..Settings::default() });
    let seeds: Vec<u64> = (0..2 * entries as u64).collect();
    let mut client = lab.client();
    for seeds in [&seeds, &seeds].into_iter().flat_map(|seeds| seeds.chunks(50)) {
        client.send(lines(seeds)).await;
        assert_eq!(client.receive(seeds.len()).await, results(seeds));
    }
    let computed = lab.metric("quire_tasks_requests_total{type=\"io\",outcome=\"computed\"}");
    assert!(computed >= 3 * entries as u64, "{computed} computed: more than {entries} results were kept");
}
