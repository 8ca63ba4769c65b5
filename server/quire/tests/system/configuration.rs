//! Settings from a file, variables and flags: precedence, printed sources, and errors by name.

use std::fs;

use super::bad_starts::one_line;
use crate::common::{process::Start, store::folder};

/// The error of a server started with this `quire.toml`.
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
        &["there is no setting ledger.comit", "quire.toml", "did you mean ledger.commit?"],
    );
    names(
        &refused("[leger]\ncommit = 'each'\n", &start),
        &["there is no setting leger", "quire.toml", "did you mean [ledger]?"],
    );
    names(
        &refused("listen = ':80'\n", &start),
        &["there is no setting listen", "did you mean rpcgame.listen, server.listen or tasks.listen?"],
    );
    names(
        &refused("", &start.set("ledger.comit=each")),
        &["--set ledger.comit=each: there is no setting ledger.comit; did you mean ledger.commit?"],
    );
}

#[test]
fn a_value_of_the_wrong_type_is_named_with_its_source() {
    let start = Start::default();
    let number = "it must be a whole number";
    names(
        &refused("[limits]\nconnections = 'many'\n", &start),
        &["limits.connections is 'many'", "quire.toml", number],
    );
    let commit = |value: &str| refused(&format!("[ledger]\ncommit = {value}\n"), &start);
    names(&commit("'often'"), &["ledger.commit is 'often', from ", "quire.toml; it must be group or each"]);
    names(&commit("'grup'"), &["it must be group or each; did you mean group?"]);
    names(&commit("5"), &["ledger.commit is '5', from ", "quire.toml; it must be ", "group", "each"]);
    names(&commit("['each']"), &["ledger.commit is 'a list', from ", "group", "each"]);
    names(&refused("limits = 5\n", &start), &["limits is '5'", "quire.toml; it must be a section, as [limits]"]);
    names(&refused("[kv]\nenabled = 1\n", &start), &["kv.enabled is '1'", "it must be true or false"]);
    let variable = start.clone().variable("QUIRE_LIMITS_CONNECTIONS", "many");
    names(&refused("", &variable), &["limits.connections is 'many', from QUIRE_LIMITS_CONNECTIONS", number]);
    names(&refused("", &start.set("limits.connections=many")), &["limits.connections is 'many', from --set", number]);
}

#[test]
fn a_value_out_of_range_is_named_with_the_range() {
    let start = Start::default();
    let from_file = refused("[limits]\nconnections = 0\n", &start);
    names(&from_file, &["limits.connections is '0'", "quire.toml", "it must be a whole number from 1 to 1048576"]);
    let variable = start.clone().variable("QUIRE_LEDGER_POOL", "1000");
    names(&refused("", &variable), &["ledger.pool is '1000', from QUIRE_LEDGER_POOL", "from 1 to 256"]);
    let drain = start.clone().set("server.drain_seconds=-1");
    names(&refused("", &drain), &["server.drain_seconds is '-1', from --set", "a time above 0"]);
    let listen = start.clone().flag("--listen=here");
    names(&refused("", &listen), &["server.listen is 'here', from --listen", "127.0.0.1:10086"]);
    let size = start.clone().set("limits.message_bytes=2 GiB");
    names(&refused("", &size), &["limits.message_bytes is '2 GiB', from --set; it must be a size from 1 KiB to 1 GiB"]);
    let size = start.clone().set("limits.message_bytes=64M");
    names(&refused("", &size), &["limits.message_bytes is '64M', from --set; it must be a size, as 64 MiB"]);
    for endpoint in ["http://127.0.0.1:4318/v1/traces", "http://collector:4317/?a=b", "collector"] {
        let collector = start.clone().set(&format!("trace.endpoint={endpoint}"));
        let wanted = "it must be the URL of a collector for OTLP/gRPC without a path, as http://127.0.0.1:4317";
        names(&refused("", &collector), &[&format!("trace.endpoint is '{endpoint}', from --set; {wanted}")]);
    }
    let origins = start.clone().set("server.cors_origins=https://shop.example, localhost:5173");
    names(
        &refused("", &origins),
        &["server.cors_origins is 'localhost:5173', from --set", "http://localhost:5173, with commas between"],
    );
    names(&refused("[server]\ncors_origins = ['*']\n", &start), &["server.cors_origins is 'a list'", "in quotes"]);
    names(&refused("", &start.set("admin.token=short")), &["admin.token", "at least 16 ASCII characters"]);
    let blanks = format!("[admin]\ntoken = '{}'\n", " ".repeat(20));
    names(&refused(&blanks, &Start::default()), &["admin.token", "without a blank at either end"]);
}

#[test]
fn a_token_is_never_shown() {
    let line = refused("", &Start::default().set("admin.token=hunter2"));
    assert!(!line.contains("hunter2"), "{line}");
    let line = refused("[admin]\ntoken = 1234567\n", &Start::default());
    assert!(line.contains("admin.token is '(hidden)'") && !line.contains("1234567"), "{line}");
}

#[test]
fn what_is_no_setting_at_all_is_named() {
    let start = Start::default();
    names(&refused("", &start.clone().set("connections")), &["--set connections", "SECTION.KEY=VALUE"]);
    names(&refused("[limits\n", &start), &["quire.toml"]);
    names(&refused("", &start.clone().flag("--config=none.toml")), &["cannot read the configuration none.toml"]);
    for level in ["loud", "lo=ud=er", ""] {
        let line = refused("", &start.clone().flag(&format!("--log-level={level}")));
        names(&line, &[&format!("log.level is '{level}', from --log-level; it must be error, warn, info, debug")]);
    }
}

#[test]
fn a_variable_that_names_no_setting_is_told_and_does_no_harm() {
    let folder = folder();
    // Kubernetes sets these for a service named quire.
    let start = Start::default()
        .variable("QUIRE_PORT", "tcp://10.0.0.1:10086")
        .variable("QUIRE_SERVICE_HOST", "10.0.0.1")
        .variable("QUIRE_LEDGER_COMIT", "each");
    let server = start.serve(folder.path());
    let log = server.log.text();
    for name in ["QUIRE_PORT", "QUIRE_SERVICE_HOST", "QUIRE_LEDGER_COMIT"] {
        names(&log, &[&format!("the variable {name} is ignored: it names no setting")]);
    }
    names(&log, &["did you mean QUIRE_LEDGER_COMMIT?"]);
    server.stop();
}

#[test]
fn a_certificate_without_its_key_is_told_with_what_is_missing() {
    let start = Start::default();
    let certificate = start.clone().set("tls.certificate=cert.pem");
    names(&refused("", &certificate), &["tls.key is '', from default; it must be", "because tls.certificate is set"]);
    let authority = start.clone().set("tls.client_ca=ca.pem");
    names(&refused("", &authority), &["tls.certificate is ''", "because tls.client_ca is set"]);
    let folder = folder();
    fs::create_dir(folder.path().join("cert.pem")).expect("a folder");
    let both = start.set("tls.certificate=cert.pem").set("tls.key=key.pem");
    names(&one_line(&mut both.command(folder.path())), &["cannot read certificates from cert.pem", "directory"]);
}

#[test]
fn two_services_on_one_port_are_told_by_name_before_anything_is_opened() {
    let start = Start::default().flag("--listen=127.0.0.1:10099");
    let tasks = refused("", &start.clone().flag("--tasks-listen=:10099"));
    names(&tasks, &["tasks.listen is '0.0.0.0:10099', from --tasks-listen; it must be a port of its own"]);
    names(&tasks, &["server.listen is '127.0.0.1:10099', from --listen"]);
    let lean = refused("", &start.set("rpcgame.listen=[::1]:10098").set("rpcgame.lean_listen=[::1]:10098"));
    names(&lean, &["rpcgame.lean_listen is '[::1]:10098', from --set", "rpcgame.listen is '[::1]:10098', from --set"]);
}

#[test]
fn sizes_and_times_take_units_from_every_source() {
    let folder = folder();
    let toml = "[limits]\nmessage_bytes = '64MiB'\n[kv]\ntotal_bytes = 3000000\n[server]\ndrain_seconds = '500ms'\n";
    fs::write(folder.path().join("quire.toml"), toml).expect("a file");
    let start = Start::default().variable("QUIRE_KV_VALUE_BYTES", "1 GiB").variable("QUIRE_KV_PAGE_BYTES", "2048");
    let start = start.set("records.cache_bytes=512 kB").set("tasks.idle_seconds=2min").flag("--print-config");
    let shown = start.command(folder.path()).output().expect("quire runs");
    let shown = String::from_utf8(shown.stdout).expect("text");
    for line in [
        "message_bytes = \"64 MiB\" ",
        "total_bytes = 3000000 ",
        "drain_seconds = 0.5 ",
        "value_bytes = \"1 GiB\" ",
        "page_bytes = \"2 KiB\" ",
        "cache_bytes = \"500 KiB\" ",
        "idle_seconds = 120 ",
    ] {
        assert!(shown.lines().any(|shown| shown.starts_with(line)), "no {line} in\n{shown}");
    }
}

#[test]
fn a_token_of_digits_is_a_token() {
    let folder = folder();
    let start = Start::default().variable("QUIRE_ADMIN_TOKEN", "0123456789012345").flag("--print-config");
    let shown = start.command(folder.path()).output().expect("quire runs");
    names(&String::from_utf8_lossy(&shown.stdout), &["token = \"(set)\" ", "# QUIRE_ADMIN_TOKEN"]);
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

#[test]
fn a_start_logs_its_version_and_where_its_settings_data_and_ports_are() {
    let folder = folder();
    let listening = |start: &Start| {
        let server = start.serve(folder.path());
        let log = server.log.text();
        let line = log.lines().find(|line| line.contains("\"listening\"")).expect("it listens");
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let fields = line["fields"].clone();
        assert_eq!(
            (&fields["address"], &fields["version"]),
            (&server.address.to_string().into(), &env!("CARGO_PKG_VERSION").into())
        );
        let ports = [("tasks are served", "address"), ("the RPC game has", "grpc"), ("the RPC game has", "lean")];
        for (words, key) in ports {
            let port = server.address_after(words, key).expect("a port of its own").to_string();
            assert!(fields["ports"].as_str().is_some_and(|ports| ports.contains(&port)), "no {port} in {fields}");
        }
        let path = |key: &str| fields[key].as_str().expect("a path").to_owned();
        (path("settings"), path("data"))
    };
    let at = |name: &str| folder.path().canonicalize().expect("a folder").join(name).display().to_string();
    assert_eq!(listening(&Start::default()), ("none".to_owned(), at("data")));
    fs::write(folder.path().join("quire.toml"), "").expect("a file");
    assert_eq!(listening(&Start::default()).0, at("quire.toml"));
    fs::write(folder.path().join("other.toml"), "").expect("a file");
    assert_eq!(listening(&Start::default().flag("--config").flag("other.toml")).0, at("other.toml"));
}
