//! `quire verify`: exit codes, words and JSON, for a store and for a backup.

use std::fs;

use rusqlite::config::DbConfig;

use crate::common::{
    process::{self, Server},
    store::{folder, one, other_program},
};

#[tokio::test]
async fn a_store_and_its_backup_are_verified_and_damage_is_named() {
    let folder = folder();
    let run = |arguments: &[&str]| {
        let output = process::run(folder.path(), arguments, "");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().expect("a code"), text(&output.stdout), text(&output.stderr))
    };
    let server = Server::start(folder.path());
    for _ in 0..5 {
        server.shop().buy(one(53477)).await.expect("an answer");
    }
    // Beside the server.
    let (code, said, _) = run(&["verify", "data"]);
    assert!(code == 0 && said.contains("nothing is wrong; ") && said.contains("9 log entries, 4 books"), "{said}");
    server.stop();
    let (code, said, _) = run(&["verify", "--data", "data", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &json["entries"], &json["covered"]), (0, &9.into(), &9.into()));
    assert_eq!((&json["file"], json["problems"].as_array().map(Vec::len)), (&"data/bookstore.db".into(), Some(0)));

    assert_eq!(run(&["backup", "whole.backup", "--data", "data"]).0, 0);
    let (code, said, _) = run(&["verify", "whole.backup"]);
    assert!(code == 0 && said.contains("the log has no head to compare it with"), "{said}");
    let file = other_program(folder.path());
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false).expect("triggers are off");
    file.execute("UPDATE book SET stock = 3 WHERE id = 53477", ()).expect("changed");
    drop(file);
    let (code, said, _) = run(&["verify", "data/bookstore.db"]);
    assert!(code == 1 && said.contains("wrong: the log does not lead to the books' stock: book 53477 has 3"), "{said}");
    let (code, said, _) = run(&["verify", "data", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((code, &json["problems"][0]["part"]), (1, &"stock".into()));

    // What is backed up so is restored, and named.
    assert_eq!(run(&["backup", "other.backup", "--data", "data"]).0, 0);
    let (code, _, error) = run(&["restore", "other.backup", "--data", "new"]);
    assert!(code == 1 && error.contains("restored as it was backed up, and the log does not lead"), "{error}");
    assert!(folder.path().join("new/bookstore.db").exists());

    let (code, _, error) = run(&["verify", "nowhere"]);
    assert!(code == 3 && error.contains("there is no nowhere"), "{error}");
    fs::write(folder.path().join("torn.backup"), b"no tar").expect("a file");
    let (code, _, error) = run(&["verify", "torn.backup"]);
    assert!(code == 3 && error.contains("this is no file that `quire backup` made"), "{error}");
}
