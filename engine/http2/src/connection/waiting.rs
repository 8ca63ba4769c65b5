//! Request heads that wait for their bodies.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::head::Head;
use crate::streams::StreamKey;

/// Requests whose head alone has arrived, in stream order.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    runs: VecDeque<Run>,
    requests: usize,
}

/// Consecutive streams with the same head: most clients repeat a call.
#[derive(Debug)]
struct Run {
    head: Arc<Head>,
    first: u32,
    last: u32,
}

impl Waiting {
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.requests
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    #[inline]
    pub(super) fn push(&mut self, id: u32, head: &Arc<Head>) {
        self.requests += 1;
        if let Some(run) = self.runs.back_mut()
            && Arc::ptr_eq(&run.head, head)
            && id == run.last + 2
        {
            run.last = id;
            return;
        }
        self.runs.push_back(Run { head: Arc::clone(head), first: id, last: id });
    }

    /// The first stream and its head.
    #[inline]
    pub(super) fn first(&self) -> Option<(u32, &Arc<Head>)> {
        self.runs.front().map(|run| (run.first, &run.head))
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        let Some(run) = self.runs.front_mut() else { return };
        self.requests -= 1;
        if run.first < run.last {
            run.first += 2;
        } else {
            self.runs.pop_front();
        }
    }
}

/// A complete request.
#[derive(Debug)]
pub struct Whole<'a> {
    /// Its stream; the peer's side has ended.
    pub stream: StreamKey,
    /// Its head; `None` if it is the `last` that the caller passed.
    pub head: Option<Arc<Head>>,
    /// Its body, borrowed from the input.
    pub body: &'a [u8],
}
