//! Compares `docs/settings.md` with the settings that the code declares.

use std::{env, fs, path::Path};

use crate::common::{
    process::{self, Start},
    store::folder,
};

#[test]
fn the_reference_of_settings_is_the_one_that_the_code_makes() {
    let made = process::run(folder().path(), &["config", "reference"], "");
    assert!(made.status.success(), "{made:?}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/settings.md");
    if env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&path, &made.stdout).expect("docs/settings.md is written");
    }
    let page = fs::read(&path).expect("docs/settings.md is read");
    assert!(page == made.stdout, "docs/settings.md differs from the code: run this test with UPDATE_DOCS=1");
}

#[test]
fn the_template_is_a_valid_file_as_it_is_and_with_every_default_set() {
    let folder = folder();
    let made = process::run(folder.path(), &["config", "template"], "");
    let text = String::from_utf8(made.stdout).expect("text");
    let is_setting = |line: &&str| line.starts_with(|first: char| first.is_ascii_lowercase());
    // Without a default: paths and a token.
    let is_unset = |line: &str| line.ends_with(" = \"\"");
    let set: Vec<String> = text
        .lines()
        .map(|line| line.strip_prefix('#').filter(is_setting).filter(|line| !is_unset(line)).unwrap_or(line).to_owned())
        .collect();
    assert!(set.iter().filter(|line| is_setting(&&***line)).count() > 50, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 120 && !line.contains("](")), "{text}");
    for text in [text, set.join("\n")] {
        fs::write(folder.path().join("a.toml"), &text).expect("a file");
        let ended = process::run(folder.path(), &["config", "check", "a.toml"], "");
        assert!(ended.status.success(), "{ended:?}: {text}");
    }
}

#[test]
fn a_check_names_every_fault_of_a_file_and_changes_nothing() {
    let folder = folder();
    let check = |text: &str| {
        fs::write(folder.path().join("a.toml"), text).expect("a file");
        let ended = process::run(folder.path(), &["config", "check", "a.toml"], "");
        (ended.status.code(), String::from_utf8_lossy(&[ended.stdout, ended.stderr].concat()).into_owned())
    };
    assert_eq!(check("[kv]\nentries = 5\n"), (Some(0), "a.toml is valid\n".to_owned()));
    let (code, text) = check(
        "[kv]\nentries = 0\nentreis = 5\n[server]\nlisten = 'here'\ntokens = 'none.txt'\n[tls]\nkey = 'key.pem'\n\
         [ledger]\ncommit = 'grup'\n",
    );
    assert_eq!(code, Some(2), "{text}");
    for fault in [
        "there is no setting kv.entreis, from a.toml; did you mean kv.entries?",
        "kv.entries is '0', from a.toml; it must be a whole number from 1",
        "server.listen is 'here', from a.toml",
        "tls.certificate is '', from default; it must be the path of a PEM file, because tls.key is set",
        "ledger.commit is 'grup', from a.toml; it must be group or each; did you mean group?",
        "none.txt",
    ] {
        assert_eq!(text.lines().filter(|line| line.contains(fault)).count(), 1, "{fault} in: {text}");
    }
    assert_eq!(check("[kv\n").0, Some(2));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "nothing but the file");
}

#[test]
fn only_the_named_services_run_and_probes_get_their_health() {
    let folder = folder();
    let server = Start::default().flag("--only=kv,records").serve(folder.path());
    let address = server.address.to_string();
    let health = process::run(folder.path(), &["health", &address], "");
    assert_eq!((health.status.code(), &*health.stdout), (Some(0), &b"healthy\n"[..]), "{health:?}");
    let show = process::run(folder.path(), &["config", "show", "--set", "admin.token=0123456789abcdef"], "");
    assert!(!String::from_utf8_lossy(&show.stdout).contains("0123456789"), "{show:?}");
    server.stop();
    assert!(!folder.path().join("data/bookstore.db").exists(), "the bookstore is off");
    let health = process::run(folder.path(), &["health", &address], "");
    assert_eq!(health.status.code(), Some(3), "{health:?}");
    let wrong = process::run(folder.path(), &["serve", "--only", "kv,books"], "");
    let said =
        "quire: --only: there is no service 'books'; the services are tasks, rpcgame, records, bookstore, kv, web\n";
    assert_eq!(String::from_utf8_lossy(&wrong.stderr), said);
}
