//! The console and the client at a terminal, which `script` stands in for: prompt, history, completion, Ctrl-D.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::common::{
    process::{Server, Written},
    store::folder,
    wait_for,
};

/// A program that believes to be at a terminal.
struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    screen: Written,
}

impl Terminal {
    /// `None`, with a word on standard error, where there is no `script`.
    fn run(folder: &Path, command: &str) -> Option<Self> {
        let mut script = Command::new("script");
        script.args(["-qefc", command, "/dev/null"]).current_dir(folder).env("TERM", "xterm").env("COLUMNS", "200");
        // The one of util-linux; others take their arguments in another way.
        if !Command::new("script").arg("--version").output().is_ok_and(|asked| asked.status.success()) {
            eprintln!("left out: there is no program `script` to make a terminal");
            return None;
        }
        let spawned = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("script starts");
        let screen = Written::bytes(child.stdout.take().expect("a pipe"));
        Some(Self { keys: child.stdin.take(), child, screen })
    }

    fn press(&mut self, keys: &str) {
        let input = self.keys.as_mut().expect("the terminal is open");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("the terminal takes keys");
    }

    /// Presses keys and waits for something new on the screen.
    fn press_until(&mut self, keys: &str, wanted: &str) -> String {
        self.press_and_wait(keys, wanted, "")
    }

    /// As [`Terminal::press_until`], and until the next prompt: before it, a terminal reads Ctrl-D by itself.
    fn command(&mut self, keys: &str, wanted: &str) -> String {
        self.press_and_wait(keys, wanted, "> ")
    }

    fn press_and_wait(&mut self, keys: &str, wanted: &str, then: &str) -> String {
        let before = self.screen.text().len();
        self.press(keys);
        wait_for(&format!("'{wanted}' after {keys:?}"), || {
            let new = self.screen.text()[before..].to_owned();
            new.split_once(wanted).is_some_and(|(_, rest)| rest.contains(then)).then_some(new)
        })
    }

    fn ended(&mut self) -> Option<i32> {
        wait_for("the program's end", || self.child.try_wait().expect("it can be asked")).code()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the screen:\n{}", self.screen.text());
        }
    }
}

const QUIRE: &str = env!("CARGO_BIN_EXE_quire");
const UP: &str = "\x1b[A";
const CTRL_D: &str = "\x04";
const CTRL_C: &str = "\x03";

fn server(folder: &Path) -> Option<Terminal> {
    Terminal::run(folder, &format!("{QUIRE} serve --data data --listen 127.0.0.1:0 --tasks-listen 127.0.0.1:0"))
}

#[test]
fn a_console_at_a_terminal_has_a_prompt_history_and_completion() {
    let folder = folder();
    let Some(mut terminal) = server(folder.path()) else { return };
    terminal.screen.until("quire> ");
    assert!(terminal.command("list\r", "53573").contains("Surviving College"));
    assert!(terminal.command("update 12365 12.34\r", "12.34 now").contains("29.99 before"));
    terminal.command(&format!("{UP}\r"), "12.34 before");
    terminal.command("hel\t\r", "drains and stops the server");
    terminal.press_until("exit\r", "stopped");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn ctrl_d_and_ctrl_c_at_the_prompt_stop_the_server_in_order() {
    for key in [CTRL_D, CTRL_C] {
        let folder = folder();
        let Some(mut terminal) = server(folder.path()) else { return };
        terminal.screen.until("quire> ");
        terminal.press_until(key, "stopped");
        assert_eq!(terminal.ended(), Some(0));
    }
}

#[test]
fn a_client_at_a_terminal_has_a_prompt_and_history() {
    let folder = folder();
    let server = Server::start(folder.path());
    let Some(mut terminal) = Terminal::run(folder.path(), &format!("{QUIRE} client {}", server.address)) else {
        return;
    };
    terminal.screen.until("quire client> ");
    terminal.command("buy 12365\r", "(purchase 5)");
    terminal.command(&format!("{UP}\r"), "(purchase 6)");
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), Some(0));
}
