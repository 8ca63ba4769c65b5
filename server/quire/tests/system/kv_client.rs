//! `quire kv`: every command, exit codes, bytes that are not text, and writes without an answer.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::{Output, Stdio},
};

use kit::{Fault, Proxy};
use serde_json::{Value, json};

use super::terminal::{QUIRE, Terminal};
use crate::common::{
    process::{self, Server, Start},
    store::folder,
};

struct Store {
    folder: tempfile::TempDir,
    server: Server,
}

impl Store {
    fn start(start: &Start) -> Self {
        let folder = folder();
        let server = start.serve(folder.path());
        Self { folder, server }
    }

    fn run(&self, words: &[&str], input: &str) -> Output {
        let address = self.server.address.to_string();
        process::run(self.folder.path(), &[&["kv", &address], words].concat(), input)
    }

    #[track_caller]
    fn says(&self, words: &[&str], exit: i32) -> String {
        let done = self.run(words, "");
        assert_eq!(done.status.code(), Some(exit), "{words:?}: {done:?}");
        String::from_utf8(if exit == 0 { done.stdout } else { done.stderr }).expect("text")
    }

    #[track_caller]
    fn json(&self, words: &[&str], exit: i32) -> Value {
        let done = self.run(&[words, &["--json"]].concat(), "");
        assert_eq!(done.status.code(), Some(exit), "{words:?}: {done:?}");
        serde_json::from_slice(&done.stdout).expect("JSON")
    }
}

#[test]
fn every_command_does_what_it_says_with_a_journal_and_without() {
    for durability in ["memory", "log"] {
        let store = Store::start(&Start::default().set(&format!("kv.durability={durability}")));
        assert_eq!(store.says(&["get", "a"], 1), "there is no key 'a'\n");
        assert!(store.says(&["create", "a", "one"], 0).starts_with("stored"));
        assert_eq!(store.says(&["create", "a", "two"], 1), "the key 'a' exists; put or update replaces its value\n");
        assert_eq!(store.says(&["get", "a"], 0), "one");
        assert_eq!(store.says(&["update", "b", "two"], 1), "there is no key 'b'\n");
        // A put replaces it.
        assert!(store.says(&["put", "a", "two"], 0).starts_with("stored"));
        assert!(store.says(&["put", "b", "-3"], 0).starts_with("stored"));
        assert_eq!(store.says(&["get", "b"], 0), "-3");
        let version = store.json(&["get", "a"], 0)["version"].as_u64().expect("a version").to_string();
        let wrong = store.says(&["update", "a", "x", "--expected-version", "999999"], 1);
        assert!(wrong.contains(&format!("the entry has version {version}")), "{wrong}");
        assert!(store.says(&["update", "a", "three", "--expected-version", &version], 0).starts_with("stored"));
        assert_eq!(store.says(&["scan"], 0), "a\tthree\nb\t-3\n");
        assert_eq!(store.says(&["scan", "b", "--keys-only"], 0), "b\n");
        assert_eq!(store.says(&["scan", "--limit", "1"], 0), "a\tthree\n");
        assert_eq!(store.says(&["delete", "a"], 0), "deleted\n");
        assert_eq!(store.says(&["delete", "a"], 0), "there was no such key\n");
        assert_eq!(store.says(&["scan", "a"], 0), "");
        assert!(store.json(&["put", "c", "gone soon", "--ttl", "600"], 0)["success"] == true);
        assert!(store.json(&["get", "c"], 0)["time_to_live_ms"].as_u64().is_some_and(|left| left <= 600_000));
    }
}

#[test]
fn bytes_that_are_not_text_go_in_and_come_out_as_they_are() {
    let store = Store::start(&Start::default());
    let bytes: Vec<u8> = (0..=255).collect();
    fs::write(store.folder.path().join("value"), &bytes).expect("a file");
    store.says(&["put", "k", "--file", "value"], 0);
    assert_eq!(store.run(&["get", "k"], "").stdout, bytes, "a pipe has the value and nothing else");
    assert_eq!(store.run(&["put", "from input"], "text\n").status.code(), Some(0));
    assert_eq!(store.run(&["get", "from input"], "").stdout, b"text\n");
    store.says(&["put", "--hex", "00ff", "c0ffee"], 0);
    assert_eq!(store.says(&["get", "--hex", "00FF"], 0), "c0ffee\n");
    assert_eq!(store.says(&["get", "--base64", "AP8="], 0), "wP/u\n");
    let entry = store.json(&["get", "--hex", "00ff"], 0);
    assert_eq!((&entry["key_hex"], &entry["value_hex"]), (&json!("00ff"), &json!("c0ffee")));
    assert_eq!(store.json(&["get", "k"], 0)["value_base64"].as_str().map(str::len), Some(344));
    assert!(store.says(&["scan", "--hex", "00"], 0).starts_with("00ff\tc0ffee"));
    store.says(&["put", "--base64", "G1sySg==", "G1sySuKAri8v"], 0);
    assert!(store.says(&["scan"], 0).contains("\\u{1b}[2J\t\\u{1b}[2J\\u{202e}//\n"));
}

#[test]
fn a_value_on_a_terminal_is_escaped() {
    let store = Store::start(&Start::default());
    store.says(&["put", "--base64", "aw==", "G1sySuKAruKAriBlbmQ="], 0);
    let line = format!("{QUIRE} kv {} get k", store.server.address);
    let Some(mut terminal) = Terminal::run(store.folder.path(), &line) else { return };
    terminal.screen.until(" end");
    assert_eq!(terminal.ended(), Some(0));
    assert_eq!(terminal.screen.text().trim(), "\\u{1b}[2J\\u{202e}\\u{202e} end");
}

#[test]
fn a_watch_tells_each_change_in_a_line() {
    let store = Store::start(&Start::default());
    let address = store.server.address.to_string();
    let mut command = process::quire(store.folder.path());
    command.args(["kv", &address, "watch", "a", "--json"]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the client starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let mut next = || -> Value { serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON") };
    assert_eq!(next(), json!({ "event": "started" }));
    store.says(&["put", "a", "one"], 0);
    store.says(&["put", "b", "not watched"], 0);
    store.says(&["delete", "a"], 0);
    let (put, deleted) = (next(), next());
    assert_eq!((&put["event"], &put["key"], &put["value"]), (&json!("put"), &json!("a"), &json!("one")));
    assert_eq!((&deleted["event"], &deleted["key"]), (&json!("deleted"), &json!("a")));
    child.kill().expect("it can be ended");
    child.wait().expect("it ends");
    // A watch with a timeout ends successfully.
    assert_eq!(store.says(&["watch", "--timeout", "0.2"], 0), "started\n");
}

#[test]
fn a_write_without_an_answer_is_unknown_and_a_read_is_not() {
    let store = Store::start(&Start::default());
    let proxy = Proxy::start(store.server.address, &[Fault::Swallow]);
    let address = proxy.address.to_string();
    let run =
        |words: &[&str]| process::run(store.folder.path(), &[&["kv", "--timeout", "3", &address], words].concat(), "");
    let done = run(&["put", "a b", "one"]);
    assert_eq!(done.status.code(), Some(4), "{done:?}");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.ends_with(&format!("quire kv {address} get -- 'a b'\n")), "{said}");
    let done = run(&["--json", "delete", "x"]);
    let json: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    assert_eq!((done.status.code(), &json["outcome"]), (Some(4), &json!("UNKNOWN")));
    let message = json["message"].as_str().expect("a message");
    assert!(message.starts_with("it is not known whether the write was done: "), "{message}");
    assert!(!message.contains("quire kv"), "{message}");
    assert_eq!(json["command"], format!("quire kv --json {address} get -- x"));
    assert_eq!(run(&["get", "a b"]).status.code(), Some(3));
    assert_eq!(store.says(&["get", "a b"], 0), "one", "it was done");
}

#[test]
fn what_cannot_be_understood_exits_with_2() {
    let store = Store::start(&Start::default());
    for (words, wanted) in [
        (&["fetch", "a"][..], "there is no command 'fetch'"),
        (&["get"], "usage: get KEY"),
        (&["put", "a", "b", "c"], "usage: put KEY [VALUE]"),
        (&["put", "a", "b", "--file", "c"], "not both"),
        (&["get", "a", "--ttl", "5"], "--ttl is for put, create and update"),
        (&["put", "a", "--file", "absent"], "cannot read the value from absent"),
        (&["get", "--hex", "xy"], "'xy' is no hexadecimal"),
    ] {
        let said = store.says(words, 2);
        assert!(said.contains(wanted) && said.lines().count() == 1, "{words:?}: {said}");
    }
    let done = process::run(store.folder.path(), &["kv", "127.0.0.1:1", "--retries=0", "get", "a"], "");
    assert_eq!(done.status.code(), Some(3), "{done:?}");
}
