//! Measurements in child processes, for commands that make many: each run is a new process and inherits nothing from
//! the one before.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, ensure};
use nix::sys::resource::{UsageWho, getrusage};

use super::exit::Exit;
use crate::measurement::Report;
use crate::report::json::{self, REPORT_BYTES_MAX};

/// Subcommands that measure a load.
pub(crate) const LOADS: [&str; 3] = ["grpc", "http", "tcp"];

/// Bytes kept from the end of a child's error output.
const TAIL_BYTES_MAX: usize = 8 << 10;

/// A command to run as a child process, without a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandLine {
    /// Text as given.
    pub(crate) text: String,
    /// Program and arguments; for a load, only the arguments.
    words: Vec<String>,
    /// True for a load of this program.
    pub(crate) is_load: bool,
}

impl CommandLine {
    /// Splits a command like a shell, but without expansion.
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let words = shlex::split(text).ok_or_else(|| anyhow!("the command {text:?} has a quote that is not closed"))?;
        Self::from_words(words, text.to_owned())
    }

    /// Builds a command from words already split.
    pub(crate) fn from_words(mut words: Vec<String>, text: String) -> anyhow::Result<Self> {
        let first = words.first().ok_or_else(|| anyhow!("a command is empty"))?;
        let named = Path::new(first).file_name().is_some_and(|name| name == "quire-bench");
        if named {
            words.remove(0);
        }
        let is_load = words.first().is_some_and(|word| LOADS.contains(&word.as_str()));
        ensure!(is_load || !named, "{text:?} is not a load: after quire-bench write one of {}", LOADS.join(", "));
        let line = Self { text, words, is_load };
        let text = &line.text;
        ensure!(
            !is_load || !line.mentions(None, "json"),
            "{text:?}: leave --json out, the figures are read from it here"
        );
        Ok(line)
    }

    /// True if a flag of a load was given, as `-c 5`, `-c5`, `--clients 5` or `--clients=5`.
    pub(crate) fn mentions(&self, short: Option<char>, long: &str) -> bool {
        self.words.iter().any(|word| match word.strip_prefix("--") {
            Some(flag) => flag.split('=').next() == Some(long),
            None => short.is_some_and(|short| word.strip_prefix('-').is_some_and(|flag| flag.starts_with(short))),
        })
    }

    /// Returns the command with more arguments.
    #[must_use]
    pub(crate) fn with(&self, arguments: impl IntoIterator<Item = String>) -> Self {
        let mut with = self.clone();
        for argument in arguments {
            with.text = format!("{} {argument}", with.text);
            with.words.push(argument);
        }
        with
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) wall_seconds: f64,
    /// CPU time of the child and of its own children that it waited for.
    pub(crate) cpu_seconds: f64,
    /// Its report, if it is a load.
    pub(crate) report: Option<Report>,
}

#[derive(Clone, Debug)]
pub(crate) struct Children {
    /// Program that runs loads: this one, except in tests.
    program: PathBuf,
    /// Arguments that precede those of a load.
    leading: Vec<PathBuf>,
}

impl Children {
    /// Runs loads with this program.
    pub(crate) fn new() -> anyhow::Result<Self> {
        Ok(Self::with_program(std::env::current_exe().context("cannot find the path of this program")?, []))
    }

    /// Runs loads with another program, which takes their arguments after `leading`.
    pub(crate) fn with_program(program: impl Into<PathBuf>, leading: impl IntoIterator<Item = PathBuf>) -> Self {
        Self { program: program.into(), leading: leading.into_iter().collect() }
    }

    /// Runs a command to its end. An error is one line with the child's last message.
    pub(crate) fn measure(&self, line: &CommandLine) -> anyhow::Result<Measured> {
        let mut command = self.command(line);
        let cpu_before = children_cpu()?;
        let began_at = Instant::now();
        let mut child = command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let errors = child.stderr.take().map(|errors| thread::spawn(move || last_line(errors)));
        let output = read_output(&mut child);
        let status = child.wait().context("cannot wait for a child")?;
        let wall_seconds = began_at.elapsed().as_secs_f64();
        let cpu_seconds = children_cpu()?.saturating_sub(cpu_before).as_secs_f64();
        let last_error = errors.and_then(|errors| errors.join().ok()).filter(|line| !line.is_empty());
        let last_error = last_error.as_deref().unwrap_or("it printed no error");
        ensure!(has_measured(status, line.is_load), "{:?} failed ({status}): {last_error}", line.text);
        let report = if line.is_load { Some(report(line, &output?)?) } else { None };
        Ok(Measured { wall_seconds, cpu_seconds, report })
    }

    fn command(&self, line: &CommandLine) -> Command {
        let mut command = if line.is_load {
            let mut command = Command::new(&self.program);
            command.args(&self.leading).args(&line.words).args(["--json", "-"]).stdout(Stdio::piped());
            command
        } else {
            let mut command = Command::new(&line.words[0]);
            command.args(&line.words[1..]).stdout(Stdio::null());
            command
        };
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }
}

/// True if something was measured: for a load, unless it failed; for other programs, on success.
fn has_measured(status: ExitStatus, is_load: bool) -> bool {
    if is_load {
        let measured = [Exit::Done, Exit::Missed, Exit::Invalid, Exit::Inconclusive];
        measured.iter().any(|exit| status.code() == Some(*exit as i32))
    } else {
        status.success()
    }
}

fn read_output(child: &mut Child) -> anyhow::Result<Vec<u8>> {
    let mut output = Vec::new();
    let Some(from) = child.stdout.take() else { return Ok(output) };
    // Dropping the pipe ends a child that writes more.
    from.take(REPORT_BYTES_MAX + 1).read_to_end(&mut output).context("cannot read a child's output")?;
    ensure!(output.len() as u64 <= REPORT_BYTES_MAX, "a report is larger than {REPORT_BYTES_MAX} bytes");
    Ok(output)
}

fn report(line: &CommandLine, output: &[u8]) -> anyhow::Result<Report> {
    let text = String::from_utf8_lossy(output);
    let report =
        json::parse(&text).with_context(|| format!("{:?} printed something that is not a report", line.text))?;
    ensure!(!report.runs.is_empty(), "{:?} reports no run", line.text);
    Ok(report)
}

/// CPU time of all children waited for so far.
fn children_cpu() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("cannot read the children's CPU time")?;
    let micros = [usage.user_time(), usage.system_time()].map(|time| time.tv_sec() * 1_000_000 + time.tv_usec());
    Ok(Duration::from_micros(micros.into_iter().sum::<i64>().try_into().unwrap_or(0)))
}

/// Returns the last non-empty line. Reads to the end, or the child would block on a full pipe.
fn last_line(mut from: impl Read) -> String {
    let mut tail = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match from.read(&mut chunk) {
            Ok(0) => break,
            Ok(length) => {
                tail.extend_from_slice(&chunk[..length]);
                tail.drain(..tail.len().saturating_sub(TAIL_BYTES_MAX));
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    let text = String::from_utf8_lossy(&tail);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default().to_owned()
}

/// True once Ctrl-C was pressed. Children get the signal too, end their runs early and report so; a second Ctrl-C ends
/// this program at once.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt {
    pressed: Arc<AtomicBool>,
}

impl Interrupt {
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let interrupt = Self::default();
        let pressed = Arc::clone(&interrupt.pressed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .context("cannot start a runtime for signals")?;
        let listen = move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    if pressed.swap(true, Ordering::Relaxed) {
                        std::process::exit(130);
                    }
                }
            });
        };
        thread::Builder::new().name("interrupt".to_owned()).spawn(listen).context("cannot start a thread")?;
        Ok(interrupt)
    }

    pub(crate) fn was_pressed(&self) -> bool {
        self.pressed.load(Ordering::Relaxed)
    }

    #[cfg(test)]
    pub(crate) fn press(&self) {
        self.pressed.store(true, Ordering::Relaxed);
    }
}

/// A program that takes the arguments of a load and prints a report, for tests of commands that run loads.
#[cfg(test)]
pub(crate) mod stub {
    use tempfile::TempDir;

    use super::{Children, PathBuf, Report};
    use crate::measurement::{self, Distribution, Load, Machine, Run, Verdict};

    /// The stub's folder, with a log of the arguments of every call.
    pub(crate) struct Stub {
        folder: TempDir,
        pub(crate) children: Children,
    }

    impl Stub {
        /// `body` is a shell script that sets `rate`, `time` (the median in microseconds), `errors` (of 1,000 requests)
        /// and `reason` (why the run is INVALID) from the flags `$clients` and `$asked`; all of them may be left unset.
        pub(crate) fn new(body: &str) -> Self {
            let folder = TempDir::new().expect("a folder");
            let at = |name: &str| folder.path().join(name);
            // A shell cannot make a histogram, so one is ready for each of these times.
            for time_us in [100, 200, 400, 10_000] {
                let json = serde_json::to_string(&report(time_us)).expect("a report is JSON");
                std::fs::write(at(&format!("{time_us}.json")), json).expect("written");
            }
            let script = format!(
                r#"dir='{dir}'
echo "$@" >> "$dir/log"
clients=1 asked=0
for word in "$@"; do
    case "$before" in --clients) clients=$word;; --rate) asked=$word;; esac
    before=$word
done
rate=1000 time=100 errors=0 reason=
turn=$(wc -l < "$dir/log")
{body}
reasons=${{reason:+\"$reason\"}}
sed -e 's/"rate":4711.0/"rate":'"$rate"'/' -e 's/"errors":4711/"errors":'"$errors"'/' \
    -e 's/"reasons":\[\]/"reasons":['"$reasons"']/' "$dir/$time.json"
"#,
                dir = folder.path().display()
            );
            let path = at("stub.sh");
            std::fs::write(&path, script).expect("written");
            Self { children: Children::with_program("sh", [path]), folder }
        }

        /// The arguments of every call, in order.
        pub(crate) fn calls(&self) -> Vec<String> {
            let log = std::fs::read_to_string(self.path("log")).unwrap_or_default();
            log.lines().map(str::to_owned).collect()
        }

        pub(crate) fn path(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }
    }

    fn report(time_us: u64) -> Report {
        let mut response = Distribution::default();
        response.histogram.record_n(time_us * 1_000, 1_000).expect("within bounds");
        let run = Run {
            seconds: 1.0,
            requests: 1_000,
            errors: 4711,
            rate: 4711.0,
            response,
            client_cpu_seconds: 0.01,
            verdict: Verdict::default(),
            ..Run::default()
        };
        Report {
            format: measurement::FORMAT.into(),
            tool: "stub".into(),
            machine: Machine::default(),
            load: Load::default(),
            runs: vec![run],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<CommandLine> {
        CommandLine::parse(text)
    }

    #[test]
    fn loads_are_told_from_other_commands_with_or_without_our_name() {
        for (text, is_load, words) in [
            ("grpc 127.0.0.1:1 a.B/C -c 10", true, 5),
            ("quire-bench tcp 127.0.0.1:1", true, 2),
            ("/usr/bin/quire-bench http 'http://a b/'", true, 2),
            ("/usr/bin/http GET :80", false, 3),
            ("python3 -c 'print(1)'", false, 3),
        ] {
            let line = parse(text).expect(text);
            assert_eq!((line.is_load, line.words.len()), (is_load, words), "{text}");
        }
    }

    #[test]
    fn commands_that_cannot_be_run_are_refused_with_a_reason() {
        for (text, expected) in [
            ("", "a command is empty"),
            ("echo 'x", "has a quote that is not closed"),
            ("quire-bench ab 'x' 'y'", "is not a load: after quire-bench write one of grpc, http, tcp"),
            ("grpc 127.0.0.1:1 --json x.json", "leave --json out"),
            ("grpc 127.0.0.1:1 --json=x.json", "leave --json out"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn flags_are_found_in_every_form() {
        for text in ["tcp a -c 5", "tcp a -c5", "tcp a --clients 5", "tcp a --clients=5"] {
            assert!(parse(text).expect(text).mentions(Some('c'), "clients"), "{text}");
        }
        assert!(!parse("tcp a --cores 1 -n 5").expect("a load").mentions(Some('c'), "clients"));
    }

    #[test]
    fn a_child_that_fails_is_one_line_with_its_last_word() {
        let children = Children::with_program("/nowhere/at/all", []);
        let error = |text: &str| format!("{:#}", children.measure(&parse(text).expect(text)).expect_err(text));
        let failed = error("sh -c 'echo first >&2; echo the last word >&2; echo >&2; exit 7'");
        assert!(failed.ends_with("failed (exit status: 7): the last word"), "{failed}");
        assert!(error("sh -c 'exit 1'").ends_with("it printed no error"));
        assert!(error("sh -c 'kill -9 $$'").contains("signal: 9"));
        assert!(error("/nowhere/either").contains("cannot start /nowhere/either"));
        assert!(error("grpc 127.0.0.1:1").contains("cannot start /nowhere/at/all"));
        // A program that takes the arguments of a load, but writes no report.
        let echo = Children::with_program("echo", []);
        let no_report = echo.measure(&parse("grpc x").expect("a load")).expect_err("no report").to_string();
        assert!(no_report.contains("is not a report"), "{no_report}");
    }

    #[test]
    fn the_end_of_a_flood_of_errors_is_kept() {
        let flood = "x".repeat(TAIL_BYTES_MAX * 3) + "\nlast";
        assert_eq!(last_line(flood.as_bytes()), "last");
        let one_line = "y".repeat(TAIL_BYTES_MAX * 3);
        assert_eq!(last_line(one_line.as_bytes()).len(), TAIL_BYTES_MAX);
    }

    #[test]
    fn time_on_the_processor_is_measured_of_a_command() {
        let line = parse("sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'").expect("a command");
        let measured = Children::with_program("none", []).measure(&line).expect("counted");
        assert!(measured.cpu_seconds > 0.0 && measured.wall_seconds > 0.0 && measured.report.is_none());
    }
}
