//! The operator's console on a pipe: commands and tables.

use std::time::Duration;

use crate::common::{
    audit::Audit,
    http,
    process::Server,
    store::{BOOK, folder, one},
};

/// The columns of a table's first line.
fn heads(table: &str) -> Vec<&str> {
    table.lines().next().unwrap_or_default().split_whitespace().collect()
}

#[tokio::test]
async fn list_shows_every_book_in_aligned_columns() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let table = server.console("list", "53573");
    assert_eq!(heads(&table), ["id", "title", "topic", "stock", "price"]);
    let lines: Vec<&str> = table.lines().skip(1).collect();
    let ids: Vec<&str> = lines.iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(ids, ["12365", "12498", "53477", "53573"]);
    for (line, price) in lines.iter().zip(["29.99", "18.50", "59.95", "39.00"]) {
        assert!(line.trim_end().ends_with(price), "two decimals: {line}");
    }
    let column = |text: &str| table.lines().filter_map(|line| line.find(text)).collect::<Vec<_>>();
    let topics = [column("college life"), column("distributed systems")].concat();
    assert!(topics.windows(2).all(|pair| pair[0] == pair[1]), "aligned: {table}");
}

#[tokio::test]
async fn restock_raises_what_is_below_and_leaves_what_is_above() {
    let folder = crate::common::store::folder_with("7,Scarce,scarcity,3,1.00\n");
    let mut server = Server::start(folder.path());
    assert_eq!(server.console("restock", "raised"), "1 book raised to 20\n");
    assert_eq!(server.console("restock 1001", "raised"), "5 books raised to 1001\n");
    assert_eq!(server.console("restock 7", "raised"), "0 books raised to 7\n");
    let plan = folder.path().join("plan.csv");
    std::fs::write(&plan, "id,title,topic,stock,price\n8,New,scarcity,2,3.00\n").expect("a file");
    server.console(&format!("import {}", plan.display()), "nothing was changed");
    server.console("restock 7 7", "keeps");
    let log = server.log.until(r#""method":"restock 7 7""#);
    assert!(log.contains("an operator's action"), "{log}");
    assert!(!log.contains(r#""method":"import"#), "nothing was imported: {log}");
    let audit = Audit::of(&server).await;
    assert!(audit.books.iter().all(|book| book.stock == 1001), "{audit:?}");
}

#[tokio::test]
async fn update_sets_a_price_that_shoppers_see() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    assert_eq!(server.console("update 12365 31.5", "costs"), "book 12365 costs 31.50 now, 29.99 before\n");
    let book = server.shop().lookup(one(BOOK)).await.expect("an answer").into_inner().book.expect("the book");
    assert_eq!(book.price_cents, 3150);
    assert_eq!(server.console("update 1 1", "no book"), "there is no book 1; list shows them all\n");
}

#[tokio::test]
async fn log_shows_recent_transactions_newest_last() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    server.shop().buy(one(BOOK)).await.expect("an answer");
    server.console("update 12365 31.5", "costs");
    let table = server.console("log", "31.50");
    assert_eq!(heads(&table), ["number", "time", "what", "book", "quantity", "before", "after", "by"]);
    let rows: Vec<Vec<&str>> = table.lines().skip(1).map(|line| line.split_whitespace().collect()).collect();
    let (sale, price) = (&rows[rows.len() - 2], &rows[rows.len() - 1]);
    assert_eq!((sale[0], &sale[2..]), ("5", ["purchase", "12365", "1", "1000", "999"].as_slice()));
    assert_eq!((price[0], &price[2..]), ("6", ["price", "12365", "29.99", "31.50", "console"].as_slice()));
    assert!(sale[1].ends_with('Z') && sale[1].contains('T'), "a time: {sale:?}");
}

#[test]
fn topics_are_listed_with_their_books_or_found_by_a_text_near_them() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let table = server.console("topics", "distributed systems");
    assert_eq!(heads(&table), ["topic", "books"]);
    assert!(table.lines().nth(1).is_some_and(|row| row.starts_with("college life") && row.trim_end().ends_with('2')));
    assert!(!server.console("topics colege life", "college life").contains("distributed"));
    assert_eq!(server.console("topics zzzzzz", "near"), "no topic is near 'zzzzzz'\n");
}

#[test]
fn help_lists_every_command() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let table = server.console("help", "stops the server");
    for command in ["list", "topics [text]", "restock [amount]", "update <id> <price>", "log", "help", "exit"] {
        assert!(table.lines().any(|line| line.starts_with(command)), "{command}: {table}");
    }
}

#[test]
fn a_line_that_is_no_command_is_answered_in_one_line_and_the_server_goes_on() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    let id = "it must be a whole number from 1 to 2147483647";
    let price = "it must be a price from 0.00 to 1000000000.00 with at most two decimals";
    let amount = "it must be a whole number from 0 to 2147483647";
    let cases = [
        ("sell 1", "there is no command 'sell'; help lists them".to_owned()),
        ("list all", "usage: list".to_owned()),
        ("update 12365", "usage: update <id> <price>".to_owned()),
        ("restock 1 2 3", "usage: restock [amount] | <id> <amount>".to_owned()),
        ("restock many", format!("amount is 'many'; {amount}")),
        ("restock -1", format!("amount is '-1'; {amount}")),
        ("restock 2147483648", format!("amount is '2147483648'; {amount}")),
        ("update abc 1", format!("id is 'abc'; {id}")),
        ("update -1 1", format!("id is '-1'; {id}")),
        ("update 12365 NaN", format!("price is 'NaN'; {price}")),
        ("update 12365 -1", format!("price is '-1'; {price}")),
        ("update 12365 1.234", format!("price is '1.234'; {price}")),
        ("update 12365 1e3", format!("price is '1e3'; {price}")),
        ("update 12365 inf", format!("price is 'inf'; {price}")),
    ];
    for (line, wanted) in cases {
        assert_eq!(server.console(line, "\n"), format!("{wanted}\n"), "{line}");
    }
    let long = "x".repeat(100_000);
    assert!(server.console(&long, "\n").starts_with("a line is longer than 65536 bytes"));
    assert!(server.console("list", "53573").contains("12365"));
}

#[test]
fn the_end_of_a_pipe_leaves_the_server_running() {
    let folder = folder();
    let mut server = Server::start(folder.path());
    server.console("list", "53573");
    server.end_input();
    // Long enough for a stopping server to have stopped listening.
    let until = std::time::Instant::now() + Duration::from_millis(300);
    while std::time::Instant::now() < until {
        assert_eq!(http::get(server.address, "/healthz").status, 200);
    }
    assert!(server.is_running());
    server.stop();
}

#[test]
fn exit_stops_the_server_in_order() {
    let folder = folder();
    for word in ["exit", "quit"] {
        let mut server = Server::start(folder.path());
        server.type_line(word);
        assert!(server.wait().success());
        server.log.until("\"reason\":\"console\"");
    }
}
