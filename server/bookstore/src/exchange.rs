//! Catalogues as CSV files: `id,title,topic,stock,price` with a header row, and `listed` (`yes` or `no`) behind them
//! where books are delisted. Imported in one transaction, and exported from a consistent snapshot.

use std::{
    borrow::Cow,
    cell::Cell,
    collections::HashSet,
    io::{self, Read, Write},
    path::Path,
};

use csv::{ByteRecord, ReaderBuilder};
use rusqlite::{ErrorCode, Transaction, TransactionBehavior};

use crate::{
    domain::{self, BookId, NewBook, STOCK_MAX, TITLE_BYTES_MAX},
    fault::Fault,
    money::{self, Cents},
    settings::Settings,
    store::{self, CopyError, Count, DatabaseError, Importer, OpenError, Role},
};

/// The columns, in this order.
pub const COLUMNS: [&str; 5] = ["id", "title", "topic", "stock", "price"];

/// A further column, which may be absent.
pub const LISTED: &str = "listed";

/// Maximum size of a row, more than its cells may have; a longer one lacks a line end or a quote.
const ROW_BYTES_MAX: u64 = 1 << 20;

/// Prefix that makes a spreadsheet show a cell as text instead of running it as a formula.
const MARK: char = '\'';

/// A row that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {reason}")]
pub struct BadRow {
    /// The line, with the header as line 1.
    pub line: u64,
    /// The column's name.
    pub column: &'static str,
    /// The error, with a valid form.
    pub reason: String,
}

/// Reason why nothing was imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The first bad row.
    #[error("{0}; nothing was imported (--skip-bad leaves bad rows out)")]
    Bad(BadRow),
    /// The header is wrong.
    #[error("the header is '{0}'; it must be '{want}'", want = COLUMNS.join(","))]
    Header(String),
    /// A row has no end.
    #[error(
        "the row that begins in line {0} has more than {ROW_BYTES_MAX} bytes; see that each row ends with its line and each \
         quote is closed. Nothing was imported"
    )]
    Row(u64),
    /// The file cannot be read.
    #[error("cannot read the file: {0}")]
    Read(csv::Error),
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The store cannot be written.
    #[error("cannot write the store: {0}; nothing was imported")]
    Store(String),
}

impl From<rusqlite::Error> for ImportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(store::reason(&error))
    }
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Books added.
    pub books: u64,
    /// Rows left out.
    pub bad: u64,
}

/// Reason why a catalogue was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store cannot be opened.
    #[error(transparent)]
    Open(#[from] CopyError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The store cannot be read.
    #[error("cannot read the store: {0}")]
    Store(String),
    /// The rows cannot be written.
    #[error("cannot write the catalogue: {0}")]
    Write(io::Error),
}

impl From<rusqlite::Error> for ExportError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Store(store::reason(&error))
    }
}

impl From<String> for ExportError {
    fn from(reason: String) -> Self {
        Self::Store(reason)
    }
}

impl From<csv::Error> for ExportError {
    fn from(error: csv::Error) -> Self {
        Self::Write(writing(error))
    }
}

/// The underlying error of a row that could not be written; `csv` would hide its kind.
pub(crate) fn writing(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

/// Options of an import.
pub struct Options<'a> {
    /// Called with the bytes read so far.
    pub progress: &'a mut dyn FnMut(u64),
    /// Called with each bad row, which is skipped; with `None` the first one ends the import.
    pub skip_bad: Option<&'a mut dyn FnMut(&BadRow)>,
    /// Creates a new store with the sample catalogue, as `serve` does.
    pub sample: bool,
}

/// Adds every row of `source` to the database of the settings, or else to the store at `path`, in one transaction.
/// Servers see the books once it is committed.
pub fn import(
    path: &Path,
    source: impl Read,
    settings: &Settings,
    options: Options<'_>,
) -> Result<Imported, ImportError> {
    if let Some(url) = &settings.url {
        let mut importer = Importer::begin(url, settings, options.sample)?;
        let imported = insert_all(&mut importer, source, settings, options)?;
        importer.commit().map_err(ImportError::Store)?;
        return Ok(imported);
    }
    let first = store::open(path, if options.sample { Role::Owner } else { Role::Importer }, settings)?;
    let mut connection = store::open(path, Role::Tool, settings)?.connection;
    drop(first);
    let transaction = Transaction::new(&mut connection, TransactionBehavior::Immediate)?;
    let imported = insert_all(&mut &transaction, source, settings, options)?;
    transaction.commit()?;
    Ok(imported)
}

/// Writes every book of the database of the settings, or else of the store at `path`, by id, in the form that
/// [`import`] reads; servers may have it open. `progress` gets the rows written and all rows. Returns their number.
pub fn export(
    path: &Path,
    into: impl Write,
    settings: &Settings,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<u64, ExportError> {
    let mut writer = csv::Writer::from_writer(into);
    // The columns, once it is known whether books are delisted.
    let (mut written, all, columns) = (0, Cell::new(0), Cell::new(0));
    let write = |book: NewBook| -> Result<(), ExportError> {
        if written == 0 {
            writer.write_record(header(columns.get()))?;
        }
        let (id, stock, price) = (book.id.to_string(), book.stock.to_string(), book.price.to_string());
        let listed = if book.listed { "yes" } else { "no" };
        let row = [&id, &*marked(&book.title), &*marked(&book.topic), &stock, &price, listed];
        writer.write_record(&row[..columns.get()])?;
        written += 1;
        progress(written, all.get());
        Ok(())
    };
    let begun = |count: Count| {
        all.set(count.books);
        columns.set(COLUMNS.len() + usize::from(count.delisted));
    };
    match &settings.url {
        Some(url) => Importer::begin(url, settings, false)?.each_book(begun, write)?,
        None => store::each_book(&store::reader(path, settings)?, begun, write)?,
    }
    if written == 0 {
        writer.write_record(COLUMNS)?;
    }
    writer.flush().map_err(ExportError::Write)?;
    Ok(written)
}

/// The first `columns` names of the header.
fn header(columns: usize) -> impl Iterator<Item = &'static str> {
    COLUMNS.into_iter().chain([LISTED]).take(columns)
}

/// Most rows that a report names of each sort.
pub const NAMED: usize = 100;

/// Result of an import, or of its preview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Rows with a new id.
    pub added: u64,
    /// Rows that differ from the book of their id.
    pub changed: u64,
    /// Rows that are as the book of their id.
    pub unchanged: u64,
    /// Rows left out.
    pub refused: u64,
    /// The first [`NAMED`] rows left out.
    pub bad: Vec<BadRow>,
    /// The first [`NAMED`] changes: a book before and after.
    pub changes: Vec<(NewBook, NewBook)>,
}

impl Report {
    fn refuse(&mut self, bad: BadRow) {
        self.refused += 1;
        if self.bad.len() < NAMED {
            self.bad.push(bad);
        }
    }

    /// Counts a book by its state before and after.
    pub(crate) fn count(&mut self, before: Option<NewBook>, after: NewBook) {
        match before {
            None => self.added += 1,
            Some(before) if before == after => self.unchanged += 1,
            Some(before) => {
                self.changed += 1;
                if self.changes.len() < NAMED {
                    self.changes.push((before, after));
                }
            }
        }
    }
}

/// An import's report so far, and its choice of rows.
pub(crate) struct Planned {
    pub(crate) report: Report,
    seen: HashSet<BookId>,
    /// True if the file has no such column: a book stays listed or not as it is.
    pub(crate) keeps_listed: bool,
}

impl Planned {
    pub(crate) fn new(keeps_listed: bool) -> Self {
        Self { report: Report::default(), seen: HashSet::new(), keeps_listed }
    }

    /// Rows with different ids.
    pub(crate) fn rows(&self) -> usize {
        self.seen.len()
    }

    /// Takes a row, or refuses it.
    pub(crate) fn admit(&mut self, read: Result<Row, BadRow>) -> Option<NewBook> {
        match read {
            Ok(Row { line, book }) if !self.seen.insert(book.id) => {
                let reason = format!("{} is the id of an earlier row; it must be a new one", book.id);
                self.report.refuse(BadRow { line, column: "id", reason });
                None
            }
            Ok(row) => Some(row.book),
            Err(bad) => {
                self.report.refuse(bad);
                None
            }
        }
    }

    /// The book that a row makes of the one before.
    pub(crate) fn after(&self, book: NewBook, before: Option<&NewBook>) -> NewBook {
        let listed = before.filter(|_| self.keeps_listed).map_or(book.listed, |before| before.listed);
        NewBook { listed, ..book }
    }
}

/// Rows added at once.
const ROWS: usize = 512;

/// Destination of rows.
trait Destination {
    /// Adds books with unused ids. Returns which were added.
    fn add(&mut self, books: &[NewBook]) -> Result<Vec<bool>, ImportError>;
}

impl Destination for &Transaction<'_> {
    fn add(&mut self, books: &[NewBook]) -> Result<Vec<bool>, ImportError> {
        let add = |book: &NewBook| match store::insert_books(self, [book.clone()]) {
            Ok(()) => Ok(true),
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation) => Ok(false),
            Err(error) => Err(error.into()),
        };
        books.iter().map(add).collect()
    }
}

impl Destination for Importer {
    fn add(&mut self, books: &[NewBook]) -> Result<Vec<bool>, ImportError> {
        Self::add(self, books).map_err(ImportError::Store)
    }
}

fn insert_all(
    destination: &mut impl Destination,
    source: impl Read,
    settings: &Settings,
    mut options: Options<'_>,
) -> Result<Imported, ImportError> {
    let end = Cell::new(0);
    let mut rows = Rows::of(source, &end, settings.limits.topic_bytes)?;
    let mut imported = Imported::default();
    let mut refuse = |imported: &mut Imported, bad: BadRow| match &mut options.skip_bad {
        Some(report) => {
            imported.bad += 1;
            report(&bad);
            Ok(())
        }
        None => Err(ImportError::Bad(bad)),
    };
    let (mut lines, mut books) = (Vec::new(), Vec::new());
    loop {
        let read = rows.read()?;
        (options.progress)(rows.bytes());
        let more = read.is_some();
        let bad = match read {
            Some(Ok(row)) => {
                lines.push(row.line);
                books.push(row.book);
                None
            }
            Some(Err(bad)) => Some(bad),
            None => None,
        };
        // Rows before a bad one are checked first, so that the first bad row is reported.
        if bad.is_some() || !more || books.len() == ROWS {
            let added = destination.add(&books)?;
            for ((line, book), added) in lines.drain(..).zip(books.drain(..)).zip(added) {
                if added {
                    imported.books += 1;
                } else {
                    let reason = format!("{} is the id of a book that is there already; it must be a new one", book.id);
                    refuse(&mut imported, BadRow { line, column: "id", reason })?;
                }
            }
        }
        if let Some(bad) = bad {
            refuse(&mut imported, bad)?;
        }
        if !more {
            return Ok(imported);
        }
    }
}

/// A row of a file.
pub(crate) struct Row {
    /// The line in which it begins.
    pub(crate) line: u64,
    /// Its book, listed if the file has no such column.
    pub(crate) book: NewBook,
}

/// The rows of a file, one at a time.
pub(crate) struct Rows<'e, R> {
    reader: csv::Reader<Bounded<'e, R>>,
    row: ByteRecord,
    end: &'e Cell<u64>,
    topic_bytes_max: usize,
    has_listed: bool,
}

impl<'e, R: Read> Rows<'e, R> {
    /// Reads the header. `end` is for the rows alone.
    pub(crate) fn of(source: R, end: &'e Cell<u64>, topic_bytes_max: usize) -> Result<Self, ImportError> {
        end.set(ROW_BYTES_MAX);
        let mut reader = ReaderBuilder::new().flexible(true).from_reader(Bounded { source, given: 0, end });
        let found = reader.byte_headers().map_err(|error| unread(error, 1))?;
        let plain =
            |cell: &[u8]| String::from_utf8_lossy(cell).trim().trim_start_matches('\u{feff}').to_ascii_lowercase();
        let has_listed = found.len() > COLUMNS.len();
        if found.iter().map(plain).ne(header(COLUMNS.len() + usize::from(has_listed))) {
            let shown = found.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(",");
            return Err(ImportError::Header(shown.chars().take(100).collect()));
        }
        Ok(Self { reader, row: ByteRecord::new(), end, topic_bytes_max, has_listed })
    }

    /// The next row, or the reason why it cannot be taken; `None` after the last.
    pub(crate) fn read(&mut self) -> Result<Option<Result<Row, BadRow>>, ImportError> {
        self.end.set(self.reader.position().byte() + ROW_BYTES_MAX);
        let more = self.reader.read_byte_record(&mut self.row);
        let line = self.row.position().map_or(1, csv::Position::line);
        if !more.map_err(|error| unread(error, line))? {
            return Ok(None);
        }
        let read = parse(&self.row, self.topic_bytes_max, self.has_listed);
        Ok(Some(match read {
            Ok(book) => Ok(Row { line, book }),
            Err((column, reason)) => Err(BadRow { line, column, reason }),
        }))
    }

    /// True if the file has the column [`LISTED`].
    pub(crate) const fn has_listed(&self) -> bool {
        self.has_listed
    }

    /// Bytes read so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.reader.position().byte()
    }
}

type Refused = (&'static str, String);

/// A source that is read up to `end` only, so that a row is refused before all of it is in memory.
struct Bounded<'e, R> {
    source: R,
    given: u64,
    end: &'e Cell<u64>,
}

impl<R: Read> Read for Bounded<'_, R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.end.get().saturating_sub(self.given)).unwrap_or(usize::MAX);
        if left == 0 {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let most = into.len().min(left);
        let read = self.source.read(&mut into[..most])?;
        self.given += read as u64;
        Ok(read)
    }
}

/// Error of a row, beginning in `line`, that could not be read.
fn unread(error: csv::Error, line: u64) -> ImportError {
    match error.kind() {
        csv::ErrorKind::Io(reason) if reason.kind() == io::ErrorKind::FileTooLarge => ImportError::Row(line),
        _ => ImportError::Read(error),
    }
}

/// True if a spreadsheet runs a cell as a formula (OWASP, "CSV Injection"), or would without its marks. A lone `-`, an
/// actor without a credential, is text to it.
fn is_formula(text: &str) -> bool {
    let text = text.trim_start_matches(MARK);
    text != "-" && text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
}

/// A cell in its exported form.
pub fn marked(text: &str) -> Cow<'_, str> {
    if is_formula(text) { format!("{MARK}{text}").into() } else { text.into() }
}

/// The text of a cell that [`marked`] made.
fn unmarked(cell: &str) -> &str {
    cell.strip_prefix(MARK).filter(|text| is_formula(text)).unwrap_or(cell)
}

fn parse(row: &ByteRecord, topic_bytes_max: usize, has_listed: bool) -> Result<NewBook, Refused> {
    let fields = COLUMNS.len() + usize::from(has_listed);
    let cell = |index: usize, column: &'static str| -> Result<&str, Refused> {
        let bytes = row.get(index).ok_or_else(|| (column, format!("missing; a row has {fields} fields")))?;
        str::from_utf8(bytes).map_err(|_| (column, format!("'{}' is not UTF-8", bytes.escape_ascii())))
    };
    let bad =
        |column: &'static str, value: &str, want: &str| (column, Fault::invalid_word(column, value, want).to_string());
    let text = |index: usize, most: usize| -> Result<String, Refused> {
        let column = COLUMNS[index];
        let text = unmarked(cell(index, column)?.trim());
        domain::checked_text(column, text, most).map_err(|fault| (column, fault.to_string()))
    };
    let number = |index: usize| cell(index, COLUMNS[index]).map(str::trim);
    let (id, stock, price) = (number(0)?, number(3)?, number(4)?);
    let book = NewBook {
        id: id.parse().ok().and_then(BookId::new).ok_or_else(|| bad("id", id, BookId::WANTED))?,
        title: text(1, TITLE_BYTES_MAX)?,
        topic: text(2, topic_bytes_max)?,
        stock: stock
            .parse()
            .ok()
            .filter(|copies| *copies <= STOCK_MAX)
            .ok_or_else(|| bad("stock", stock, &format!("a whole number from 0 to {STOCK_MAX}")))?,
        price: Cents::parse(price).ok_or_else(|| bad("price", price, money::WANTED))?,
        listed: !has_listed || listed(cell(COLUMNS.len(), LISTED)?)?,
    };
    match row.get(fields) {
        None => Ok(book),
        Some(extra) => {
            let last = if has_listed { LISTED } else { "price" };
            Err((last, format!("'{}' follows it; a row has {fields} fields", extra.escape_ascii())))
        }
    }
}

fn listed(cell: &str) -> Result<bool, Refused> {
    match cell.trim().to_ascii_lowercase().as_str() {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err((LISTED, Fault::invalid_word(LISTED, cell, "yes or no").to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn import_into(folder: &Path, source: impl Read) -> Result<Imported, ImportError> {
        let options = Options { progress: &mut |_| {}, skip_bad: Some(&mut |row| panic!("{row}")), sample: false };
        import(&folder.join("books.db"), source, &Settings::default(), options)
    }

    #[test]
    fn a_row_without_an_end_is_refused_while_it_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let head = "id,title,topic,stock,price\n1,A,b,1,1.00\n2,\"";
        for (begin, filler, line) in [("", b'\0', 1), ("", b'"', 1), (head, b'a', 3), (head, b'\n', 3)] {
            let mut source = begin.as_bytes().chain(io::repeat(filler).take(2 * ROW_BYTES_MAX));
            let refused = import_into(folder.path(), &mut source).unwrap_err();
            assert!(refused.to_string().contains(&format!("in line {line} has more")), "{refused}");
            let left = io::copy(&mut source, &mut io::sink()).unwrap();
            assert!(left >= ROW_BYTES_MAX - 100, "it was read on");
        }
    }

    #[test]
    fn formulas_are_marked_in_an_export_and_are_themselves_again_after_an_import() {
        let folder = tempfile::tempdir().unwrap();
        let titles = ["=1+1", "'=1+1", "''@a", "-273", "'tis", "A=b", "'", "＝1", "-", "'-"];
        let rows = titles.iter().enumerate().map(|(row, title)| format!("{},{},+b,1,1.00\n", row + 1, marked(title)));
        let csv = format!("id,title,topic,stock,price\n{}", rows.collect::<String>());
        import_into(folder.path(), csv.as_bytes()).unwrap();
        let mut exported = Vec::new();
        export(&folder.path().join("books.db"), &mut exported, &Settings::default(), &mut |_, _| {}).unwrap();
        let exported = String::from_utf8(exported).unwrap();
        for line in [
            "1,'=1+1,'+b,",
            "2,''=1+1,",
            "3,'''@a,",
            "4,'-273,",
            "5,'tis,",
            "6,A=b,",
            "7,',",
            "8,'＝1,",
            "9,-,",
            "10,'-,",
        ] {
            assert!(exported.lines().any(|exported| exported.starts_with(line)), "{line} in {exported}");
        }
        let again = tempfile::tempdir().unwrap();
        import_into(again.path(), exported.as_bytes()).unwrap();
        let file = store::open(&again.path().join("books.db"), Role::Reader, &Settings::default()).unwrap().connection;
        let mut found = Vec::new();
        store::each_book(
            &file,
            |_| {},
            |book| -> rusqlite::Result<()> {
                found.push(book.title);
                Ok(())
            },
        )
        .unwrap();
        assert_eq!(found, titles);
    }

    #[test]
    fn an_export_names_delisted_books_if_there_are_any_and_is_read_back() {
        let exported = |csv: &str| {
            let folder = tempfile::tempdir().unwrap();
            import_into(folder.path(), csv.as_bytes()).unwrap();
            let mut out = Vec::new();
            export(&folder.path().join("books.db"), &mut out, &Settings::default(), &mut |_, _| {}).unwrap();
            String::from_utf8(out).unwrap()
        };
        let lines = exported("id,title,topic,stock,price,listed\n7,Seven,new,3,1,no\n8,Eight,new,3,1,yes\n");
        assert!(lines.starts_with("id,title,topic,stock,price,listed\n7,Seven,new,3,1.00,no\n8,"), "{lines}");
        assert_eq!(exported(&lines), lines);
        let listed = exported("id,title,topic,stock,price\n7,Seven,new,3,1\n");
        assert!(listed.starts_with("id,title,topic,stock,price\n7,"), "{listed}");
    }

    #[test]
    fn a_store_of_an_older_release_is_exported_without_being_migrated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("books.db");
        let older = store::open(&path, Role::Owner, &Settings::default()).unwrap().connection;
        older
            .execute_batch("DROP TRIGGER book_listed; ALTER TABLE book DROP COLUMN listed; PRAGMA user_version = 2")
            .unwrap();
        older.close().unwrap();
        let mut out = Vec::new();
        assert_eq!(export(&path, &mut out, &Settings::default(), &mut |_, _| {}).unwrap(), 4);
        assert!(out.starts_with(b"id,title,topic,stock,price\n12365,"));
    }
}
