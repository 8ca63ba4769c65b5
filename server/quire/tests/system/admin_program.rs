//! The operator's program `quire admin`: its commands over the network and in the console, exit codes and JSON.

use std::{fs, process::Output};

use serde_json::Value;

use super::terminal::{QUIRE, Terminal};
use crate::common::{
    NOWHERE, http,
    process::{self, Server, Start},
    store::{BOOK, folder, folder_with, one},
    wait_for,
};

/// The output of a command that ended with this code.
#[track_caller]
fn text(done: &Output, exit: i32) -> String {
    assert_eq!(done.status.code(), Some(exit), "{done:?}");
    String::from_utf8(done.stdout.clone()).expect("text")
}

/// The answers of a command, each one line of JSON.
#[track_caller]
fn json(server: &Server, words: &[&str]) -> Vec<Value> {
    let answered = text(&server.operate(&[&["--json"], words].concat(), ""), 0);
    answered.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn a_command_answers_over_the_network_as_in_the_console() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    server.shop().buy(one(BOOK)).await.expect("an answer");
    let college = "college life      2\n";
    for (command, last) in
        [("list", "39.00\n"), ("topics", "systems      2\n"), ("topics colege", college), ("log", "999\n")]
    {
        let remote = text(&server.operate(&command.split(' ').collect::<Vec<_>>(), ""), 0);
        assert_eq!(server.console(command, last), remote, "{command}");
    }
    assert_eq!(text(&server.operate(&["restock", "1001"], ""), 0), "4 books raised to 1001\n");
    assert_eq!(text(&server.operate(&["restock"], ""), 0), "0 books raised to 20\n");
    let told = text(&server.operate(&["update", "12365", "31.5"], ""), 0);
    assert_eq!(told, "book 12365 costs 31.50 now, 29.99 before\n");
    assert!(text(&server.operate(&["help"], ""), 0).contains("update <id> <price>"));
    assert_eq!(text(&server.operate(&["exit"], ""), 0), "");
    assert!(server.is_running());
}

#[test]
fn settings_are_read_again_and_named() {
    let folder = folder();
    let set = |text: &str| fs::write(folder.path().join("quire.toml"), text).expect("a file");
    set("[limits]\nlog_tails = 4\n");
    let server = Server::start(folder.path());
    let reload = |exit| text(&server.operate(&["reload"], ""), exit);
    let others = "; the server's log has the outcome of the other files\n";
    assert_eq!(reload(0), format!("no setting has changed{others}"));
    set("[limits]\nconnections = 20\nlog_tails = 4\nquantity = 2000\ntopic_bytes = 17\n");
    let now = "limits.connections=20, limits.quantity=2000 hold from now on";
    assert_eq!(reload(0), format!("{now}; limits.topic_bytes hold from the next start on{others}"));
    assert_eq!(http::metric(server.address, "quire_connections_max"), 20);
    set("[limits]\nlog_tails = \"many\"\n");
    let refused = server.operate(&["reload"], "");
    assert_eq!(text(&refused, 1), "");
    let reason = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(reason.contains("limits.log_tails") && reason.contains("many"), "{reason}");

    // A file that hangs takes one thread, and others are refused.
    let file = folder.path().join("quire.toml");
    fs::remove_file(&file).expect("it goes");
    let made = std::process::Command::new("mkfifo").arg(&file).status().expect("mkfifo runs");
    assert!(made.success());
    let hangs = server.operate(&["reload", "--timeout", "1s"], "");
    assert_eq!(hangs.status.code(), Some(4), "{hangs:?}");
    let refused = server.operate(&["reload"], "");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("being read already"), "{refused:?}");
    fs::write(&file, "").expect("it is read");
    fs::remove_file(&file).expect("it goes");
    wait_for("the reading's end", || server.operate(&["reload"], "").status.success().then_some(()));
}

#[tokio::test]
async fn json_is_a_line_for_each_item() {
    let folder = folder();
    let server = Server::start(folder.path());
    let books = json(&server, &["list"]);
    assert_eq!((books.len(), &books[0]["id"], &books[0]["price_cents"]), (4, &12365.into(), &2999.into()));
    assert_eq!(json(&server, &["topics"])[0], serde_json::json!({ "name": "college life", "books": 2 }));
    let changed = &json(&server, &["update", "12365", "1.00"])[0];
    assert_eq!((&changed["success"], &changed["price_cents_before"]), (&true.into(), &2999.into()));
    let newest = &json(&server, &["log", "--limit", "1"])[0];
    assert_eq!(
        (&newest["kind"], &newest["after"], &newest["number"]),
        (&"price".into(), &100.into(), &changed["number"])
    );
    assert_eq!(json(&server, &["restock", "2000"])[0]["books_raised"], 4);
}

#[test]
fn a_command_that_is_refused_exits_with_1_a_wrong_one_with_2_and_without_a_server_with_3() {
    let folder = folder();
    let server = Server::start(folder.path());
    assert_eq!(text(&server.operate(&["update", "1", "1"], ""), 1), "there is no book 1; list shows them all\n");
    for (words, wanted) in [
        (&["sell", "1"][..], "there is no command 'sell'; help lists them"),
        (&["list", "all"], "usage: list"),
        (&["restock", "-1"], "amount is '-1'; it must be a whole number from 0 to 2147483647"),
        (&["list", "--limit=3"], "--limit is for log, connections; leave it out"),
    ] {
        let done = server.operate(words, "");
        text(&done, 2);
        assert_eq!(String::from_utf8_lossy(&done.stderr), format!("quire: {wanted}\n"));
    }
    let done = process::run(folder.path(), &["admin", "--retries=0", NOWHERE, "list"], "");
    text(&done, 3);
    assert!(String::from_utf8_lossy(&done.stderr).contains("is a server running there?"), "{done:?}");
}

#[test]
fn an_operator_needs_the_servers_token() {
    let folder = folder();
    let server = Start::default().variable("QUIRE_ADMIN_TOKEN", "sixteen letters and more").serve(folder.path());
    let refused = server.operate(&["list"], "");
    text(&refused, 1);
    assert!(String::from_utf8_lossy(&refused.stderr).starts_with("send a token of the scope admin"), "{refused:?}");
    assert!(text(&server.operate(&["--token=sixteen letters and more", "list"], ""), 0).contains("53573"));
}

#[test]
fn commands_from_a_pipe_are_answered_one_by_one() {
    let folder = folder();
    let server = Server::start(folder.path());
    let done = server.operate(&[], "list\n\nsell 1\nlog --limit 1\nlog --unlimited\nexit\nupdate 12365 1\n");
    let said = text(&done, 2);
    assert!(said.contains("Surviving College") && said.contains("added"), "{said}");
    let wrong = "there is no command 'sell'; help lists them\nunexpected argument '--unlimited' found; help lists the commands\n";
    assert_eq!(String::from_utf8_lossy(&done.stderr), wrong);
    assert_eq!(json(&server, &["list"])[0]["price_cents"], 2999, "nothing after exit is done");
}

#[tokio::test]
async fn a_tail_at_a_terminal_shows_what_comes_until_enter() {
    let folder = folder();
    let server = Server::start(folder.path());
    let admin = format!("{QUIRE} admin {}", server.address);
    let Some(mut terminal) = Terminal::run(folder.path(), &admin) else { return };
    terminal.screen.until("quire admin> ");
    terminal.press_until("tail\r", "Enter ends it");
    server.shop().buy(one(BOOK)).await.expect("an answer");
    terminal.screen.until("purchase");
    terminal.press_until("\r", "quire admin> ");
    terminal.command("update 534\t 7.77\r", "book 53477 costs 7.77");
    terminal.press("\x04");
    assert_eq!(terminal.ended(), Some(0));
    let timed = server.operate(&["--timeout=1s", "tail"], "");
    text(&timed, 0);
}

#[test]
fn a_restock_of_more_than_a_hundred_books_asks_at_a_terminal() {
    let rows: Vec<String> = (1001..=1101).map(|id| format!("{id},Volume {id},encyclopedia,1,1.00\n")).collect();
    let folder = folder_with(&rows.concat());
    let server = Server::start(folder.path());
    let admin = format!("{QUIRE} admin {}", server.address);
    let Some(mut terminal) = Terminal::run(folder.path(), &admin) else { return };
    terminal.screen.until("quire admin> ");
    terminal.press_until("restock 2\r", "this raises more than 100 books to 2 copies; do it? [y/N] ");
    terminal.command("n\r", "nothing was changed");
    assert_eq!(json(&server, &["list"])[0]["stock"], 1);
    terminal.press_until("restock 2\r", "[y/N] ");
    terminal.command("y\r", "101 books raised to 2");
    terminal.press_until("restock 1001\r", "restock 1001 20 raises book 1001 alone. Raise them all? [y/N] ");
    terminal.command("\r", "nothing was changed");
    terminal.command("restock --yes 3\r", "101 books raised to 3");
    terminal.press("\x04");
    assert_eq!(terminal.ended(), Some(1), "the worst of them");
    assert_eq!(text(&server.operate(&["restock"], ""), 0), "101 books raised to 20\n");
}

#[test]
fn books_are_added_changed_delisted_and_listed_again() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let run = |words: &[&str]| text(&server.operate(words, ""), 0);
    assert_eq!(run(&["add", "Quire", "college life", "3", "24.50", "7"]), "book 7 was added\n");
    assert_eq!(run(&["add", "Next", "college life", "1", "1"]), "book 53574 was added\n");
    assert_eq!(run(&["restock", "7", "5"]), "book 7 has 5 copies now, 3 before\n");
    assert_eq!(run(&["restock", "7", "4"]), "book 7 keeps its 5 copies\n");
    let changed = run(&["edit", "7", "title", "Quire, again", "price", "26"]);
    assert_eq!(changed, "book 7 is changed: title 'Quire, again', 'Quire' before; price 26.00, 24.50 before\n");
    assert_eq!(run(&["edit", "7", "price", "26"]), "book 7 is as it was\n");
    assert_eq!(run(&["delist", "7"]), "book 7 is changed: delisted\n");
    assert!(run(&["list"]).lines().any(|line| line.contains("Quire, again") && line.ends_with("26.00  delisted")));
    assert_eq!(text(&server.client(&["lookup", "7"], ""), 1), "there is no book 7\n");
    assert_eq!(server.console("relist 7", "\n"), "book 7 is changed: listed again\n");
    assert!(text(&server.client(&["lookup", "7"], ""), 0).contains("Quire, again"));
    let kinds: Vec<(Value, Value)> = json(&server, &["log", "--book", "7"])
        .into_iter()
        .map(|entry| (entry["kind"].clone(), entry["actor"].clone()))
        .collect();
    let by = |kind: &str, actor: &str| (Value::from(kind), Value::from(actor));
    for wanted in [by("added", "-"), by("restock", "-"), by("price", "-"), by("delisted", "-"), by("listed", "console")]
    {
        assert!(kinds.contains(&wanted), "{wanted:?} in {kinds:?}");
    }
    for (words, wanted) in [
        (&["restock", "1", "5"][..], "there is no book 1; list shows them all\n"),
        (&["delist", "1"], "there is no book 1; list shows them all\n"),
    ] {
        assert_eq!(text(&server.operate(words, ""), 1), wanted);
    }
    text(&server.operate(&["add", "Taken", "college life", "1", "1", "7"], ""), 1);
}

const BOOKS_CSV: &str =
    "id,title,topic,stock,price\n12365,RPCs for Noobs,distributed systems,1000,19.99\n8,New,college life,2,3.00\n";

#[test]
fn an_import_says_what_it_would_do_and_does_it_if_told_so() {
    let folder = folder();
    let server = Server::start(folder.path());
    let csv = folder.path().join("books.csv");
    let file = csv.to_str().expect("a path");
    fs::write(&csv, BOOKS_CSV).expect("a file");
    let plan = text(&server.operate(&["import", file], ""), 1);
    assert!(plan.contains("price 19.99, 29.99 before"), "{plan}");
    assert!(plan.contains("1 book to add, 1 to change, 0 to leave as they are\n"), "{plan}");
    assert!(plan.ends_with("nothing was changed; --yes does it without asking\n"), "{plan}");
    assert_eq!(json(&server, &["list"]).len(), 4);
    let done = text(&server.operate(&["import", file, "--yes"], ""), 0);
    assert!(done.ends_with("1 book added, 1 changed, 0 left as they were\n"), "{done}");
    assert_eq!(json(&server, &["list"]).len(), 5);
    let again = &json(&server, &["import", "--yes", file])[0];
    assert_eq!((&again["unchanged"], &again["applied"]), (&2.into(), &false.into()));
    fs::write(&csv, format!("{BOOKS_CSV}9,Bad,college life,many,3.00\n10,Good,college life,1,3.00\n")).expect("a file");
    let refused = text(&server.operate(&["import", file, "--yes"], ""), 1);
    assert!(refused.contains("line 4, column stock: "), "{refused}");
    assert!(
        refused.ends_with("nothing was changed; mend the bad rows, or leave them out with --skip-bad\n"),
        "{refused}"
    );
    assert_eq!(json(&server, &["list"]).len(), 5);
    text(&server.operate(&["import", file, "--yes", "--skip-bad"], ""), 0);
    assert_eq!(json(&server, &["list"]).len(), 6);
    let from_input = server.operate(&["import", "-"], BOOKS_CSV);
    assert!(text(&from_input, 0).ends_with("0 books to add, 0 to change, 2 to leave as they are\n"));
}

#[test]
fn an_import_at_a_terminal_asks() {
    let folder = folder();
    let server = Server::start(folder.path());
    fs::write(folder.path().join("books.csv"), BOOKS_CSV).expect("a file");
    let interrupted = "interrupted; nothing was changed";
    for (answer, wanted, exit) in
        [("n\r", "nothing was changed", 1), ("\x03", interrupted, 1), ("y\r", "1 book added, 1 changed", 0)]
    {
        // A shell that waits for the program would get Ctrl-C too and exit with 130.
        let line = format!("exec {QUIRE} admin {} import books.csv", server.address);
        let Some(mut terminal) = Terminal::run(folder.path(), &line) else { return };
        terminal.screen.until("do it? [y/N] ");
        terminal.press_until(answer, wanted);
        assert_eq!(terminal.ended(), Some(exit));
    }
}

#[tokio::test]
async fn the_log_and_sales_are_exported_by_day_and_book() {
    let folder = folder_with("7,=Formula,college life,5,1.50\n");
    let server = Server::start(folder.path());
    for id in [BOOK, 7, 7] {
        server.shop().buy(one(id)).await.expect("an answer");
    }
    let run = |words: &[&str]| text(&server.operate(words, ""), 0);
    let sales = run(&["export", "sales", "--by", "book"]);
    let head = "day,book_id,title,purchases,copies,money,copies_unpriced\n";
    assert!(sales.starts_with(head), "{sales}");
    assert!(sales.contains(",7,'=Formula,2,2,3.00,0\n") && sales.contains(",12365,"), "{sales}");
    let table = run(&["sales"]);
    assert!(
        table.lines().last().is_some_and(|line| line.contains("all") && line.trim_end().ends_with("32.99")),
        "{table}"
    );
    let log = run(&["export", "log", "--book", "7"]);
    assert_eq!(log.lines().count(), 4, "a head, the book, two purchases: {log}");
    assert_eq!(run(&["export", "log", "--to", "2020-01-01"]).lines().count(), 1);
    let entries = run(&["--json", "export", "log", "--from", "2020-01-01"]);
    assert_eq!(entries.lines().filter(|line| line.contains("\"purchase\"")).count(), 3);
    let books = folder.path().join("books.csv");
    let file = books.to_str().expect("a path");
    run(&["export", "--out", file]);
    assert!(run(&["import", file]).ends_with("0 books to add, 0 to change, 5 to leave as they are\n"));
}

#[test]
fn a_store_without_a_server_is_updated_and_exported_by_the_same_commands() {
    let folder = folder();
    let run = |words: &[&str], exit: i32| {
        text(&process::run(folder.path(), &[words, &["--data", "data"]].concat(), ""), exit)
    };
    fs::write(folder.path().join("books.csv"), BOOKS_CSV).expect("a file");
    let absent = process::run(folder.path(), &["import", "--update", "books.csv", "--data", "data"], "");
    assert!(String::from_utf8_lossy(&absent.stderr).contains("there is no store data/bookstore.db"), "{absent:?}");
    run(&["import", "books.csv", "--no-sample"], 0);
    fs::write(folder.path().join("books.csv"), BOOKS_CSV.replace("3.00", "4.00")).expect("a file");
    assert!(run(&["import", "--update", "books.csv"], 1).contains("0 books to add, 1 to change, 1 to leave"));
    assert!(
        run(&["import", "--update", "books.csv", "--yes"], 0)
            .ends_with("0 books added, 1 changed, 1 left as they were\n")
    );
    assert!(
        run(&["export", "log", "--book", "8"], 0)
            .lines()
            .any(|line| line.contains(",price,8,,3.00,4.00,command line,"))
    );
    assert_eq!(run(&["export", "sales"], 0).lines().count(), 1);
}

#[tokio::test]
async fn connections_are_listed_and_cut_and_a_backup_comes_over_the_network() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let shop = server.shop();
    shop.lookup(one(BOOK)).await.expect("an answer");
    let open = json(&server, &["connections"]);
    let ids: Vec<u64> = open.iter().filter_map(|one| one["id"].as_u64()).collect();
    assert!(ids.len() >= 2, "the shopper's and the operator's: {open:?}");
    let id = ids.iter().min().expect("the shopper's").to_string();
    server.console("connections", "127.0.0.1:");
    assert!(server.console("top", "purchases").contains("the server"));
    let figures = &json(&server, &["top"])[0];
    assert_eq!(figures["healthy"], true, "{figures}");
    assert_eq!(text(&server.operate(&["cut", &id], ""), 0), format!("connection {id} was cut\n"));
    assert_eq!(text(&server.operate(&["cut", &id], ""), 1), format!("no connection {id} is open\n"));
    let file = folder.path().join("shop.backup");
    let name = file.to_str().expect("a path");
    text(&server.operate(&["backup", name], ""), 0);
    text(&server.operate(&["backup", name], ""), 2);
    text(&server.operate(&["backup", "--force", name], ""), 0);
    text(&process::run(folder.path(), &["restore", "shop.backup", "--data", "restored"], ""), 0);
}
