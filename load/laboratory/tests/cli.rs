//! The program `quire-laboratory` as a user runs it.

use std::process::Command;

#[test]
fn an_unknown_experiment_is_answered_with_the_list_of_all() {
    let done = Command::new(env!("CARGO_BIN_EXE_quire-laboratory")).arg("nothing").output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(done.status.code(), Some(2));
    let expected = "there is no experiment \"nothing\"; there are: bookstore, records, kv, rpcgame, tasks, clients";
    assert!(said.contains(expected), "{said}");
}
