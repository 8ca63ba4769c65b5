//! A place to type commands: a prompt with history and completion on a terminal, lines from a pipe elsewhere.
//! Must not know what any command does.

use std::io::{self, BufRead, IsTerminal, Read};

use rustyline::{
    Config, Editor, Helper, Highlighter, Hinter, Validator,
    completion::{Completer, Pair},
    error::ReadlineError,
    history::MemHistory,
};

/// A command's name, its arguments and what it does; the help and the completion.
pub(crate) type Help = (&'static str, &'static str, &'static str);

/// Bytes in a line from a pipe; longer ones are refused.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// Where lines come from.
pub(crate) enum Shell {
    Terminal(Box<Editor<Words, MemHistory>>, String),
    Pipe(io::BufReader<io::Stdin>),
}

/// What came.
pub(crate) enum Line {
    Text(String),
    /// A line that cannot be one, and why.
    Unusable(String),
    /// The end of a pipe.
    PipeEnded,
    /// Ctrl-D or Ctrl-C on a terminal.
    Left,
}

impl Shell {
    /// Standard input, whatever it is.
    pub(crate) fn open(prompt: &str, commands: &'static [Help]) -> anyhow::Result<Self> {
        if !(io::stdin().is_terminal() && io::stdout().is_terminal()) {
            return Ok(Self::Pipe(io::BufReader::new(io::stdin())));
        }
        let config = Config::builder().auto_add_history(true).max_history_size(1000)?.build();
        let history = MemHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history)?;
        editor.set_helper(Some(Words { commands }));
        Ok(Self::Terminal(Box::new(editor), prompt.to_owned()))
    }

    /// The next line, without its end.
    pub(crate) fn next(&mut self) -> io::Result<Line> {
        match self {
            Self::Terminal(editor, prompt) => match editor.readline(prompt) {
                Ok(line) => Ok(Line::Text(line)),
                Err(ReadlineError::Eof | ReadlineError::Interrupted) => Ok(Line::Left),
                Err(error) => Err(io::Error::other(error)),
            },
            Self::Pipe(input) => {
                let mut line = Vec::new();
                let read = input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
                if read == 0 {
                    return Ok(Line::PipeEnded);
                }
                if line.last() != Some(&b'\n') && line.len() as u64 == LINE_BYTES_MAX {
                    input.skip_until(b'\n')?;
                    return Ok(Line::Unusable(format!(
                        "a line is longer than {LINE_BYTES_MAX} bytes; it must be one command"
                    )));
                }
                Ok(match String::from_utf8(line) {
                    Ok(line) => Line::Text(line.trim_end_matches(['\n', '\r']).to_owned()),
                    Err(_) => Line::Unusable("a line is not UTF-8; it must be one command".to_owned()),
                })
            }
        }
    }
}

/// Completes the first word.
#[derive(Helper, Highlighter, Hinter, Validator)]
pub(crate) struct Words {
    commands: &'static [Help],
}

impl Completer for Words {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let typed = &line[..at];
        let fitting = self.commands.iter().filter(|command| command.0.starts_with(typed));
        let pairs = fitting.map(|command| Pair { display: command.0.to_owned(), replacement: command.0.to_owned() });
        Ok((0, pairs.collect()))
    }
}

/// The list that `help` prints.
pub(crate) fn help(commands: &[Help]) -> String {
    let rows = commands.iter().map(|(name, arguments, does)| [format!("{name} {arguments}"), (*does).to_owned()]);
    crate::table::render([("command", false), ("does", false)], rows)
}
