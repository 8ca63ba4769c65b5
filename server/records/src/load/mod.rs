//! Loading of a file into a table: one thread reads and checks it, one fills the columns, one encodes the rows.

mod error;
mod rows;

use std::{
    fs::File,
    hash::Hasher as _,
    io::{ErrorKind, Read},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::{Duration, Instant},
};

use twox_hash::xxhash3_64;

pub use self::error::{LoadError, Problem};
use self::rows::{Batch, RowReader};
use crate::{
    encode::{Format, RowEncoder},
    settings::{Delimiter, Encode, Limits, Settings},
    table::{Column, Encoded, GrowingColumn, GrowingEncoded, Table},
};

/// Batches that may wait for each thread.
const BATCHES_WAITING: usize = 8;
/// Interval of progress in the log.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(2);

/// Loads a file. Blocks while it loads.
pub(crate) fn file(path: &Path, settings: &Settings) -> Result<Table, LoadError> {
    let failed = |problem| LoadError { path: path.to_owned(), problem };
    let opened = File::open(path).and_then(|file| match file.metadata()? {
        meta if meta.is_dir() => Err(ErrorKind::IsADirectory.into()),
        meta => Ok((file, meta.len())),
    });
    let (file, size) = opened.map_err(|error| failed(Problem::Open(error)))?;
    let started = Instant::now();
    let table = load(file, size, settings).map_err(failed)?;
    tracing::info!(
        file = %path.display(),
        rows = table.rows(),
        columns = table.columns().len(),
        bytes = table.bytes(),
        seconds = started.elapsed().as_secs_f64(),
        "records are loaded"
    );
    Ok(table)
}

/// The forms in which rows are pre-encoded.
fn ready_formats(settings: &Settings) -> Vec<Format> {
    let keep = settings.keep;
    let wanted = |format: &Format| match format {
        Format::Protobuf => keep.protobuf,
        Format::Json => keep.json,
        Format::Text => keep.text,
    };
    let formats = Format::ALL.into_iter().filter(wanted);
    if settings.encode == Encode::Each { Vec::new() } else { formats.collect() }
}

type Batches = Receiver<Arc<Batch>>;

pub(crate) fn load(source: impl Read, size: u64, settings: &Settings) -> Result<Table, Problem> {
    let mut rows = RowReader::open(source, settings.delimiter, &settings.limits)?;
    if settings.delimiter.is_none() && rows.delimiter() != Delimiter::default() {
        let found = rows.delimiter().name();
        tracing::info!("the header has no comma: fields are separated as by records.delimiter={found}");
    }
    let names = rows.header().to_vec();
    let formats = ready_formats(settings);
    let loaded = LoadedBytes::default();
    let (to_columns, for_columns) = sync_channel(BATCHES_WAITING);
    let (to_encoder, for_encoder) = sync_channel(BATCHES_WAITING);
    thread::scope(|scope| {
        let (names, loaded) = (&names, &loaded);
        let columns = scope.spawn(move || fill_columns(names, &for_columns, &loaded.columns));
        let encoded = scope.spawn(move || encode_rows(names, &formats, &for_encoder, &loaded.encoded));
        let to = [to_columns, to_encoder];
        let read = read_all(&mut rows, &to, loaded, size, &settings.limits);
        // The threads end when their channels close.
        drop(to);
        let (columns, encoded) = (join(columns), join(encoded));
        let (count, version) = read?;
        Ok(Table::new(columns, count, encoded, version))
    })
}

/// Joins a worker. Its panic is a bug, and is propagated.
fn join<T>(worker: thread::ScopedJoinHandle<'_, T>) -> T {
    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Memory of the rows loaded so far, as reported by each thread.
#[derive(Debug, Default)]
struct LoadedBytes {
    columns: AtomicUsize,
    encoded: AtomicUsize,
}

/// Reads and checks the rows, and passes them to the other threads. Returns their number and the file's version.
fn read_all(
    rows: &mut RowReader<'_, impl Read>,
    to: &[SyncSender<Arc<Batch>>],
    loaded: &LoadedBytes,
    size: u64,
    limits: &Limits,
) -> Result<(u32, u64), Problem> {
    let mut checksum = xxhash3_64::Hasher::new();
    for name in rows.header() {
        checksum.write(name.as_bytes());
        checksum.write(&[0xff]);
    }
    let (mut count, mut logged_at) = (0usize, Instant::now());
    while let Some(batch) = rows.batch()? {
        count += batch.rows();
        let (text, ends) = batch.parts();
        checksum.write(text);
        for end in ends {
            checksum.write(&end.to_le_bytes());
        }
        let batch = Arc::new(batch);
        for to in to {
            // A failed send means that the thread has panicked; joining it shows that.
            let _ = to.send(Arc::clone(&batch));
        }
        let bytes = loaded.columns.load(Relaxed) + loaded.encoded.load(Relaxed);
        if bytes > limits.total_bytes {
            return Err(Problem::TotalBytes { line: rows.line(), bytes, at: limits.total_bytes });
        }
        if logged_at.elapsed() >= PROGRESS_INTERVAL {
            logged_at = Instant::now();
            let percent = (rows.bytes_read() * 100).checked_div(size);
            tracing::info!(rows = count, percent, "records are being loaded");
        }
    }
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    Ok((count, checksum.finish()))
}

fn fill_columns(names: &[Box<str>], batches: &Batches, bytes: &AtomicUsize) -> Vec<Column> {
    let mut growing: Vec<GrowingColumn> = names.iter().map(|_| GrowingColumn::default()).collect();
    for batch in batches {
        for (place, column) in growing.iter_mut().enumerate() {
            column.extend(batch.column(place));
        }
        bytes.store(growing.iter().map(GrowingColumn::bytes).sum(), Relaxed);
    }
    // Each column's index by value is one job.
    let mut columns: Vec<(GrowingColumn, &Box<str>)> = growing.into_iter().zip(names).collect();
    let rest = columns.split_off(columns.len() / 2);
    let finish = |columns: Vec<(GrowingColumn, &Box<str>)>| {
        columns.into_iter().map(|(column, name)| column.finish(name.clone())).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let rest = scope.spawn(move || finish(rest));
        let mut columns = finish(columns);
        columns.extend(join(rest));
        columns
    })
}

fn encode_rows(names: &[Box<str>], formats: &[Format], batches: &Batches, bytes: &AtomicUsize) -> [Option<Encoded>; 3] {
    let encoder = RowEncoder::new(names.iter().map(|name| &**name));
    let mut growing: [Option<GrowingEncoded>; 3] =
        Format::ALL.map(|format| formats.contains(&format).then(GrowingEncoded::default));
    for batch in batches {
        for (format, growing) in Format::ALL.into_iter().zip(&mut growing) {
            let Some(growing) = growing else { continue };
            for row in 0..batch.rows() {
                growing.row(|out| encoder.row(format, batch.row(row), out));
            }
        }
        bytes.store(growing.iter().flatten().map(GrowingEncoded::bytes).sum(), Relaxed);
    }
    growing.map(|growing| growing.map(GrowingEncoded::finish))
}
