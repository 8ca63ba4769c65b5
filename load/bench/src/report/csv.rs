//! A row per request, written by a thread of its own during the run.
//!
//! Workers never wait for the file: if the queue is full, a batch is rejected, and the file's name shows that rows are
//! missing. Endings are numbers, which the caller translates.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde::Serialize;

use super::pending::Pending;

/// Maximum rows queued for the writer, over all workers: some 20 MiB.
pub(crate) const ROWS_QUEUED_MAX: usize = 1 << 18;

const BUFFER_BYTES: usize = 1 << 18;

/// The header. The second column numbers clients, in an open loop connections: arrivals have no client.
fn head(is_open: bool) -> [&'static str; 7] {
    let second = if is_open { "connection" } else { "client" };
    ["number", second, "scheduled_ns", "sent_ns", "first_byte_ns", "done_ns", "status"]
}

/// A request. Times are in nanoseconds from the beginning of the run; requests of the warm-up have no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) number: u64,
    /// Client number, in an open loop connection number; `None` if the request was not sent.
    pub(crate) client: Option<u32>,
    /// Due time; in a closed loop, send time.
    pub(crate) scheduled_ns: u64,
    /// Send time, if it was sent.
    pub(crate) sent_ns: Option<u64>,
    /// Arrival of the answer's first byte, where the transport reports it.
    pub(crate) first_byte_ns: Option<u64>,
    /// Arrival of the whole answer.
    pub(crate) done_ns: u64,
    /// The workload's number of its ending.
    pub(crate) ending: u16,
}

#[derive(Debug)]
pub(crate) struct RowWriter {
    path: PathBuf,
    sink: RowSink,
    thread: JoinHandle<io::Result<Pending>>,
}

#[derive(Clone, Debug)]
pub(crate) struct RowSink {
    sender: Sender<Message>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    queued: AtomicUsize,
    written: AtomicU64,
    dropped: AtomicU64,
    has_failed: AtomicBool,
}

#[derive(Debug)]
enum Message {
    Rows(Vec<Row>),
    /// No more rows, though sinks may remain.
    Finish,
}

/// Result of writing rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Path of the file; if rows are missing, its name has `interrupted` or `incomplete`.
    pub(crate) path: PathBuf,
    pub(crate) written: u64,
    /// Rows that are missing because the writer could not keep up.
    pub(crate) dropped: u64,
}

impl RowWriter {
    /// Starts the writing thread. `label` translates endings; it is called once for each.
    pub(crate) fn start(
        into: Pending,
        is_open: bool,
        label: impl Fn(u16) -> String + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (sender, receiver) = channel();
        let shared = Arc::new(Shared::default());
        let (path, sink) = (into.path().to_owned(), RowSink { sender, shared: shared.clone() });
        let write = move || write(into, &receiver, &shared, is_open, label);
        let thread =
            std::thread::Builder::new().name("rows".to_owned()).spawn(write).context("cannot start a thread")?;
        Ok(Self { path, sink, thread })
    }

    pub(crate) fn sink(&self) -> RowSink {
        self.sink.clone()
    }

    /// Writes the queued rows and names the file; later rows are lost.
    pub(crate) fn finish(self, is_interrupted: bool) -> anyhow::Result<Rows> {
        let wrong = || format!("cannot write {}", self.path.display());
        // If the thread has ended, its error is reported below.
        let _ = self.sink.sender.send(Message::Finish);
        let ended = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")));
        let into = ended.with_context(wrong)?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let (written, dropped) = (count(&self.sink.shared.written), count(&self.sink.shared.dropped));
        let path = match (dropped > 0, is_interrupted) {
            // Devices and pipes cannot be renamed.
            _ if !into.is_temporary() => self.path.clone(),
            (true, _) => marked(&self.path, "incomplete"),
            (false, true) => marked(&self.path, "interrupted"),
            (false, false) => self.path.clone(),
        };
        into.finish_as(&path)?;
        if path != self.path && self.path.is_file() {
            // Rows of an earlier run would be taken for this one's.
            std::fs::remove_file(&self.path)
                .with_context(|| format!("cannot remove the earlier {}", self.path.display()))?;
        }
        Ok(Rows { path, written, dropped })
    }
}

impl RowSink {
    /// Queues the rows and returns at once; drops them and returns false if the queue is full or the file failed.
    pub(crate) fn push_batch(&self, rows: Vec<Row>) -> bool {
        let count = rows.len();
        let queued = self.shared.queued.fetch_add(count, Ordering::Relaxed) + count;
        let is_accepted = queued <= ROWS_QUEUED_MAX
            && !self.shared.has_failed.load(Ordering::Relaxed)
            && self.sender.send(Message::Rows(rows)).is_ok();
        if !is_accepted {
            self.shared.queued.fetch_sub(count, Ordering::Relaxed);
            self.shared.dropped.fetch_add(count as u64, Ordering::Relaxed);
        }
        is_accepted
    }
}

fn write(
    into: Pending,
    receiver: &Receiver<Message>,
    shared: &Shared,
    is_open: bool,
    label: impl Fn(u16) -> String,
) -> io::Result<Pending> {
    let mut file = writer(into);
    let mut labels = HashMap::new();
    let mut all = || {
        file.write_record(head(is_open))?;
        while let Ok(Message::Rows(rows)) = receiver.recv() {
            for row in &rows {
                file.serialize(row.fields(labels.entry(row.ending).or_insert_with(|| label(row.ending))))?;
            }
            shared.queued.fetch_sub(rows.len(), Ordering::Relaxed);
            shared.written.fetch_add(rows.len() as u64, Ordering::Relaxed);
        }
        file.flush()
    };
    let written = all();
    shared.has_failed.store(written.is_err(), Ordering::Relaxed);
    written?;
    file.into_inner().map_err(csv::IntoInnerError::into_error)
}

fn writer<W: io::Write>(into: W) -> csv::Writer<W> {
    csv::WriterBuilder::new().has_headers(false).buffer_capacity(BUFFER_BYTES).from_writer(into)
}

impl Row {
    /// The fields in the order of the file.
    fn fields<'a>(&self, label: &'a str) -> impl Serialize + use<'a> {
        (self.number, self.client, self.scheduled_ns, self.sent_ns, self.first_byte_ns, self.done_ns, label)
    }
}

/// Inserts the mark: `rows.csv` becomes `rows.interrupted.csv`.
fn marked(path: &Path, mark: &str) -> PathBuf {
    let ending = path.extension().map(|ending| format!(".{}", ending.to_string_lossy())).unwrap_or_default();
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}.{mark}{ending}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> Row {
        Row {
            number,
            client: Some(3),
            scheduled_ns: 10,
            sent_ns: Some(20),
            first_byte_ns: None,
            done_ns: 40,
            ending: 7,
        }
    }

    fn start(path: &Path, label: impl Fn(u16) -> String + Send + 'static) -> RowWriter {
        RowWriter::start(Pending::create(path).expect("writable"), false, label).expect("started")
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).expect("the folder is there");
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn rows_of_several_workers_are_read_back_by_another_reader() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.csv");
        let writer = start(&path, |ending| format!("odd, \"{ending}\""));
        let workers = [0, 1].map(|worker| {
            let sink = writer.sink();
            std::thread::spawn(move || {
                (0..100).all(|turn| sink.push_batch(vec![Row { first_byte_ns: Some(30), ..row(worker * 100 + turn) }]))
            })
        });
        assert!(workers.into_iter().all(|worker| worker.join().expect("no panic")));
        let kept = writer.sink();
        let rows = writer.finish(false).expect("written while a sink is still there");
        assert_eq!(rows, Rows { path: path.clone(), written: 200, dropped: 0 });
        assert!(!kept.push_batch(vec![row(0)]), "the file is closed");
        let mut reader = csv::Reader::from_path(&path).expect("there");
        assert_eq!(reader.headers().expect("a head").iter().collect::<Vec<_>>(), head(false));
        let mut numbers: Vec<u64> = reader
            .records()
            .map(|record| {
                let record = record.expect("as many fields as heads");
                assert_eq!(record.iter().skip(1).collect::<Vec<_>>(), ["3", "10", "20", "30", "40", "odd, \"7\""]);
                record[0].parse().expect("a number")
            })
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    }

    #[test]
    fn a_time_that_is_not_known_is_an_empty_field() {
        let mut lines = writer(Vec::new());
        lines.serialize(row(1).fields("OK")).expect("a vector takes it");
        let unsent = Row { client: None, sent_ns: None, ..row(2) };
        lines.serialize(unsent.fields("not sent")).expect("a vector takes it");
        let lines = String::from_utf8(lines.into_inner().expect("flushed")).expect("text");
        assert_eq!(lines, "1,3,10,20,,40,OK\n2,,10,,,40,not sent\n");
        assert_eq!(head(true)[1], "connection");
    }

    #[test]
    fn a_queue_that_is_full_refuses_rows_at_once_and_the_file_is_named_incomplete() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.csv");
        // The writer blocks at the first label until the queue is full.
        let (release, wait) = channel::<()>();
        let label = move |_| wait.recv().map_or_else(|_| "OK".to_owned(), |()| "OK".to_owned());
        let writer = start(&path, label);
        let sink = writer.sink();
        assert!(sink.push_batch(vec![row(0)]));
        assert!(sink.push_batch((1..ROWS_QUEUED_MAX as u64).map(row).collect()));
        assert!(!sink.push_batch(vec![row(0)]));
        release.send(()).expect("it waits");
        let rows = writer.finish(true).expect("written");
        assert_eq!((rows.written, rows.dropped), (ROWS_QUEUED_MAX as u64, 1));
        assert_eq!(names(folder.path()), ["rows.incomplete.csv"]);
    }

    #[test]
    fn an_interrupted_run_is_named_so_and_takes_the_place_of_an_earlier_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "earlier").expect("writable");
        let writer = start(&path, |_| "OK".to_owned());
        assert!(writer.sink().push_batch(vec![row(0)]));
        let rows = writer.finish(true).expect("written");
        assert_eq!(rows.path.file_name().expect("a name"), "rows.interrupted.csv");
        assert_eq!(names(folder.path()), ["rows.interrupted.csv"]);
    }

    #[test]
    fn a_disk_that_is_full_is_an_error_with_the_files_name() {
        let writer = start(Path::new("/dev/full"), |_| "OK".to_owned());
        let sink = writer.sink();
        while sink.push_batch((0..1000).map(row).collect()) {}
        let error = format!("{:#}", writer.finish(false).expect_err("no space"));
        assert!(error.starts_with("cannot write /dev/full: No space left"), "{error}");
    }
}
