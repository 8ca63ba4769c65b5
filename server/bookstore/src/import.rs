//! Imports into an open store: a CSV file's rows are compared with the catalogue, and added or changed a slice at a time, each
//! slice in a transaction of its own. After a failure in between the file can be sent again: what is done is unchanged then.

use std::{
    cell::Cell,
    io::{self, Read},
    mem,
};

use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, mpsc},
    task::JoinHandle,
};

use crate::{
    bookstore::Bookstore,
    domain::{Actor, NewBook},
    exchange::{COLUMNS, ImportError, Planned, Report, Rows},
    fault::{Fault, Unavailable},
    ledger::{Write, Written},
};

/// Most rows in a transaction: purchases wait for it.
const SLICE: usize = 256;

/// Most rows of a file: its ids are kept to find one that comes twice.
const ROWS_MAX: usize = 10_000_000;

/// Chunks of the file that wait to be read.
const CHUNKS: usize = 4;

/// An import whose file is being sent. If it is dropped, no further slice begins.
#[derive(Debug)]
pub struct Import {
    /// An empty one ends the file.
    chunks: mpsc::Sender<Vec<u8>>,
    done: JoinHandle<Result<Report, Fault>>,
}

impl Import {
    /// Sends the next bytes of the file; false if the import has ended already.
    pub async fn send(&self, bytes: Vec<u8>) -> bool {
        bytes.is_empty() || self.chunks.send(bytes).await.is_ok()
    }

    /// Ends the file and waits for the result.
    pub async fn finish(self) -> Result<Report, Fault> {
        // Fails if the import has ended already.
        let _ = self.chunks.send(Vec::new()).await;
        self.done.await.unwrap_or(Err(Fault::Unavailable(Unavailable::Closing)))
    }
}

impl Bookstore {
    /// Begins an import by this operator, or the preview of one, which changes nothing. Waits while others run.
    pub async fn begin_import(&self, by: Option<Actor>) -> Result<Import, Fault> {
        let permit = self.inner.imports.clone().acquire_owned().await;
        let permit = permit.map_err(|_| Fault::Unavailable(Unavailable::Closing))?;
        let (chunks, received) = mpsc::channel(CHUNKS);
        let (store, runtime) = (self.clone(), Handle::current());
        let work = move || Importing { store, runtime, by, done: 0, _permit: permit }.run(received);
        Ok(Import { chunks, done: tokio::task::spawn_blocking(work) })
    }

    /// The changes that an import of this file would make.
    pub async fn plan_import(&self, csv: Vec<u8>) -> Result<Report, Fault> {
        let import = self.begin_import(None).await?;
        import.send(csv).await;
        import.finish().await
    }

    /// Imports this file.
    pub async fn apply_import(&self, csv: Vec<u8>, actor: Actor) -> Result<Report, Fault> {
        let import = self.begin_import(Some(actor)).await?;
        import.send(csv).await;
        import.finish().await
    }
}

/// A running import, on a thread that may block.
struct Importing {
    store: Bookstore,
    runtime: Handle,
    by: Option<Actor>,
    /// Rows added or changed by finished slices.
    done: u64,
    _permit: OwnedSemaphorePermit,
}

impl Importing {
    fn run(mut self, received: mpsc::Receiver<Vec<u8>>) -> Result<Report, Fault> {
        let source = Chunks { received, chunk: Vec::new(), at: 0, has_ended: false };
        let end = Cell::new(0);
        let rows = Rows::of(source, &end, self.store.inner.settings.limits.topic_bytes).map_err(unusable);
        rows.and_then(|rows| self.import(rows)).map_err(|fault| {
            if self.done == 0 {
                return fault;
            }
            tracing::warn!(%fault, rows = self.done, "an import stopped");
            Fault::Stopped(self.done)
        })
    }

    fn import(&mut self, mut rows: Rows<'_, Chunks>) -> Result<Report, Fault> {
        let (mut plan, mut slice) = (Planned::new(!rows.has_listed()), Vec::new());
        while let Some(read) = rows.read().map_err(unusable)? {
            slice.extend(plan.admit(read));
            if plan.rows() > ROWS_MAX {
                let want = format!("of at most {ROWS_MAX} rows; split it");
                return Err(Fault::invalid("csv", "a longer file", want));
            }
            if slice.len() == SLICE {
                self.take(mem::take(&mut slice), &mut plan)?;
            }
        }
        self.take(slice, &mut plan)?;
        Ok(plan.report)
    }

    /// Carries out or compares a slice of rows. Those that are done already need no transaction.
    fn take(&mut self, slice: Vec<NewBook>, plan: &mut Planned) -> Result<(), Fault> {
        let catalogue = self.store.inner.shelf.load_full();
        let mut writes = Vec::new();
        for book in slice {
            let before = catalogue.get_any(book.id).map(|book| NewBook::from(&**book));
            let after = plan.after(book, before.as_ref());
            if self.by.is_none() || before.as_ref() == Some(&after) {
                plan.report.count(before, after);
            } else {
                writes.push(Write::Put { book: after, keeps_listed: plan.keeps_listed });
            }
        }
        let Some(actor) = self.by.clone().filter(|_| !writes.is_empty()) else { return Ok(()) };
        let written = self.runtime.block_on(self.store.inner.ledger.write(writes, actor))?;
        for Written { before, after, number } in written {
            self.done += u64::from(number.is_some());
            if let Some(after) = after {
                plan.report.count(before, after);
            }
        }
        Ok(())
    }
}

/// Error of a file that is no catalogue.
fn unusable(error: ImportError) -> Fault {
    match error {
        ImportError::Header(found) => {
            Fault::invalid_word("csv", &found, format!("a file with the header '{}'", COLUMNS.join(",")))
        }
        ImportError::Row(line) => {
            let got = format!("a file whose row of line {line} does not end");
            Fault::invalid("csv", got, "one in which each row ends with its line and each quote is closed")
        }
        error => Fault::invalid("csv", error, "a CSV file"),
    }
}

/// The received bytes as a file. A file that was cut off is an error, so that a part of a row is not taken for a row.
struct Chunks {
    received: mpsc::Receiver<Vec<u8>>,
    chunk: Vec<u8>,
    at: usize,
    has_ended: bool,
}

impl Read for Chunks {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.at == self.chunk.len() && !self.has_ended {
            let chunk = self.received.blocking_recv().ok_or(io::ErrorKind::UnexpectedEof)?;
            (self.has_ended, self.chunk, self.at) = (chunk.is_empty(), chunk, 0);
        }
        let most = into.len().min(self.chunk.len() - self.at);
        into[..most].copy_from_slice(&self.chunk[self.at..self.at + most]);
        self.at += most;
        Ok(most)
    }
}
