//! Fair scheduling of a bounded number of concurrent tasks: while tasks wait, each client gets one turn per round,
//! however many tasks another has queued.
//!
//! This is fair queueing (Nagle, RFC 970) with tasks in key of packets. A waiting task belongs to the round after its
//! client's last waiting task, or to the next round if the client has none. Turns are granted by round, then in order
//! of arrival.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use commit::Admission;
use hosting::Client;
use tokio::sync::oneshot;

use crate::fault::Fault;

/// A round, then an arrival number.
type QueueKey = (u64, u64);

/// The waiting tasks of one client.
#[derive(Debug)]
struct Queue {
    last_round: u64,
    tasks: usize,
}

#[derive(Debug, Default)]
struct State {
    free: usize,
    round: u64,
    arrivals: u64,
    waiting: BTreeMap<QueueKey, (Client, oneshot::Sender<Turn>)>,
    queues: HashMap<Client, Queue>,
    admission: Admission,
}

impl State {
    fn join(&mut self, client: &Client) -> (QueueKey, oneshot::Receiver<Turn>) {
        let queue = self.queues.entry(client.clone()).or_insert(Queue { last_round: self.round, tasks: 0 });
        queue.last_round = queue.last_round.max(self.round) + 1;
        queue.tasks += 1;
        self.arrivals += 1;
        let key = (queue.last_round, self.arrivals);
        let (turn, given) = oneshot::channel();
        self.waiting.insert(key, (client.clone(), turn));
        (key, given)
    }

    fn leave(&mut self, key: QueueKey) -> Option<oneshot::Sender<Turn>> {
        let (client, turn) = self.waiting.remove(&key)?;
        if let Some(queue) = self.queues.get_mut(&client) {
            queue.tasks -= 1;
            if queue.tasks == 0 {
                self.queues.remove(&client);
            }
        }
        Some(turn)
    }

    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        let key = *self.waiting.first_key_value()?.0;
        self.round = key.0;
        let turn = self.leave(key);
        self.admission.taken(Instant::now(), 1, self.waiting.len());
        turn
    }

    /// Number of tasks that would run before another one of this client.
    fn before(&self, client: &Client) -> usize {
        let own = self.queues.get(client).map_or(0, |queue| queue.tasks);
        self.queues.values().map(|queue| queue.tasks.min(own + 1)).sum()
    }
}

/// The scheduler; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Turns(Arc<Mutex<State>>);

impl Turns {
    /// Allows `tasks_max` concurrent tasks.
    pub(crate) fn new(tasks_max: usize) -> Self {
        Self(Arc::new(Mutex::new(State { free: tasks_max, ..State::default() })))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a task of this client if its turn would come soon enough; otherwise returns the delay after which to
    /// retry.
    pub(crate) fn admit(&self, client: &Client) -> Result<(), Duration> {
        let mut state = self.lock();
        if !state.admission.is_standing() {
            return Ok(());
        }
        let (before, is_idle) = (state.before(client), state.free > 0);
        state.admission.admit(Instant::now(), before, is_idle, None)
    }

    /// Waits for a turn. A task dropped meanwhile leaves the queue.
    pub(crate) async fn take(&self, client: &Client) -> Result<Turn, Fault> {
        let (key, given) = {
            let mut state = self.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(Turn(Some(self.clone())));
            }
            state.join(client)
        };
        let _queued = Queued { turns: self, key };
        given.await.map_err(|_| Fault::Stopped)
    }

    /// Passes the turn of a finished task to the next.
    fn give_back(&self) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.next() else {
                state.free += 1;
                return;
            };
            drop(state);
            match next.send(Turn(Some(self.clone()))) {
                Ok(()) => return,
                // The task has just gone. The loop gives its turn to the next; dropping it would recurse.
                Err(mut turn) => turn.0 = None,
            }
        }
    }
}

/// A task's position in the queue; it leaves the queue on drop.
struct Queued<'a> {
    turns: &'a Turns,
    key: QueueKey,
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.turns.lock().leave(self.key);
    }
}

/// Permit to run a task; released on drop.
#[derive(Debug)]
pub(crate) struct Turn(Option<Turns>);

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turns) = self.0.take() {
            turns.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, future::BoxFuture};

    use super::*;

    fn client(last: u8) -> Client {
        Client::at(Some([10, 0, 0, last].into()))
    }

    /// A task waiting for its turn.
    fn waiting(turns: &Turns, last: u8) -> BoxFuture<'static, Turn> {
        let turns = turns.clone();
        let mut task = async move { turns.take(&client(last)).await.expect("a turn") }.boxed();
        assert!((&mut task).now_or_never().is_none());
        task
    }

    #[test]
    fn a_newcomer_is_next_however_many_tasks_another_has_waiting() {
        let turns = Turns::new(1);
        let mut running = turns.take(&client(1)).now_or_never().expect("it is free");
        let mut greedy: Vec<_> = (0..1000).map(|_| waiting(&turns, 1)).collect();
        drop(running);
        running = Ok(greedy[0].as_mut().now_or_never().expect("the first"));
        let mut newcomer = [waiting(&turns, 2), waiting(&turns, 2)];
        for (greedy, newcomer) in greedy[1..].iter_mut().zip(&mut newcomer) {
            drop(running);
            running = Ok(greedy.now_or_never().expect("one of each in a round"));
            drop(running);
            running = Ok(newcomer.now_or_never().expect("one of each in a round"));
        }
        drop((running, greedy, newcomer));
        let state = turns.lock();
        assert_eq!((state.free, state.waiting.len(), state.queues.len()), (1, 0, 0));
    }

    #[test]
    fn a_task_that_is_dropped_leaves_its_place_or_passes_its_turn_on() {
        let turns = Turns::new(1);
        let running = turns.take(&client(1)).now_or_never().expect("it is free");
        let [gone, given, last] = [1, 2, 3].map(|number| waiting(&turns, number));
        drop(gone);
        drop(running);
        // Its turn was granted, and it never looked.
        drop(given);
        assert!(last.now_or_never().is_some());
        assert_eq!(turns.lock().free, 1);
    }

    #[test]
    fn what_is_before_a_task_counts_each_client_up_to_its_own_round() {
        let turns = Turns::new(1);
        let _running = turns.take(&client(1)).now_or_never().expect("it is free");
        let _greedy: Vec<_> = (0..100).map(|_| waiting(&turns, 1)).collect();
        let _other = waiting(&turns, 2);
        let state = turns.lock();
        assert_eq!([1, 2, 3].map(|number| state.before(&client(number))), [101, 3, 2]);
    }
}
