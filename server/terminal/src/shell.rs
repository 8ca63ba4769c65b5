//! An interactive shell: a prompt with history and completion on a terminal, lines from a pipe otherwise. The history is
//! stored in the user's state folder; if its file is unusable, it is kept for this session only.

use std::{
    cell::RefCell,
    collections::VecDeque,
    env, fs,
    io::{self, BufRead, Read, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use rustyline::{
    Config, Editor, Helper, Highlighter, Validator,
    completion::{Completer, Pair},
    error::ReadlineError,
    hint::Hinter,
    history::{FileHistory, History as _},
};

use crate::screen;

pub use rustyline::ExternalPrinter;

/// A command's name, arguments and description, for help.
pub type Help = (&'static str, &'static str, &'static str);

/// Completions of the text typed after a command's name.
pub type Arguments = Box<dyn Fn(&str, &str) -> Vec<String>>;

/// Maximum number of completions shown.
pub const CANDIDATES_MAX: usize = 100;

/// Maximum length of a line from a pipe; longer ones are refused.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Source of command lines.
pub struct Shell(Source);

enum Source {
    Terminal(Box<Terminal>),
    Pipe(io::BufReader<io::Stdin>),
}

struct Terminal {
    editor: Editor<Words, FileHistory>,
    prompt: String,
    history: Option<PathBuf>,
    /// Lines of one paste that were not read yet.
    pasted: VecDeque<String>,
}

/// Next step after a line has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<E> {
    /// The next line.
    Line(E),
    /// The next line after a pause of the user: Ctrl-C ended the call; pasted lines are dropped.
    Interrupted(E),
    /// The end of the prompt.
    Leave,
}

/// The end of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The input had no more lines.
    Pipe,
    /// The user left: by a command, Ctrl-D, or Ctrl-C on an empty line.
    User,
}

impl Shell {
    /// Opens standard input: a terminal, a pipe or a file. `name` names the history file.
    pub fn open(prompt: &str, commands: Vec<String>, name: &str, arguments: Arguments) -> io::Result<Self> {
        if !screen::is_terminal() {
            return Ok(Self(Source::Pipe(io::BufReader::new(io::stdin()))));
        }
        let config = Config::builder().max_history_size(HISTORY_LINES_MAX).map_err(io::Error::other)?.build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(io::Error::other)?;
        editor.set_helper(Some(Words { commands, arguments, typed: RefCell::default() }));
        let history = open_history(name, editor.history_mut());
        Ok(Self(Source::Terminal(Box::new(Terminal {
            editor,
            prompt: prompt.to_owned(),
            history,
            pasted: VecDeque::new(),
        }))))
    }

    /// Reads lines, and runs their words or the reason why a line is invalid, to the end. Returns the worst of the
    /// results, so that scripts miss no failure.
    pub fn converse<E: Copy + Ord>(
        &mut self,
        best: E,
        mut run: impl FnMut(Result<Vec<String>, String>) -> Next<E>,
    ) -> io::Result<(E, End)> {
        let mut worst = best;
        loop {
            let input = match &mut self.0 {
                Source::Terminal(terminal) => terminal.read()?,
                Source::Pipe(input) => read(input)?,
            };
            let line = match input {
                Input::Text(line) => words(&line),
                Input::Unusable(reason) => Err(reason),
                Input::End(end) => return Ok((worst, end)),
            };
            if line.as_ref().is_ok_and(Vec::is_empty) {
                continue;
            }
            match (run(line), &mut self.0) {
                (Next::Line(exit), _) => worst = worst.max(exit),
                (Next::Interrupted(exit), Source::Terminal(terminal)) => {
                    worst = worst.max(exit);
                    terminal.pasted.clear();
                }
                (Next::Interrupted(exit), Source::Pipe(_)) => return Ok((worst.max(exit), End::User)),
                (Next::Leave, _) => return Ok((worst, End::User)),
            }
        }
    }

    /// Printer that shows text above the prompt, if there is a prompt.
    pub fn printer(&mut self) -> Option<impl ExternalPrinter + Send + 'static> {
        match &mut self.0 {
            Source::Terminal(terminal) => terminal.editor.create_external_printer().ok(),
            Source::Pipe(_) => None,
        }
    }
}

/// A line, or the reason why there is none.
enum Input {
    Text(String),
    Unusable(String),
    End(End),
}

impl Terminal {
    fn read(&mut self) -> io::Result<Input> {
        if let Some(line) = self.pasted.pop_front() {
            writeln!(io::stdout(), "{}{}", self.prompt, screen::line(&line))?;
            return Ok(Input::Text(self.kept(line)));
        }
        loop {
            match self.editor.readline(&self.prompt) {
                // A terminal with bracketed paste gives all lines of a paste at once.
                Ok(text) => {
                    self.pasted = text.lines().map(str::to_owned).collect();
                    let first = self.pasted.pop_front().unwrap_or_default();
                    return Ok(Input::Text(self.kept(first)));
                }
                // Ctrl-C drops a half-typed line; on an empty line it exits.
                Err(ReadlineError::Interrupted) if self.editor.helper().is_some_and(Words::has_text) => {}
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => return Ok(Input::End(End::User)),
                Err(error) => return Err(io::Error::other(error)),
            }
        }
    }

    /// Adds a line to the history.
    fn kept(&mut self, line: String) -> String {
        if is_kept(&line) && self.editor.add_history_entry(&line).unwrap_or(false) {
            append_history(self.history.as_deref(), self.editor.history_mut());
        }
        line
    }
}

fn read(input: &mut impl BufRead) -> io::Result<Input> {
    let mut line = Vec::new();
    // One more for the newline.
    let read = input.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(Input::End(End::Pipe));
    }
    let unusable = |reason| Ok(Input::Unusable(reason));
    if line.last() != Some(&b'\n') && line.len() as u64 > LINE_BYTES_MAX {
        input.skip_until(b'\n')?;
        return unusable(format!("a line is longer than {LINE_BYTES_MAX} bytes; it must be one command"));
    }
    match String::from_utf8(line) {
        Ok(line) => Ok(Input::Text(line)),
        Err(_) => unusable("a line is not UTF-8; it must be one command".to_owned()),
    }
}

/// Splits a line at blanks. A word that begins with a quote extends to the matching quote; within a word a quote is an
/// apostrophe, and no other character is special.
fn words(line: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while let Some(first) = rest.chars().next() {
        let (word, after) = if matches!(first, '"' | '\'') {
            let inside = &rest[1..];
            let closed = |(at, _): &(usize, &str)| inside[at + 1..].chars().next().is_none_or(char::is_whitespace);
            let end = inside.match_indices(first).find(closed);
            let (end, _) = end.ok_or_else(|| format!("the quote {first} is not closed; close it, or leave it out"))?;
            (&inside[..end], &inside[end + 1..])
        } else {
            rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len()))
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    Ok(words)
}

/// Completes command names and their arguments.
#[derive(Helper, Highlighter, Validator)]
struct Words {
    commands: Vec<String>,
    arguments: Arguments,
    /// The line as last shown.
    typed: RefCell<String>,
}

impl Words {
    fn has_text(&self) -> bool {
        !self.typed.borrow().is_empty()
    }

    fn fitting(&self, typed: &str) -> (usize, Vec<String>) {
        let Some((command, rest)) = typed.split_once(char::is_whitespace) else {
            return (0, self.commands.iter().filter(|name| name.starts_with(typed)).cloned().collect());
        };
        let rest = rest.trim_start();
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let wanted = rest.strip_prefix(['"', '\'']).unwrap_or(rest);
        let found = (self.arguments)(command, wanted).into_iter().filter(|text| screen::is_plain(text));
        let close = |text: String| quote.map_or_else(|| text.clone(), |quote| format!("{quote}{text}{quote}"));
        (typed.len() - rest.len(), found.take(CANDIDATES_MAX).map(close).collect())
    }
}

/// Gives no hints: an editor's helper learns the current line this way.
impl Hinter for Words {
    type Hint = String;

    fn hint(&self, line: &str, _: usize, _: &rustyline::Context<'_>) -> Option<String> {
        line.clone_into(&mut self.typed.borrow_mut());
        None
    }
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (start, found) = self.fitting(&line[..at]);
        // The only word that fits is complete: the next one can be typed.
        let end = if found.len() == 1 && !line[at..].starts_with(char::is_whitespace) { " " } else { "" };
        let pairs = found.into_iter().map(|text| Pair { replacement: format!("{text}{end}"), display: text });
        Ok((start, pairs.collect()))
    }
}

/// A command with its arguments.
pub fn usage(name: &str, arguments: &str) -> String {
    format!("{name} {arguments}").trim_end().to_owned()
}

/// The list that `help` prints.
pub fn help(commands: &[Help]) -> String {
    let rows = commands.iter().map(|(name, arguments, does)| [usage(name, arguments), (*does).to_owned()]);
    crate::table::render([("command", false), ("does", false)], rows)
}

/// Maximum number of lines in the file.
const HISTORY_LINES_MAX: usize = 1000;
/// Maximum length of a line in the file.
const HISTORY_LINE_BYTES_MAX: usize = 1000;
/// Largest file that is read: every line escaped, with room to spare.
const HISTORY_BYTES_MAX: u64 = 4 << 20;

fn is_kept(line: &str) -> bool {
    !line.trim().is_empty() && line.len() <= HISTORY_LINE_BYTES_MAX
}

/// Reads the history `name`; returns the file to append to.
fn open_history(name: &str, history: &mut FileHistory) -> Option<PathBuf> {
    let folder = state_folder()?;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).ok()?;
    let path = folder.join(format!("{name}_history"));
    // Created here, because the editor would change the whole process's umask for it.
    let file = fs::OpenOptions::new().append(true).create(true).mode(0o600).open(&path).ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > HISTORY_BYTES_MAX {
        return None;
    }
    history.load(&path).ok()?;
    Some(path)
}

fn append_history(path: Option<&Path>, history: &mut FileHistory) {
    // On failure the line is still in this session's history.
    let _ = path.map(|path| history.append(path));
}

/// State folder by the XDG Base Directory Specification; relative paths are ignored.
fn state_folder() -> Option<PathBuf> {
    let from = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = from("XDG_STATE_HOME").or_else(|| Some(from("HOME")?.join(".local/state")))?;
    Some(state.join("quire"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_keep_blanks_and_apostrophes_are_text() {
        let cases: [(&str, &[&str]); 7] = [
            (" search  distributed   systems\r\n", &["search", "distributed", "systems"]),
            ("search \"two  blanks\" end", &["search", "two  blanks", "end"]),
            ("search 'it's mine'", &["search", "it's mine"]),
            ("search children's books", &["search", "children's", "books"]),
            ("search C# \\n #1", &["search", "C#", "\\n", "#1"]),
            ("search \"\"", &["search", ""]),
            ("  ", &[]),
        ];
        for (line, wanted) in cases {
            assert_eq!(words(line).expect("words"), wanted, "{line}");
        }
        assert!(words("search \"open").is_err_and(|reason| reason.starts_with("the quote \" is not closed")));
    }

    #[test]
    fn arguments_are_completed_after_the_command_blanks_and_quotes_included() {
        let arguments = |command: &str, typed: &str| {
            let topics = ["distributed systems", "\u{1b}[2J"].into_iter().filter(|topic| topic.starts_with(typed));
            if command == "search" { topics.map(str::to_owned).collect() } else { Vec::new() }
        };
        let commands = ["search", "help"].map(str::to_owned).to_vec();
        let words = Words { commands, arguments: Box::new(arguments), typed: RefCell::default() };
        let topic = || vec!["distributed systems".to_owned()];
        assert_eq!(words.fitting("se"), (0, vec!["search".to_owned()]));
        assert_eq!(words.fitting("search "), (7, topic()), "nothing that a terminal would obey");
        assert_eq!(words.fitting("search distributed s"), (7, topic()));
        assert_eq!(words.fitting("search  \"dis"), (8, vec!["\"distributed systems\"".to_owned()]));
        assert_eq!(words.fitting("help d"), (5, vec![]));
    }
}
