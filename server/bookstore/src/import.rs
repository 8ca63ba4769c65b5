//! Imports into an open store: a CSV file's rows are compared with the catalogue, and added or changed a slice at a time, each
//! slice in a transaction of its own. After a failure in between the error names the line up to which rows are done.

use std::{
    cell::Cell,
    io::{self, Read},
    mem,
    sync::{Arc, Weak},
};

use hosting::{Client, Share};
use tokio::{runtime::Handle, sync::mpsc, task::JoinHandle};

use crate::{
    bookstore::Bookstore,
    domain::{Actor, NewBook},
    exchange::{COLUMNS, ImportError, Planned, Report, Rows},
    fault::{Fault, Limit, Unavailable},
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
    /// Dropped with the caller.
    _caller: Arc<()>,
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

    /// Breaks off a file whose rest does not come. Returns the line of the last row that is done, if one is.
    pub async fn break_off(self) -> Option<u64> {
        let Self { chunks, done, _caller } = self;
        drop(chunks);
        match done.await {
            Ok(Err(Fault::ImportStopped { line, .. })) => Some(line),
            _ => None,
        }
    }
}

impl Bookstore {
    /// Begins an import by this operator, or the preview of one, which changes nothing.
    pub fn begin_import(&self, by: Option<Actor>, client: Client) -> Result<Import, Fault> {
        let share = self.inner.imports.take(client);
        let share = share.ok_or_else(|| self.exceeded(Limit::Imports, self.inner.settings.limits.imports.get()))?;
        let (chunks, received) = mpsc::channel(CHUNKS);
        let (store, runtime, caller) = (self.clone(), Handle::current(), Arc::new(()));
        let importing = Importing { store, runtime, by, caller: Arc::downgrade(&caller), line: 0, _share: share };
        Ok(Import { chunks, done: tokio::task::spawn_blocking(move || importing.run(received)), _caller: caller })
    }

    /// The changes that an import of this file would make.
    pub async fn plan_import(&self, csv: Vec<u8>, client: Client) -> Result<Report, Fault> {
        let import = self.begin_import(None, client)?;
        import.send(csv).await;
        import.finish().await
    }

    /// Imports this file.
    pub async fn apply_import(&self, csv: Vec<u8>, actor: Actor, client: Client) -> Result<Report, Fault> {
        let import = self.begin_import(Some(actor), client)?;
        import.send(csv).await;
        import.finish().await
    }
}

/// A running import, on a thread that may block.
struct Importing {
    store: Bookstore,
    runtime: Handle,
    by: Option<Actor>,
    caller: Weak<()>,
    /// Line of the last row of a finished slice; 0 before the first.
    line: u64,
    _share: Share,
}

impl Importing {
    fn run(mut self, received: mpsc::Receiver<Vec<u8>>) -> Result<Report, Fault> {
        let source = Chunks { received, chunk: Vec::new(), at: 0, has_ended: false };
        let end = Cell::new(0);
        let rows = Rows::of(source, &end, self.store.inner.settings.limits.topic_bytes).map_err(unusable);
        rows.and_then(|rows| self.import(rows)).map_err(|fault| {
            if self.line == 0 {
                return fault;
            }
            tracing::warn!(%fault, line = self.line, "an import stopped");
            Fault::ImportStopped { line: self.line, cause: Box::new(fault) }
        })
    }

    fn import(&mut self, mut rows: Rows<'_, Chunks>) -> Result<Report, Fault> {
        let (mut plan, mut slice, mut line) = (Planned::new(!rows.has_listed()), Vec::new(), 0);
        while let Some(read) = rows.read().map_err(unusable)? {
            line = read.as_ref().map_or_else(|bad| bad.line, |row| row.line);
            slice.extend(plan.admit(read));
            if plan.rows() > ROWS_MAX {
                let want = format!("of at most {ROWS_MAX} rows; split it");
                return Err(Fault::invalid("csv", "a longer file", want));
            }
            if slice.len() == SLICE {
                self.take(mem::take(&mut slice), line, &mut plan)?;
            }
        }
        self.take(slice, line, &mut plan)?;
        Ok(plan.report)
    }

    /// Carries out or compares a slice of rows, the last of which is in this line.
    fn take(&mut self, slice: Vec<NewBook>, line: u64, plan: &mut Planned) -> Result<(), Fault> {
        if self.caller.strong_count() == 0 {
            return Err(Fault::Unavailable(Unavailable::Closing));
        }
        let Some(actor) = self.by.clone() else {
            let catalogue = self.store.inner.shelf.load_full();
            for book in slice {
                let before = catalogue.get_any(book.id).map(|book| NewBook::from(&**book));
                let after = plan.after(book, before.as_ref());
                plan.report.count(before, after);
            }
            return Ok(());
        };
        // Also rows that are as the catalogue in memory, which may lag behind other programs.
        let keeps_listed = plan.keeps_listed;
        let writes = slice.into_iter().map(|book| Write::Put { book, keeps_listed }).collect();
        let written = self.runtime.block_on(self.store.inner.ledger.write(writes, actor))?;
        for Written { before, after, .. } in written {
            if let Some(after) = after {
                plan.report.count(before, after);
            }
        }
        self.line = line;
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
