//! The published experiment at each of its steps: the expected sum, and the duration of its waits.

use std::{cell::Cell, time::Duration};

use tasks::{
    Concurrency, Settings,
    chain::{Forecast, Plan, run_on},
};

use crate::client::Lab;

const PUBLISHED: Plan = Plan { clients: 40, requests: 20, seed: 1 };

/// Timers are rounded up to a millisecond, once for each request of a chain.
async fn chains_last(concurrency: Concurrency, cache: bool, requests_in_a_row: u64) {
    let lab = Lab::new(&Settings { concurrency, cache, ..Settings::default() });
    let connect = || std::future::ready(Ok(lab.client().stream));
    let forecast = Forecast::new(PUBLISHED);
    let bound = forecast.bound(concurrency, cache);
    let replies = Cell::new(0);
    let outcome = run_on(connect, PUBLISHED, &replies).await.expect("an end");
    assert_eq!(replies.get(), PUBLISHED.clients * PUBLISHED.requests);
    assert_eq!(outcome.last, forecast.last);
    assert_eq!(outcome.sum(), 3802);
    let most = bound + Duration::from_millis(2 * requests_in_a_row);
    assert!(outcome.elapsed >= bound && outcome.elapsed <= most, "{:?} and not {bound:?}", outcome.elapsed);
    let start = tokio::time::Instant::now();
    assert_eq!(run_on(connect, PUBLISHED, &replies).await.expect("an end").sum(), 3802);
    if cache {
        assert_eq!(start.elapsed(), Duration::ZERO, "everything is kept");
    }
}

#[tokio::test(start_paused = true)]
async fn one_after_another_they_last_as_long_as_all_waits() {
    chains_last(Concurrency::None, false, PUBLISHED.clients * PUBLISHED.requests).await;
}

#[tokio::test(start_paused = true)]
async fn with_a_task_for_each_client_they_last_as_long_as_the_longest_chain() {
    chains_last(Concurrency::Client, false, PUBLISHED.requests).await;
}

#[tokio::test(start_paused = true)]
async fn with_a_task_for_each_request_they_last_as_long_as_the_longest_chain() {
    chains_last(Concurrency::Task, false, PUBLISHED.requests).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_cache_they_last_as_long_as_the_longest_chain_of_first_waits() {
    chains_last(Concurrency::Task, true, PUBLISHED.requests).await;
}

#[tokio::test(start_paused = true)]
async fn the_cache_helps_one_after_another_too() {
    chains_last(Concurrency::None, true, PUBLISHED.clients * PUBLISHED.requests).await;
}
