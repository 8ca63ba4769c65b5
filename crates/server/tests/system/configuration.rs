//! Settings from a file, variables and flags: in rising order, shown with their source, refused by name.

use std::fs;

use super::bad_starts::one_line;
use crate::common::{process::Start, store::folder};

/// What a server says that is started with this `quire.toml`.
#[track_caller]
fn refused(toml: &str, start: &Start) -> String {
    let folder = folder();
    fs::write(folder.path().join("quire.toml"), toml).expect("a file");
    let line = one_line(&mut start.command(folder.path()));
    assert!(!folder.path().join("data").exists(), "nothing was made");
    line
}

#[track_caller]
fn names(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "no '{part}' in: {line}");
    }
}

#[test]
fn a_setting_that_does_not_exist_is_named_with_those_that_do() {
    let start = Start::default();
    names(
        &refused("[ledger]\ncomit = 'each'\n", &start),
        &["there is no setting", "ledger.comit", "quire.toml", "commit"],
    );
    names(&refused("[leger]\ncommit = 'each'\n", &start), &["there is no setting", "leger", "quire.toml", "ledger"]);
    let variable = start.clone().variable("QUIRE_LEDGER_COMIT", "each");
    names(&refused("", &variable), &["there is no setting", "QUIRE_LEDGER_COMIT", "commit"]);
    names(
        &refused("", &start.set("ledger.comit=each")),
        &["--set ledger.comit=each", "there is no setting ledger.comit"],
    );
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_its_source() {
    let start = Start::default();
    names(&refused("[limits]\nconnections = 'many'\n", &start), &["limits.connections", "many", "quire.toml"]);
    names(&refused("[ledger]\ncommit = 'often'\n", &start), &["ledger.commit", "often", "group", "each", "quire.toml"]);
    let variable = start.clone().variable("QUIRE_LIMITS_CONNECTIONS", "many");
    names(&refused("", &variable), &["limits.connections", "many", "QUIRE_LIMITS_CONNECTIONS"]);
    names(&refused("", &start.set("limits.connections=many")), &["limits.connections", "many", "--set"]);
}

#[test]
fn a_value_out_of_range_is_named_with_the_range() {
    let start = Start::default();
    let from_file = refused("[limits]\nconnections = 0\n", &start);
    names(&from_file, &["limits.connections is '0'", "quire.toml", "it must be a whole number from 1 to 1048576"]);
    let variable = start.clone().variable("QUIRE_LEDGER_POOL", "1000");
    names(&refused("", &variable), &["ledger.pool is '1000', from QUIRE_LEDGER_POOL", "from 1 to 256"]);
    let drain = start.clone().set("server.drain_seconds=-1");
    names(&refused("", &drain), &["server.drain_seconds is '-1', from --set", "seconds above 0"]);
    let listen = start.clone().flag("--listen=here");
    names(&refused("", &listen), &["server.listen is 'here', from --listen", "127.0.0.1:10086"]);
    names(&refused("", &start.set("admin.token=short")), &["admin.token", "at least 16 ASCII characters"]);
}

#[test]
fn a_token_is_never_shown() {
    let line = refused("", &Start::default().set("admin.token=hunter2"));
    assert!(!line.contains("hunter2"), "{line}");
}

#[test]
fn what_is_no_setting_at_all_is_named() {
    let start = Start::default();
    names(&refused("", &start.clone().set("connections")), &["--set connections", "SECTION.KEY=VALUE"]);
    names(&refused("[limits\n", &start), &["quire.toml"]);
    names(&refused("", &start.clone().flag("--config=none.toml")), &["cannot read the configuration none.toml"]);
    names(&refused("", &start.flag("--log-level=lo=ud=er")), &["log.level is 'lo=ud=er'", "debug"]);
}

#[test]
fn flags_come_before_variables_before_the_file_and_each_source_is_shown() {
    let folder = folder();
    let toml =
        "[limits]\nconnections = 11\ncalls_in_flight = 12\npage_size = 13\n[admin]\ntoken = 'a very secret token'\n";
    fs::write(folder.path().join("quire.toml"), toml).expect("a file");
    let start = Start::default()
        .variable("QUIRE_LIMITS_CALLS_IN_FLIGHT", "22")
        .variable("QUIRE_LIMITS_PAGE_SIZE", "23")
        .set("limits.page_size=33")
        .flag("--print-config");
    let shown = start.command(folder.path()).output().expect("quire runs");
    assert!(shown.status.success(), "{shown:?}");
    let shown = String::from_utf8(shown.stdout).expect("text");
    let line = |section: &str, name: &str| {
        let mut section = shown.split("\n\n").find(|part| part.starts_with(&format!("[{section}]")))?.lines();
        section.find(|line| line.starts_with(&format!("{name} = ")))
    };
    let holds = |section: &str, name: &str, value: &str, source: &str| {
        let line = line(section, name).unwrap_or_else(|| panic!("no {section}.{name} in\n{shown}"));
        assert!(line.starts_with(&format!("{name} = {value} ")), "{line}");
        assert!(line.split_once("# ").is_some_and(|(_, from)| from.ends_with(source)), "{line}");
    };
    holds("limits", "connections", "11", "quire.toml");
    holds("limits", "calls_in_flight", "22", "QUIRE_LIMITS_CALLS_IN_FLIGHT");
    holds("limits", "page_size", "33", "--set");
    holds("server", "listen", "\"127.0.0.1:0\"", "--listen");
    holds("limits", "topic_bytes", "256", "default");
    assert!(!shown.contains("secret"), "{shown}");
    assert!(!folder.path().join("data").exists(), "nothing was made");
}

#[test]
fn what_print_config_shows_can_be_read_back() {
    let folder = folder();
    let start = Start::default().set("ledger.commit=each").set("limits.page_size=7").flag("--print-config");
    let first = start.command(folder.path()).output().expect("quire runs");
    assert!(first.status.success(), "{first:?}");
    fs::write(folder.path().join("quire.toml"), &first.stdout).expect("a file");
    let again = Start::default().flag("--print-config").command(folder.path()).output().expect("quire runs");
    let values = |shown: &[u8]| {
        let shown = String::from_utf8_lossy(shown).into_owned();
        shown.lines().map(|line| line.split(" # ").next().unwrap_or_default().trim_end().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&again.stdout), values(&first.stdout));
}
