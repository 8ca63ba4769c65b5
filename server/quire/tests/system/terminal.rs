//! The console and the client at a terminal, simulated by `script`: prompt, history, completion, Ctrl-D.

use std::{
    io::Write as _,
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::common::{
    process::Server,
    store::{folder, folder_with},
    wait_for,
};

/// A program on a simulated terminal.
pub(crate) struct Terminal {
    child: Child,
    keys: Option<ChildStdin>,
    pub(crate) screen: kit::Written,
}

impl Terminal {
    /// `None`, with a note on standard error, where there is no `script`.
    pub(crate) fn run(folder: &Path, command: &str) -> Option<Self> {
        let mut script = Command::new("script");
        script.args(["-qefc", command, "/dev/null"]).current_dir(folder).env("TERM", "xterm").env("COLUMNS", "200");
        // The same shell for everyone who runs the tests.
        script.env("SHELL", "/bin/sh");
        script.env("XDG_STATE_HOME", folder.join("state")).env_remove("PAGER");
        // The one of util-linux; others have different arguments.
        if !Command::new("script").arg("--version").output().is_ok_and(|asked| asked.status.success()) {
            eprintln!("left out: there is no program `script` to make a terminal");
            return None;
        }
        let spawned = script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = spawned.expect("script starts");
        let screen = kit::Written::bytes(child.stdout.take().expect("a pipe"));
        Some(Self { keys: child.stdin.take(), child, screen })
    }

    pub(crate) fn press(&mut self, keys: &str) {
        let input = self.keys.as_mut().expect("the terminal is open");
        input.write_all(keys.as_bytes()).and_then(|()| input.flush()).expect("the terminal takes keys");
    }

    /// Presses keys and waits for the wanted text.
    pub(crate) fn press_until(&mut self, keys: &str, wanted: &str) -> String {
        self.press_and_wait(keys, wanted, "")
    }

    /// As [`Terminal::press_until`], and until the next prompt: before it, a terminal reads Ctrl-D by itself.
    pub(crate) fn command(&mut self, keys: &str, wanted: &str) -> String {
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

    pub(crate) fn ended(&mut self) -> Option<i32> {
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

pub(crate) const QUIRE: &str = env!("CARGO_BIN_EXE_quire");
const SERVE: &str = concat!(
    env!("CARGO_BIN_EXE_quire"),
    " serve --data data --listen 127.0.0.1:0 --tasks-listen 127.0.0.1:0 --set rpcgame.listen=127.0.0.1:0",
    " --set rpcgame.lean_listen=127.0.0.1:0"
);
const UP: &str = "\x1b[A";
const CTRL_D: &str = "\x04";
const CTRL_C: &str = "\x03";

fn server(folder: &Path) -> Option<Terminal> {
    Terminal::run(folder, SERVE)
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

#[test]
fn ctrl_c_gives_a_half_typed_line_up_and_leaves_on_an_empty_one() {
    let folder = folder();
    let Some(mut terminal) = server(folder.path()) else { return };
    terminal.screen.until("quire> ");
    terminal.press_until("update 12365 1", "update 12365 1");
    terminal.command(CTRL_C, "\n");
    assert!(terminal.command("list\r", "53573").contains("29.99"), "nothing was updated and the server runs");
    terminal.press_until(CTRL_C, "stopped");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn log_lines_appear_above_the_prompt_and_leave_what_is_typed() {
    let folder = folder();
    let line = format!("{SERVE} --set limits.first_byte_seconds=1");
    let Some(mut terminal) = Terminal::run(folder.path(), &line) else { return };
    // The console starts before the line with the address is written.
    terminal.screen.until("quire> ");
    let address = wait_for("the server's address", || {
        let started = plain(&terminal.screen.text());
        let (address, _) = started.split_once("listening address=")?.1.split_once(' ')?;
        Some(address.to_owned())
    });
    terminal.press_until("lis", "lis");
    // A silent connection is closed, and that is logged.
    let silent = std::net::TcpStream::connect(address).expect("a connection");
    let logged = terminal.screen.until("a connection was closed");
    drop(silent);
    let after = wait_for("the prompt after the line", || {
        let screen = terminal.screen.text();
        let (_, after) = screen.rsplit_once("a connection was closed")?;
        after.contains("quire> lis").then(|| after.to_owned())
    });
    assert!(after.find('\n') < after.find("quire> lis"), "the line ends before the prompt: {logged:?} {after:?}");
    assert!(terminal.command("t\r", "53573").contains("Surviving College"));
    terminal.press_until("exit\r", "stopped");
    assert_eq!(terminal.ended(), Some(0));
}

/// Without colours.
fn plain(screen: &str) -> String {
    screen.split("\x1b[").enumerate().fold(String::new(), |text, (number, part)| {
        text + if number == 0 {
            part
        } else {
            part.split_once(|c: char| c.is_ascii_alphabetic()).map_or("", |(_, rest)| rest)
        }
    })
}

#[test]
fn a_signal_leaves_the_terminal_as_it_was() {
    let folder = folder();
    let line = format!("sh -c 'echo $$ >pid; exec {SERVE}'; stty -a");
    let Some(mut terminal) = Terminal::run(folder.path(), &line) else { return };
    terminal.screen.until("quire> ");
    let process =
        std::fs::read_to_string(folder.path().join("pid")).expect("a number").trim().parse().expect("a number");
    kit::signal(process, "TERM");
    let screen = terminal.screen.until("echoctl");
    assert!(screen.contains("stopping") && screen.contains("stopped"), "{screen}");
    let modes = screen.rsplit_once("speed").expect("what stty says").1;
    let modes: Vec<&str> = modes.split_whitespace().collect();
    assert!(["icanon", "echo", "opost", "isig"].iter().all(|mode| modes.contains(mode)), "{modes:?}");
    terminal.ended();
}

#[test]
fn history_lasts_from_one_session_to_the_next_and_only_the_owner_can_read_it() {
    let folder = folder();
    let server = Server::start(folder.path());
    let client = || Terminal::run(folder.path(), &format!("{QUIRE} client {}", server.address));
    let Some(mut terminal) = client() else { return };
    terminal.screen.until("quire client> ");
    terminal.command("lookup 12365\r", "Surviving College");
    terminal.press_until("quit\r", "\n");
    assert_eq!(terminal.ended(), Some(0));
    let file = folder.path().join("state/quire/client_history");
    let mode = |path: &Path| std::os::unix::fs::PermissionsExt::mode(&path.metadata().expect("a file").permissions());
    assert_eq!((mode(&file) & 0o777, mode(file.parent().expect("a folder")) & 0o777), (0o600, 0o700));
    let mut terminal = client().expect("script");
    terminal.screen.until("quire client> ");
    terminal.command(&format!("{UP}{UP}\r"), "Surviving College");
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn commands_are_completed_and_on_the_server_topics_and_ids() {
    let folder = folder();
    let server = Server::start(folder.path());
    let Some(mut terminal) = Terminal::run(folder.path(), &format!("{QUIRE} client {}", server.address)) else {
        return;
    };
    terminal.screen.until("quire client> ");
    // A completed word ends with a blank.
    terminal.command("loo\t53573\r", "Dummies");
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), Some(0));
    let Some(mut terminal) = self::server(folder.path()) else { return };
    terminal.screen.until("quire> ");
    terminal.command("update 534\t 7.77\r", "book 53477 costs 7.77");
    terminal.command("topics coll\t\r", "books");
    terminal.press_until("quit\r", "stopped");
    assert_eq!(terminal.ended(), Some(0));
}

#[test]
fn every_line_of_a_paste_runs_in_order_in_brackets_and_without() {
    let folder = folder();
    let server = Server::start(folder.path());
    let lines = ["lookup 53573", "sell", "buy 12365", "", "lookup 1", "buy 12365 2", "ping"];
    let (typed, bracketed) = (lines.join("\r") + "\r", format!("\x1b[200~{}\x1b[201~\r", lines.join("\n")));
    for (paste, first) in [(typed, 5), (bracketed, 7)] {
        let client = format!("{QUIRE} client {}", server.address);
        let Some(mut terminal) = Terminal::run(folder.path(), &client) else { return };
        terminal.screen.until("quire client> ");
        let screen = terminal.command(&paste, " ms)");
        let (one, other) = (format!("(purchase {first})"), format!("(purchase {})", first + 1));
        let mut rest = screen.as_str();
        for wanted in ["Dummies", "subcommand 'sell'", &one, "no book 1", &other, " ms)"] {
            let found = rest.split_once(wanted);
            rest = found.unwrap_or_else(|| panic!("'{wanted}' in its place of {screen}")).1;
        }
        terminal.press(CTRL_D);
        assert_eq!(terminal.ended(), Some(2));
    }
}

#[test]
fn a_list_longer_than_the_screen_is_shown_in_pages() {
    let rows: Vec<String> = (1..=40).map(|id| format!("{id},Volume {id},encyclopedia,1,1.00\n")).collect();
    let folder = folder_with(&rows.concat());
    let server = Server::start(folder.path());
    let client = format!("{QUIRE} client {}", server.address);
    let Some(mut terminal) = Terminal::run(folder.path(), &format!("stty rows 10 cols 80; {client}")) else { return };
    terminal.screen.until("quire client> ");
    let first = terminal.press_until("search encyclopedia\r", "-- Enter: more");
    assert!(first.contains("Volume 8") && !first.contains("Volume 9"), "{first}");
    let second = terminal.press_until("\r", "-- Enter: more");
    assert!(second.contains("Volume 9") && second.contains("Volume 17") && !second.contains("Volume 18"), "{second}");
    assert!(!terminal.command("q\r", "\n").contains("Volume 18"));
    // Output that fits is not paged.
    assert!(!terminal.command("lookup 3\r", "Volume 3").contains("-- Enter"));
    terminal.press(CTRL_D);
    assert_eq!(terminal.ended(), Some(0));
    let line = format!("stty rows 10 cols 80; PAGER=\"sed s/^/by-sed/\" {client} search encyclopedia");
    let mut terminal = Terminal::run(folder.path(), &line).expect("script");
    terminal.screen.until("Volume 40");
    assert_eq!(terminal.ended(), Some(0));
    assert!(terminal.screen.text().contains("by-sed"), "{}", terminal.screen.text());
}
