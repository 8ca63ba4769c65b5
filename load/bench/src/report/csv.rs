//! A row per request, written by a thread of its own during the run.
//!
//! Workers never wait for the file: if the queue is full, a batch is rejected, and the file's name shows that rows are
//! missing. Endings are numbers, which the caller translates.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use anyhow::Context as _;
use serde::Serialize;

use super::pending::Pending;

/// Rows that a worker hands over at once.
pub(crate) const BATCH_ROWS: usize = 1024;

/// Maximum batches queued for the writer, over all workers: some 20 MiB.
const BATCHES_QUEUED_MAX: usize = 256;

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
    pub(crate) sent_ns: Option<u64>,
    /// Arrival of the answer's first byte, where the transport reports it.
    pub(crate) first_byte_ns: Option<u64>,
    pub(crate) done_ns: u64,
    /// The workload's number of its ending.
    pub(crate) ending: u16,
}

#[derive(Debug)]
pub(crate) struct RowWriter {
    path: PathBuf,
    sink: RowSink,
    thread: JoinHandle<io::Result<(Pending, u64)>>,
}

#[derive(Clone, Debug)]
pub(crate) struct RowSink {
    batches: SyncSender<Vec<Row>>,
    lost: Arc<AtomicU64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rows {
    /// Path of the file; if rows are missing, its name has `interrupted` or `incomplete`.
    pub(crate) path: PathBuf,
    pub(crate) written: u64,
}

impl RowWriter {
    /// Starts the writing thread. `label` translates endings; it is called once for each.
    pub(crate) fn start(
        into: Pending,
        is_open: bool,
        label: impl Fn(u16) -> String + Send + 'static,
    ) -> anyhow::Result<Self> {
        let (batches, receiver) = sync_channel(BATCHES_QUEUED_MAX);
        let (path, sink) = (into.path().to_owned(), RowSink { batches, lost: Arc::default() });
        let write = move || write(into, receiver, is_open, label);
        let thread =
            std::thread::Builder::new().name("rows".to_owned()).spawn(write).context("cannot start a thread")?;
        Ok(Self { path, sink, thread })
    }

    pub(crate) fn sink(&self) -> RowSink {
        self.sink.clone()
    }

    /// Writes the queued rows and names the file. Waits for all sinks to be dropped.
    pub(crate) fn finish(self, is_interrupted: bool) -> anyhow::Result<Rows> {
        let wrong = || format!("cannot write {}", self.path.display());
        let lost = self.sink.lost();
        drop(self.sink);
        let ended = self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the writing thread panicked")));
        let (into, written) = ended.with_context(wrong)?;
        let path = match (lost > 0, is_interrupted) {
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
        Ok(Rows { path, written })
    }
}

impl RowSink {
    /// Queues the rows and returns at once; they are lost if the queue is full or the file failed.
    pub(crate) fn push_batch(&self, rows: Vec<Row>) {
        let count = rows.len() as u64;
        if self.batches.try_send(rows).is_err() {
            self.lost.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Number of rows lost so far.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }
}

fn write(
    into: Pending,
    batches: Receiver<Vec<Row>>,
    is_open: bool,
    label: impl Fn(u16) -> String,
) -> io::Result<(Pending, u64)> {
    let mut file = writer(into);
    let (mut labels, mut written) = (HashMap::new(), 0);
    file.write_record(head(is_open))?;
    for rows in batches {
        for row in &rows {
            file.serialize(row.fields(labels.entry(row.ending).or_insert_with(|| label(row.ending))))?;
        }
        written += rows.len() as u64;
    }
    file.flush()?;
    Ok((file.into_inner().map_err(csv::IntoInnerError::into_error)?, written))
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
                (0..100).for_each(|turn| {
                    sink.push_batch(vec![Row { first_byte_ns: Some(30), ..row(worker * 100 + turn) }]);
                });
            })
        });
        for worker in workers {
            worker.join().expect("no panic");
        }
        assert_eq!(writer.sink().lost(), 0);
        let rows = writer.finish(false).expect("written");
        assert_eq!(rows, Rows { path: path.clone(), written: 200 });
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
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let label = move |_| wait.recv().map_or_else(|_| "OK".to_owned(), |()| "OK".to_owned());
        let writer = start(&path, label);
        let sink = writer.sink();
        let mut pushed = 0;
        while sink.lost() == 0 {
            sink.push_batch(vec![row(pushed)]);
            pushed += 1;
        }
        assert!(pushed > BATCHES_QUEUED_MAX as u64);
        release.send(()).expect("it waits");
        drop(sink);
        assert_eq!(writer.finish(true).expect("written").written, pushed - 1);
        assert_eq!(names(folder.path()), ["rows.incomplete.csv"]);
    }

    #[test]
    fn an_interrupted_run_is_named_so_and_takes_the_place_of_an_earlier_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.csv");
        std::fs::write(&path, "earlier").expect("writable");
        let writer = start(&path, |_| "OK".to_owned());
        writer.sink().push_batch(vec![row(0)]);
        let rows = writer.finish(true).expect("written");
        assert_eq!(rows.path.file_name().expect("a name"), "rows.interrupted.csv");
        assert_eq!(names(folder.path()), ["rows.interrupted.csv"]);
    }

    #[test]
    fn a_disk_that_is_full_is_an_error_with_the_files_name() {
        let writer = start(Path::new("/dev/full"), |_| "OK".to_owned());
        while writer.sink().lost() == 0 {
            writer.sink().push_batch((0..1000).map(row).collect());
        }
        let error = format!("{:#}", writer.finish(false).expect_err("no space"));
        assert!(error.starts_with("cannot write /dev/full: No space left"), "{error}");
    }
}
