//! Failing starts: one line on standard error with the error and its remedy.

use std::{fs, net::TcpListener, path::Path, process::Command};

use rusqlite::{Connection, config::DbConfig};

use crate::common::{
    process::{Server, Start},
    store::{database, folder},
};

/// Runs to the end and returns the line.
#[track_caller]
pub(super) fn one_line(command: &mut Command) -> String {
    let ended = command.output().expect("quire runs");
    let said = String::from_utf8(ended.stderr).expect("text");
    assert!(!ended.status.success(), "it started: {said}");
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 1, "{said}");
    let line = lines[0].strip_prefix("quire: ").unwrap_or_else(|| panic!("who speaks? {said}"));
    line.to_owned()
}

#[track_caller]
fn refuses_data(folder: &Path, what: &str) {
    assert_eq!(one_line(&mut Start::default().command(folder)), what);
    fs::write(folder.join("books.csv"), "id,title,topic,stock,price\n1,A,b,1,1\n").expect("a file");
    let mut import = crate::common::process::quire(folder);
    let line = one_line(import.args(["import", "books.csv", "--data", "data"]));
    assert_eq!(line, format!("books.csv: {what}"), "import as well");
}

#[cfg(not(feature = "postgres"))]
#[test]
fn a_database_is_refused_by_a_build_without_postgres_which_names_the_one_that_has_it() {
    let folder = folder();
    let line = one_line(&mut Start::default().set("ledger.url=postgres://quire@127.0.0.1/shop").command(folder.path()));
    assert!(line.contains("this build has no PostgreSQL"), "{line}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
    assert!(line.contains("cargo build --release -p server"), "{line}");
}

#[test]
fn a_port_in_use_is_named() {
    let folder = folder();
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address").to_string();
    let line = one_line(&mut Start::default().flag("--listen").flag(&address).command(folder.path()));
    let start = format!("cannot listen on {address}: another program does; end it or choose another port");
    assert!(line.starts_with(&start), "{line}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[test]
fn an_address_of_another_machine_is_named() {
    let folder = folder();
    let start = Start::default().set("shop.open=true").set("kv.open=true").set("records.open=true");
    let start = start.set("rpcgame.open=true").set("metrics.open=true").flag("--listen").flag("192.0.2.1:1000");
    let line = one_line(&mut start.command(folder.path()));
    assert!(line.starts_with("cannot listen on 192.0.2.1:1000: ") && line.contains("--listen"), "{line}");
}

#[test]
fn a_file_that_is_no_database_is_left_as_it_is() {
    let folder = folder();
    let path = database(folder.path());
    fs::create_dir(folder.path().join("data")).expect("a folder");
    let text = "Dear diary, today I sold a book.\n".repeat(100);
    fs::write(&path, &text).expect("a file");
    let wanted = "data/bookstore.db is not an SQLite database; move it away or name another folder with --data";
    refuses_data(folder.path(), wanted);
    assert_eq!(fs::read_to_string(&path).expect("the file is there"), text);
}

#[test]
fn a_database_of_another_program_is_left_as_it_is() {
    let folder = folder();
    let path = database(folder.path());
    fs::create_dir(folder.path().join("data")).expect("a folder");
    Connection::open(&path).and_then(|file| file.execute_batch("CREATE TABLE pies (id)")).expect("a database");
    let before = fs::read(&path).expect("the file is there");
    let wanted = "data/bookstore.db is an SQLite database of another program; name another folder with --data";
    refuses_data(folder.path(), wanted);
    assert_eq!(fs::read(&path).expect("the file is there"), before);
}

#[test]
fn an_empty_database_of_another_programs_version_is_left_as_it_is() {
    let folder = folder();
    fs::create_dir(folder.path().join("data")).expect("a folder");
    let file = Connection::open(database(folder.path())).expect("a database");
    file.pragma_update(None, "user_version", 1).expect("a version can be set");
    let wanted = "data/bookstore.db is an SQLite database of another program; name another folder with --data";
    refuses_data(folder.path(), wanted);
}

#[test]
fn a_store_that_lost_its_tables_or_its_version_is_refused_in_plain_words() {
    let marked = "data/bookstore.db has the mark of a store, but not its tables; restore it from a backup or name another folder with --data";
    let table = "cannot use data/bookstore.db: its tables are not those of a store (no such table: entry); restore the file from a backup";
    let row = "cannot use data/bookstore.db: a row that every store has is missing; restore the file from a backup";
    for (sql, what) in [
        ("PRAGMA user_version = 0", marked),
        ("PRAGMA user_version = -3", marked),
        ("DROP TABLE entry", table),
        ("DELETE FROM meta", row),
    ] {
        let folder = folder();
        Server::start(folder.path()).stop();
        let file = Connection::open(database(folder.path())).expect("the file opens");
        file.execute_batch(sql).expect("the damage is done");
        drop(file);
        assert_eq!(one_line(&mut Start::default().command(folder.path())), what, "{sql}");
    }
}

#[test]
fn a_log_whose_numbers_are_impossible_is_refused() {
    for number in [i64::MAX, 0, -7] {
        let folder = folder();
        Server::start(folder.path()).stop();
        let file = Connection::open(database(folder.path())).expect("the file opens");
        file.execute("UPDATE entry SET number = ?1 WHERE number = 2", (number,)).expect("a number can be set");
        drop(file);
        let wanted = format!(
            "the log of data/bookstore.db has an entry with the number {number}, and its numbers must be from 1 to 9223372032559808511; if another program wrote that row, delete it, else start with a new file and import the catalogue into it"
        );
        refuses_data(folder.path(), &wanted);
    }
}

#[test]
fn rows_that_the_log_lacks_are_named_and_their_loss_can_be_accepted() {
    let folder = folder();
    Server::start(folder.path()).stop();
    let file = Connection::open(database(folder.path())).expect("the file opens");
    file.execute_batch("DELETE FROM entry WHERE number = 2").expect("a row can go");
    refuses_data(
        folder.path(),
        "the log of data/bookstore.db has lost an entry that was acknowledged, number 2: the file or its WAL was damaged, cut or replaced by an older one; restore a backup into a new folder with `quire restore` and keep this one, which the server has left as it was, or go on with what the log holds by `quire serve --accept-loss 1`",
    );
    let mut server = Start::default().flag("--accept-loss=1").serve(folder.path());
    let said = server.log.until("to the books' stock");
    assert!(said.contains("entries are missing from the log, as before: their loss was accepted"), "{said}");
    assert!(said.contains(r#""known_missing":1"#), "{said}");
    assert!(said.contains("book 12498 has 1000 copies, and by the log 0"), "{said}");
    server.kill();
}

#[test]
fn a_stock_that_another_program_set_without_an_entry_is_named_while_the_server_sells() {
    let folder = folder();
    Server::start(folder.path()).stop();
    let file = Connection::open(database(folder.path())).expect("the file opens");
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).expect("triggers can be off");
    file.execute_batch("UPDATE book SET stock = 7 WHERE id = 53477").expect("a stock can be set");
    drop(file);
    let server = Server::start(folder.path());
    let said = server.log.until("compared the log with the head, the stock and the keys");
    assert!(said.contains("book 53477 has 7 copies, and by the log 1000 (1000 came and 0 were sold)"), "{said}");
    assert!(said.contains(r#""problems":1"#), "{said}");
    server.stop();
}

#[test]
fn a_database_from_a_newer_version_is_named_with_both_versions() {
    let folder = folder();
    Server::start(folder.path()).stop();
    let newer = Connection::open(database(folder.path())).expect("the file opens");
    newer.pragma_update(None, "user_version", 1000).expect("a version can be set");
    drop(newer);
    let known = bookstore::store::VERSION;
    let wanted = format!(
        "data/bookstore.db has schema version 1000, and this program knows versions up to {known}; use a newer quire, \
         or restore a backup that this one made"
    );
    refuses_data(folder.path(), &wanted);
}

#[test]
fn a_database_without_permission_to_write_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = folder();
    Server::start(folder.path()).stop();
    let (data, file) = (folder.path().join("data"), database(folder.path()));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o444)).expect("a mode can be set");
    fs::set_permissions(&data, fs::Permissions::from_mode(0o555)).expect("a mode can be set");
    let root = fs::OpenOptions::new().append(true).open(&file).is_ok();
    if root {
        eprintln!("left out: no mode keeps this user from writing");
    } else {
        let line = one_line(&mut Start::default().command(folder.path()));
        assert!(line.starts_with("data/bookstore.db cannot be written; make the file and its folder"), "{line}");
    }
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).expect("a mode can be set");
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let folder = folder();
    fs::write(folder.path().join("data"), "a file").expect("a file");
    let line = one_line(&mut Start::default().command(folder.path()));
    assert!(line.starts_with("cannot make the folder data: ") && line.contains("--data"), "{line}");
}

#[test]
fn a_folder_in_the_place_of_a_file_is_named_before_anything_is_made() {
    let folder = folder();
    fs::create_dir(folder.path().join("here")).expect("a folder");
    let start = Start::default();
    let records = one_line(&mut start.clone().flag("--records-csv=here").command(folder.path()));
    assert_eq!(records, "here: the file cannot be opened: is a directory; name a readable CSV file with records.csv");
    let tls = start.clone().set("tls.certificate=here").set("tls.key=here");
    let tls = one_line(&mut tls.command(folder.path()));
    assert!(tls.starts_with("cannot read certificates from here: "), "{tls}");
    let file = one_line(&mut start.flag("--config=here").command(folder.path()));
    assert!(file.starts_with("cannot read the configuration here: "), "{file}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}
