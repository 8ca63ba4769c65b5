//! Catalogues from CSV: all rows or none, and each bad row reported by line, column and reason.

use std::process::{Output, Stdio};

use crate::common::{
    audit::Audit,
    poll,
    process::{self, Server},
    store::{folder, import, import_file, one},
};

#[track_caller]
fn said(done: &Output) -> String {
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "it was taken: {done:?}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said.trim_end().to_owned()
}

/// Invalid rows with their error.
const BAD: [(&[u8], &str); 14] = [
    (b"2,Caf\xe9,b,1,1\n", "line 3, column title: 'Caf\\xe9' is not UTF-8"),
    (b"2,A,b,1\n", "line 3, column price: missing; a row has 5 fields"),
    (b"2,A,b,1,1,1\n", "line 3, column price: '1' follows it; a row has 5 fields"),
    (b"1,A,b,1,1\n", "line 3, column id: 1 is the id of a book that is there already; it must be a new one"),
    (b"x,A,b,1,1\n", "line 3, column id: id is 'x'; it must be a whole number from 1 to 2147483647"),
    (b"-2,A,b,1,1\n", "line 3, column id: id is '-2'; it must be a whole number from 1 to 2147483647"),
    (
        b"2,A\x1b[2J,b,1,1\n",
        "line 3, column title: title is 'A\\u{1b}[2J'; it must be without the invisible control character U+001B",
    ),
    (
        b"2,A,b\xe2\x80\xaec,1,1\n",
        "line 3, column topic: topic is 'b\\u{202e}c'; it must be without the invisible control character U+202E",
    ),
    (
        b"2,A\x00,b,1,1\n",
        "line 3, column title: title is 'A\\0'; it must be without the invisible control character U+0000",
    ),
    (b"2,,b,1,1\n", "line 3, column title: title is ''; it must be 1 to 4096 bytes of text"),
    (b"2,A, ,1,1\n", "line 3, column topic: topic is ''; it must be 1 to 256 bytes of text"),
    (b"2,A,b,-1,1\n", "line 3, column stock: stock is '-1'; it must be a whole number from 0 to 2147483647"),
    (b"2,A,b,1,NaN\n", "line 3, column price: price is 'NaN'; it must be a price from 0.00"),
    (b"2,A,b,1,1.234\n", "line 3, column price: price is '1.234'; it must be a price from 0.00"),
];

#[tokio::test]
async fn a_bad_row_is_named_and_nothing_is_imported() {
    let folder = folder();
    for (row, reason) in BAD {
        let rows = [b"1,Good,b,1,1.50\n", row, b"3,Better,b,1,1\n"].concat();
        let said = said(&import(folder.path(), &rows, &[]));
        assert!(said.starts_with(&format!("quire: books.csv: {reason}")), "{said}");
        assert!(said.ends_with("nothing was imported (--skip-bad leaves bad rows out)"), "{said}");
    }
    let server = Server::start(folder.path());
    assert_eq!(Audit::of(&server).await.books.len(), 4, "the sample catalogue and nothing else");
}

#[tokio::test]
async fn skip_bad_leaves_out_and_names_the_bad_rows_and_imports_the_rest() {
    let folder = folder();
    let rows: Vec<u8> = BAD.iter().flat_map(|(row, _)| row.iter().copied()).collect();
    let done = import(folder.path(), &[b"1,Good,b,7,1.50\n", &*rows, b"3,Better,b,1,1\n"].concat(), &["--skip-bad"]);
    assert!(done.status.success(), "{done:?}");
    let report = String::from_utf8_lossy(&done.stderr);
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines.len(), BAD.len(), "{report}");
    for ((line, (_, reason)), number) in lines.iter().zip(BAD).zip(3..) {
        let reason = reason.replacen("line 3", &format!("line {number}"), 1);
        assert!(line.starts_with(&format!("left out: {reason}")), "{line} is not {reason}");
    }
    let summary = String::from_utf8_lossy(&done.stdout);
    assert_eq!(summary, "2 books imported into data/bookstore.db, 14 rows left out\n");
    let server = Server::start(folder.path());
    let audit = Audit::of(&server).await;
    assert_eq!((audit.books.len(), audit.stock_of(1), audit.stock_of(3)), (6, 7, 1));
}

#[test]
fn a_header_that_is_not_the_right_one_is_shown_beside_it() {
    let folder = folder();
    let headers =
        ["id,title,topic,stock", "id,topic,title,stock,price", "id,title,topic,stock,price,isbn", "1,A,b,1,1"];
    for header in headers {
        let said = said(&import_file(folder.path(), format!("{header}\n1,A,b,1,1\n").as_bytes(), &[]));
        let wanted = format!("quire: books.csv: the header is '{header}'; it must be 'id,title,topic,stock,price'");
        assert!(said.starts_with(&wanted), "{said}");
    }
    assert!(import_file(folder.path(), b"", &[]).stderr.starts_with(b"quire: books.csv: the header is ''"));
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let folder = folder();
    let said = said(&process::run(folder.path(), &["import", "no.csv", "--data", "data"], ""));
    assert!(said.starts_with("quire: cannot read no.csv: "), "{said}");
}

#[tokio::test]
async fn quoted_fields_a_byte_order_mark_and_windows_line_ends_are_fine() {
    let folder = folder();
    let csv = "\u{feff}id,title,topic,stock,price\r\n7,\"Ink, \"\"and\"\" Quire\",späte Bücher,3,12.5\r\n";
    let done = import_file(folder.path(), csv.as_bytes(), &[]);
    assert!(done.status.success(), "{done:?}");
    let server = Server::start(folder.path());
    let audit = Audit::of(&server).await;
    let book = audit.books.iter().find(|book| book.id == 7).expect("the book is there");
    assert_eq!((&*book.title, &*book.topic, book.price_cents), ("Ink, \"and\" Quire", "späte Bücher", 1250));
}

#[tokio::test]
async fn a_generated_catalogue_is_imported_under_a_running_server() {
    let folder = folder();
    let server = Server::start(folder.path());
    let generated = process::run(folder.path(), &["generate", "catalogue", "--rows", "2000", "--seed", "5"], "");
    let again = process::run(folder.path(), &["generate", "catalogue", "--rows", "2000", "--seed", "5"], "");
    assert_eq!(generated.stdout, again.stdout, "the same seed makes the same file");
    let done = import_file(folder.path(), &generated.stdout, &[]);
    assert!(done.status.success(), "{done:?}");
    let last = String::from_utf8_lossy(&generated.stdout).lines().last().expect("rows").to_owned();
    let last: i32 = last.split(',').next().and_then(|id| id.parse().ok()).expect("an id");
    let shop = server.shop();
    poll("an imported book", async || shop.clone().lookup(one(last)).await.expect("an answer").into_inner().book).await;
    assert_eq!(Audit::of(&server).await.books.len(), 2004);
}

#[test]
fn import_finds_the_data_folder_where_serve_does() {
    let folder = folder();
    let file = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    file("books.csv", "id,title,topic,stock,price\n1,A,b,1,1\n");
    file("quire.toml", "[server]\ndata = 'from-file'\n");
    file("other.toml", "[server]\ndata = 'from-other'\n");
    let imported = |flags: &[&str], variable: &str| {
        let mut import = process::quire(folder.path());
        import.args(["import", "books.csv"]).args(flags);
        if !variable.is_empty() {
            import.env("QUIRE_SERVER_DATA", variable);
        }
        let done = import.output().expect("quire runs");
        assert!(done.status.success(), "{done:?}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    for (flags, variable, data) in [
        (&[][..], "", "from-file"),
        (&["--config", "other.toml"], "", "from-other"),
        (&[], "from-variable", "from-variable"),
        (&["--set", "server.data=from-set"], "from-variable", "from-set"),
        (&["--data", "from-flag"], "from-variable", "from-flag"),
    ] {
        assert_eq!(imported(flags, variable), format!("1 books imported into {data}/bookstore.db\n"));
        assert!(folder.path().join(data).join("bookstore.db").exists());
    }
    assert!(!folder.path().join("quire-data").exists(), "the default is used only when nothing else is said");
}

#[test]
fn a_reader_that_takes_only_the_beginning_ends_an_export_without_a_word() {
    let folder = folder();
    let books = process::run(folder.path(), &["generate", "catalogue", "--rows", "20000"], "").stdout;
    assert!(import_file(folder.path(), &books, &[]).status.success());
    for words in [["export", "--data", "data"].as_slice(), &["generate", "catalogue", "--rows", "20000"]] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_quire"));
        command.current_dir(folder.path()).args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("quire starts");
        let mut first = [0; 2];
        std::io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut first).expect("rows");
        drop(child.stdout.take());
        let ended = child.wait_with_output().expect("quire ends");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    }
}
