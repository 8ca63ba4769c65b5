//! The service: the current state of the file, queries against it, and reloads.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use hosting::files;

use crate::{
    answer::{Answer, HeadAndTail, head_tail_and_len},
    cache::{Coding, CompressedAnswers, Identity, JoinedAnswers, JoinedState, pack},
    encode::Format,
    fault::{Fault, name_list},
    load::{self, LoadError, Problem},
    pool::Pool,
    query::{Query, Selection},
    settings::{Encode, Scan, Settings},
    table::Table,
};

/// Answers with more rows are composed on the job threads.
const ROWS_AT_ONCE_MAX: usize = 16_384;

/// Representation of an answer: the form of its rows, and what surrounds them.
#[derive(Debug)]
pub(crate) struct Representation {
    /// Unique name.
    pub name: &'static str,
    pub format: Format,
    /// Head and tail around pre-encoded rows.
    pub head_and_tail: HeadAndTail,
    /// Encodes the whole answer from the columns.
    pub encode: fn(&Selection) -> Vec<u8>,
}

/// An answer and its identity.
#[derive(Clone, Debug)]
pub(crate) struct CacheableAnswer {
    pub answer: Answer,
    pub identity: Identity,
}

/// Rows of one state of the file, as text.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The columns' names.
    pub columns: Vec<String>,
    /// The values of each row, in the order of the columns.
    pub rows: Vec<Vec<String>>,
    /// Number of matching rows.
    pub matching: usize,
}

/// State and counts of the service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Levels {
    /// Rows of the file.
    pub rows: u64,
    /// Memory of the file, in bytes.
    pub bytes: u64,
    /// Memory of compressed answers, in bytes.
    pub cache_bytes: u64,
    /// Memory of answers kept in one piece, in bytes.
    pub kept_bytes: u64,
    /// Queries that wait for a thread.
    pub jobs_queued: usize,
    /// Number of reloads.
    pub reloads: u64,
    /// Number of failed reloads.
    pub reload_failures: u64,
    /// Number of REST answers of status class 2xx or 3xx, and of the others.
    pub rest_answers: [u64; 2],
}

#[derive(Debug)]
struct Inner {
    settings: Settings,
    table: ArcSwapOption<Table>,
    pool: Pool,
    packed: CompressedAnswers,
    joined: JoinedAnswers,
    reloads: AtomicU64,
    reload_failures: AtomicU64,
    rest_refused: AtomicU64,
    rest_answered: AtomicU64,
}

/// The records of a file; clones share the service.
#[derive(Clone, Debug)]
pub struct Records {
    inner: Arc<Inner>,
    /// Deadline of this handle's queries.
    deadline: Option<Instant>,
}

impl Records {
    /// Loads the file, if there is one. Blocks while it loads.
    pub fn open(settings: Settings) -> Result<Self, LoadError> {
        let table = match &settings.csv {
            Some(path) => Some(Arc::new(load::file(path, &settings)?)),
            None => None,
        };
        Ok(Self::with(settings, table))
    }

    fn with(settings: Settings, table: Option<Arc<Table>>) -> Self {
        let inner = Arc::new(Inner {
            table: ArcSwapOption::new(table),
            pool: Pool::new(settings.limits.jobs, settings.limits.jobs_queued),
            packed: CompressedAnswers::new(settings.limits.cache_bytes),
            joined: JoinedAnswers::new(settings.limits.kept_bytes),
            reloads: AtomicU64::new(0),
            reload_failures: AtomicU64::new(0),
            rest_refused: AtomicU64::new(0),
            rest_answered: AtomicU64::new(0),
            settings,
        });
        Self { inner, deadline: None }
    }

    /// Returns a handle with a deadline: queries that would wait longer are refused.
    pub(crate) fn until(&self, deadline: Option<Instant>) -> Self {
        Self { inner: Arc::clone(&self.inner), deadline }
    }

    /// Reloads the file, and serves it once it is complete. If that fails, the previous one is served. Blocks while it
    /// loads.
    pub fn reload(&self) -> Result<(), LoadError> {
        let Some(path) = &self.inner.settings.csv else { return Ok(()) };
        let loaded =
            files::check_regular(path).map_err(|error| LoadError { path: path.clone(), problem: Problem::Open(error) });
        match loaded.and_then(|()| load::file(path, &self.inner.settings)) {
            Ok(table) => {
                // The old table is freed with the last answer made of it.
                self.inner.table.store(Some(Arc::new(table)));
                self.inner.reloads.fetch_add(1, Relaxed);
                Ok(())
            }
            Err(error) => {
                self.inner.reload_failures.fetch_add(1, Relaxed);
                Err(error)
            }
        }
    }

    /// True if a file is loaded.
    pub fn is_loaded(&self) -> bool {
        self.inner.table.load().is_some()
    }

    /// State and counts of the service.
    pub fn levels(&self) -> Levels {
        let table = self.inner.table.load();
        Levels {
            rows: table.as_ref().map_or(0, |table| table.rows().into()),
            bytes: table.as_ref().map_or(0, |table| table.bytes() as u64),
            cache_bytes: self.inner.packed.bytes(),
            kept_bytes: self.inner.joined.bytes(),
            jobs_queued: self.inner.pool.waiting(),
            reloads: self.inner.reloads.load(Relaxed),
            reload_failures: self.inner.reload_failures.load(Relaxed),
            rest_answers: [self.inner.rest_answered.load(Relaxed), self.inner.rest_refused.load(Relaxed)],
        }
    }

    pub(crate) fn rest_answered(&self, well: bool) {
        let count = if well { &self.inner.rest_answered } else { &self.inner.rest_refused };
        count.fetch_add(1, Relaxed);
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.inner.settings
    }

    /// The columns' names; none without a file.
    pub fn names(&self) -> Option<Vec<String>> {
        let table = self.inner.table.load();
        table.as_ref().map(|table| table.names().map(String::from).collect())
    }

    /// The current file, and the queried column.
    fn locate(&self, query: &Query) -> Result<(Arc<Table>, usize), Fault> {
        let table = self.inner.table.load_full().ok_or(Fault::NoFile)?;
        query.check()?;
        match table.column_place(&query.column) {
            Some(column) => Ok((table, column)),
            None => Err(Fault::NoColumn { wanted: shortened(&query.column), columns: name_list(table.names()) }),
        }
    }

    fn is_ready(&self, table: &Table, format: Format) -> bool {
        self.inner.settings.encode == Encode::Once && table.encoded(format).is_some()
    }

    /// The answer, if an I/O thread can give it without delaying other calls.
    pub(crate) fn answer_now(
        &self,
        query: &Query,
        representation: &'static Representation,
        rows_max: usize,
    ) -> Option<Result<CacheableAnswer, Fault>> {
        let (table, column) = match self.locate(query) {
            Ok(located) => located,
            Err(fault) => return Some(Err(fault)),
        };
        if self.inner.settings.scan != Scan::Indexed || !self.is_ready(&table, representation.format) {
            return None;
        }
        let selection = Selection::indexed(table, column, query);
        if selection.rows().len() > rows_max {
            return None;
        }
        Some(self.compose(selection, column, query, representation))
    }

    /// The answer.
    pub(crate) async fn answer(
        &self,
        query: Query,
        representation: &'static Representation,
    ) -> Result<CacheableAnswer, Fault> {
        if let Some(answer) = self.answer_now(&query, representation, ROWS_AT_ONCE_MAX) {
            return answer;
        }
        let records = self.clone();
        let work = move || {
            let (table, column) = records.locate(&query)?;
            let Settings { scan, scan_threads, .. } = records.inner.settings;
            let selection = Selection::find(table, column, &query, scan, scan_threads);
            records.compose(selection, column, &query, representation)
        };
        self.inner.pool.run(self.deadline, work).await?
    }

    /// The rows alone, for a stream.
    pub(crate) async fn select(&self, query: Query) -> Result<Selection, Fault> {
        let (table, column) = self.locate(&query)?;
        let Settings { scan, scan_threads, .. } = self.inner.settings;
        if scan == Scan::Indexed {
            return Ok(Selection::indexed(table, column, &query));
        }
        self.inner.pool.run(self.deadline, move || Selection::find(table, column, &query, scan, scan_threads)).await
    }

    /// The rows as text; the query's limit bounds their number.
    pub async fn rows(&self, query: Query) -> Result<Rows, Fault> {
        let selection = self.select(query).await?;
        let table = selection.table();
        let rows = selection.rows().iter().map(|row| table.values(*row).map(str::to_owned).collect()).collect();
        let columns = table.names().map(str::to_owned).collect();
        Ok(Rows { columns, rows, matching: selection.matching() })
    }

    fn compose(
        &self,
        selection: Selection,
        column: usize,
        query: &Query,
        representation: &'static Representation,
    ) -> Result<CacheableAnswer, Fault> {
        let identity = Identity {
            version: selection.table().version(),
            representation: representation.name,
            column,
            value: query.value.as_str().into(),
            part: selection.part(),
        };
        let (rows, matching) = (selection.rows().len(), selection.matching());
        let at = self.inner.settings.limits.answer_bytes;
        let within = |bytes| if bytes <= at { Ok(()) } else { Err(Fault::AnswerBytes { bytes, rows, at }) };
        let answer = if self.is_ready(selection.table(), representation.format) {
            Answer::of_ready(selection, representation.format, representation.head_and_tail).ok_or(Fault::Failed)?
        } else {
            // Refused before encoding.
            within(head_tail_and_len(&selection, representation.format, representation.head_and_tail).2)?;
            Answer::of_bytes((representation.encode)(&selection).into(), rows, matching)
        };
        within(answer.len())?;
        Ok(CacheableAnswer { answer, identity })
    }

    /// A message or page with some rows of a selection, for a stream.
    pub(crate) async fn part(
        &self,
        selection: &Selection,
        part: Range<usize>,
        representation: &'static Representation,
    ) -> Result<Answer, Fault> {
        let (part, matching) = (selection.slice(part), selection.matching());
        if self.is_ready(part.table(), representation.format) {
            return Answer::of_ready(part, representation.format, representation.head_and_tail).ok_or(Fault::Failed);
        }
        let rows = part.rows().len();
        let bytes = self.inner.pool.run(self.deadline, move || (representation.encode)(&part)).await?;
        Ok(Answer::of_bytes(bytes.into(), rows, matching))
    }

    /// The same answer, in one piece from its second caller on.
    pub(crate) async fn joined(&self, found: CacheableAnswer) -> CacheableAnswer {
        let CacheableAnswer { answer, identity } = &found;
        if !self.inner.joined.takes(answer) {
            return found;
        }
        let whole = match self.inner.joined.look_up(identity) {
            JoinedState::New => return found,
            JoinedState::Complete(whole) => whole,
            JoinedState::SeenOnce => {
                let scattered = answer.clone();
                // If no thread is free the rows are collected while they are sent.
                let Ok(whole) = self.inner.pool.run(self.deadline, move || scattered.collected()).await else {
                    return found;
                };
                self.inner.joined.insert(identity.clone(), whole.clone());
                whole
            }
        };
        CacheableAnswer {
            answer: Answer::of_bytes(whole, answer.rows(), answer.matching()),
            identity: identity.clone(),
        }
    }

    /// True if answers of this size are worth compressing.
    pub(crate) fn packs(&self, bytes: usize) -> bool {
        self.inner.settings.compress && bytes >= self.inner.settings.limits.compress_bytes_min
    }

    /// The answer, compressed.
    pub(crate) async fn packed(&self, found: CacheableAnswer, coding: Coding) -> Result<Bytes, Fault> {
        let CacheableAnswer { answer, identity } = found;
        let pack = self.inner.pool.run(self.deadline, move || pack(answer, coding));
        self.inner.packed.get_or_pack(identity, coding, pack).await
    }
}

/// The beginning of a text, for an error message.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 100;
    let mut chars = text.chars();
    let mut short: String = chars.by_ref().take(CHARS_MAX).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_long_is_refused_before_it_is_encoded() {
        static ROWS: Representation = Representation {
            name: "rows",
            format: Format::Json,
            head_and_tail: |_, _, _| (Bytes::new(), Bytes::new()),
            encode: |_| panic!("encoded"),
        };
        // The values have 3 bytes.
        let limits = crate::settings::Limits { answer_bytes: 24, ..Default::default() };
        let settings = Settings { encode: Encode::Each, limits, ..Settings::default() };
        let table = load::load("name,title\nx,yz\n".as_bytes(), 0, &settings).expect("a table");
        let records = Records::with(settings, Some(Arc::new(table)));
        let query = Query { column: "name".to_owned(), value: "x".to_owned(), ..Query::default() };
        let refused = records.answer(query, &ROWS).await.expect_err("a refusal");
        assert_eq!(refused, Fault::AnswerBytes { bytes: 25, rows: 1, at: 24 });
    }
}
