//! Catalogues as CSV files: `id,title,topic,stock,price` with a header row, imported in one transaction, and exported
//! from a consistent snapshot.

use std::{
    borrow::Cow,
    cell::Cell,
    io::{self, Read, Write},
    path::Path,
};

use csv::{ByteRecord, ReaderBuilder};
use rusqlite::{ErrorCode, Transaction, TransactionBehavior};

use crate::{
    domain::{BookId, NewBook, STOCK_MAX},
    fault::Fault,
    money::{self, Cents},
    settings::Settings,
    store::{self, CopyError, DatabaseError, Importer, OpenError, Role},
};

/// The columns, in this order.
pub const COLUMNS: [&str; 5] = ["id", "title", "topic", "stock", "price"];

/// Longest title in bytes; a longer one indicates a broken file.
const TITLE_BYTES_MAX: usize = 4096;

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
    drop(store::open(path, if options.sample { Role::Owner } else { Role::Importer }, settings)?);
    let mut connection = store::open(path, Role::Tool, settings)?.connection;
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
    writer.write_record(COLUMNS)?;
    let (mut written, all) = (0, Cell::new(0));
    let write = |book: NewBook| -> Result<(), ExportError> {
        let (id, stock, price) = (book.id.to_string(), book.stock.to_string(), book.price.to_string());
        writer.write_record([&id, &*marked(&book.title), &*marked(&book.topic), &stock, &price])?;
        written += 1;
        progress(written, all.get());
        Ok(())
    };
    match &settings.url {
        Some(url) => Importer::begin(url, settings, false)?.each_book(|count| all.set(count), write)?,
        None => store::each_book(&store::reader(path, settings)?, |count| all.set(count), write)?,
    }
    writer.flush().map_err(ExportError::Write)?;
    Ok(written)
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
    let end = Cell::new(ROW_BYTES_MAX);
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(Bounded { source, given: 0, end: &end });
    let header = reader.byte_headers().map_err(|error| unread(error, 1))?;
    let plain = |cell: &[u8]| String::from_utf8_lossy(cell).trim().trim_start_matches('\u{feff}').to_ascii_lowercase();
    if header.iter().map(plain).ne(COLUMNS) {
        let shown = header.iter().map(String::from_utf8_lossy).collect::<Vec<_>>().join(",");
        return Err(ImportError::Header(shown.chars().take(100).collect()));
    }
    let (mut row, mut imported) = (ByteRecord::new(), Imported::default());
    let mut refuse = |imported: &mut Imported, line, (column, reason): Refused| match &mut options.skip_bad {
        Some(report) => {
            imported.bad += 1;
            report(&BadRow { line, column, reason });
            Ok(())
        }
        None => Err(ImportError::Bad(BadRow { line, column, reason })),
    };
    let (mut lines, mut books) = (Vec::new(), Vec::new());
    loop {
        end.set(reader.position().byte() + ROW_BYTES_MAX);
        let more = reader
            .read_byte_record(&mut row)
            .map_err(|error| unread(error, row.position().map_or(1, csv::Position::line)))?;
        (options.progress)(reader.position().byte());
        let line = row.position().map_or(0, csv::Position::line);
        let read = more.then(|| parse(&row, settings.limits.topic_bytes));
        let bad = match read {
            Some(Ok(book)) => {
                lines.push(line);
                books.push(book);
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
                    refuse(&mut imported, line, ("id", reason))?;
                }
            }
        }
        if let Some(bad) = bad {
            refuse(&mut imported, line, bad)?;
        }
        if !more {
            return Ok(imported);
        }
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

/// True if a spreadsheet runs a cell as a formula (OWASP, "CSV Injection"), or would without its marks.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches(MARK).starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
}

/// A cell in its exported form.
fn marked(text: &str) -> Cow<'_, str> {
    if is_formula(text) { format!("{MARK}{text}").into() } else { text.into() }
}

/// The text of a cell that [`marked`] made.
fn unmarked(cell: &str) -> &str {
    cell.strip_prefix(MARK).filter(|text| is_formula(text)).unwrap_or(cell)
}

/// True for a character that controls a terminal or the direction of text, which could disguise a title.
fn is_unseen(sign: char) -> bool {
    let steers =
        matches!(sign, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    sign.is_control() || steers
}

fn parse(row: &ByteRecord, topic_bytes_max: usize) -> Result<NewBook, Refused> {
    let cell = |index: usize| -> Result<&str, Refused> {
        let column = COLUMNS[index];
        let bytes = row.get(index).ok_or_else(|| (column, format!("missing; a row has {} fields", COLUMNS.len())))?;
        str::from_utf8(bytes).map_err(|_| (column, format!("'{}' is not UTF-8", bytes.escape_ascii())))
    };
    let bad = |index: usize, value: &str, want: &str| {
        (COLUMNS[index], Fault::invalid_word(COLUMNS[index], value, want).to_string())
    };
    let text = |index: usize, most: usize| -> Result<String, Refused> {
        let text = unmarked(cell(index)?.trim());
        if let Some(sign) = text.chars().find(|sign| is_unseen(*sign)) {
            let code = u32::from(sign);
            let reason = format!("it holds the invisible control character U+{code:04X}; remove it");
            return Err((COLUMNS[index], reason));
        }
        let fits = !text.is_empty() && text.len() <= most;
        if fits { Ok(text.to_owned()) } else { Err(bad(index, text, &format!("1 to {most} bytes of text"))) }
    };
    let (id, stock, price) = (cell(0)?.trim(), cell(3)?.trim(), cell(4)?.trim());
    let book = NewBook {
        id: id.parse().ok().and_then(BookId::new).ok_or_else(|| bad(0, id, BookId::WANTED))?,
        title: text(1, TITLE_BYTES_MAX)?,
        topic: text(2, topic_bytes_max)?,
        stock: stock
            .parse()
            .ok()
            .filter(|copies| *copies <= STOCK_MAX)
            .ok_or_else(|| bad(3, stock, &format!("a whole number from 0 to {STOCK_MAX}")))?,
        price: Cents::parse(price).ok_or_else(|| bad(4, price, money::WANTED))?,
    };
    match row.get(COLUMNS.len()) {
        None => Ok(book),
        Some(extra) => {
            Err(("price", format!("'{}' follows it; a row has {} fields", extra.escape_ascii(), COLUMNS.len())))
        }
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
        let titles = ["=1+1", "'=1+1", "''@a", "-273", "'tis", "A=b", "'", "＝1"];
        let rows = titles.iter().enumerate().map(|(row, title)| format!("{},{},+b,1,1.00\n", row + 1, marked(title)));
        let csv = format!("id,title,topic,stock,price\n{}", rows.collect::<String>());
        import_into(folder.path(), csv.as_bytes()).unwrap();
        let mut exported = Vec::new();
        export(&folder.path().join("books.db"), &mut exported, &Settings::default(), &mut |_, _| {}).unwrap();
        let exported = String::from_utf8(exported).unwrap();
        for line in ["1,'=1+1,'+b,", "2,''=1+1,", "3,'''@a,", "4,'-273,", "5,'tis,", "6,A=b,", "7,',", "8,'＝1,"] {
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
}
