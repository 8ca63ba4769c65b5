//! A round: processes use a store, one fault a life, until an audit.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rand_core::{RngCore as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::{
    judge::{Finding, Subject},
    random::Random as _,
    trace::{self, CUT, Damage, Disk, Fault, OPEN, READ, Rule, SYNC, Trace, WRITE},
};

/// Time limit of a process.
const PATIENCE: Duration = Duration::from_mins(1);

/// Fault in a life of the store.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// Nothing: the processes are killed or close the store.
    Nothing,
    /// Calls fail.
    Call(Rule),
    /// Damage that no call reports.
    Damage(Damage),
}

impl Event {
    /// Class in the report.
    pub(crate) fn class(&self) -> String {
        let kinds = |rule: &Rule| match rule.kinds {
            OPEN => "of open",
            READ => "of read",
            WRITE => "of write",
            SYNC => "of fsync",
            CUT => "of ftruncate",
            _ => "at any call",
        };
        match self {
            Self::Nothing => "none".to_owned(),
            Self::Call(rule) => match rule.fault {
                Fault::PowerOff => format!("power cut {}", kinds(rule)),
                Fault::PowerOffAfter => format!("power cut after a part {}", kinds(rule)),
                Fault::Kill => format!("kill {}", kinds(rule)),
                Fault::KillAfter => format!("kill after a part {}", kinds(rule)),
                Fault::InputOutput => format!("EIO {}", kinds(rule)),
                Fault::NoSpace => format!("ENOSPC {}", kinds(rule)),
                Fault::Short => format!("short {}", kinds(rule)),
                Fault::Flip => format!("flipped bit {}", kinds(rule)),
                Fault::NoDescriptors => format!("EMFILE {}", kinds(rule)),
            },
            Self::Damage(Damage::Lies(_)) => "flushes that do nothing, power cut".to_owned(),
            Self::Damage(Damage::Lost) => "lost write".to_owned(),
            Self::Damage(Damage::Misdirected) => "misdirected write".to_owned(),
            Self::Damage(Damage::FlippedInFlight) => "flipped bit in flight".to_owned(),
            Self::Damage(Damage::Flipped) => "flipped bit at rest".to_owned(),
            Self::Damage(Damage::Zeroed) => "zeros at rest".to_owned(),
            Self::Damage(Damage::Cut) => "file cut at rest".to_owned(),
        }
    }

    /// True if a start may refuse the store, as long as it does not lose anything unnoticed.
    fn damages(&self) -> bool {
        matches!(self, Self::Damage(_) | Self::Call(Rule { fault: Fault::Flip, .. }))
    }

    fn random(subject: Subject, is_first: bool, random: &mut Xoshiro256PlusPlus) -> Self {
        let endings: &[&str] = match subject {
            Subject::Shop => &["", "", "bookstore.db", "-wal", "-head"],
            Subject::Keys => &["", "", ".jnl"],
        };
        let ending = *random.pick(endings).expect("some");
        let all = OPEN | WRITE | SYNC | CUT;
        let (fault, kinds, most) = match random.below(24) {
            0..2 => (Fault::PowerOff, all, 1),
            2..4 => (Fault::PowerOffAfter, WRITE | SYNC, 1),
            4 => (Fault::Kill, all, 1),
            5 => (Fault::KillAfter, WRITE | SYNC, 1),
            6 => (Fault::InputOutput, WRITE, 3),
            7 => (Fault::NoSpace, WRITE, 60),
            8 => (Fault::Short, WRITE, 2),
            9..11 => (Fault::InputOutput, SYNC, 2),
            11 => (Fault::InputOutput, CUT, 2),
            12 => (Fault::InputOutput, OPEN, 1),
            13 => (Fault::NoDescriptors, OPEN, 5),
            14 => (Fault::Short, READ, 3),
            // With the newest transaction damaged while it is read and no mark, the loss cannot be noticed (docs/durability.md).
            16 if is_first => (Fault::Flip, READ, 1),
            15 | 16 => (Fault::InputOutput, READ, 2),
            17 => return Self::Damage(Damage::Lost),
            18 => return Self::Damage(Damage::Misdirected),
            19 => return Self::Damage(Damage::FlippedInFlight),
            // A journal alone cannot show that its end was never written (docs/kv.md).
            20 if subject == Subject::Keys => return Self::Nothing,
            20 => return Self::Damage(Damage::Lies(if ending.is_empty() { endings[2] } else { ending })),
            21 => return Self::Damage(Damage::Flipped),
            22 => return Self::Damage(random.any([Damage::Zeroed, Damage::Cut])),
            _ => return Self::Nothing,
        };
        // Sooner or later, since some kinds of calls are rare.
        let within = random.any([4, 20, 120]);
        let (at, count) = (random.below(within), 1 + random.below(most));
        let bit = random.next_u32() & 0x7fff_ffff;
        Self::Call(Rule { fault, kinds, ending, at, count, bit })
    }
}

/// End of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Kill,
    Close,
    PowerCut,
}

/// A life of the store between two starts.
#[derive(Clone, Debug)]
struct Life {
    event: Event,
    end: End,
    processes: usize,
    steps: usize,
    seed: u64,
}

/// A round that is wholly chosen by its seed.
#[derive(Clone, Debug)]
struct Plan {
    subject: Subject,
    is_large: bool,
    lives: Vec<Life>,
}

impl Plan {
    fn new(random: &mut Xoshiro256PlusPlus) -> Self {
        let subject = if random.one_in(4) { Subject::Keys } else { Subject::Shop };
        let is_large = subject == Subject::Shop && random.one_in(40);
        let lives = (0..=usize::from(random.one_in(2)))
            .map(|number| {
                let event = Event::random(subject, number == 0, random);
                let end = match event {
                    Event::Damage(Damage::Lies(_)) => End::PowerCut,
                    Event::Damage(_) => random.any([End::Kill, End::Close]),
                    _ => random.any([End::Kill, End::Close, End::PowerCut]),
                };
                // Two servers may replace each other's marks, without which damage to the newest transaction cannot be noticed.
                let is_shared = random.one_in(3) && subject == Subject::Shop && !event.damages();
                let processes = 1 + usize::from(is_shared);
                Life { event, end, processes, steps: 2 + random.place(20), seed: random.next_u64() }
            })
            .collect();
        Self { subject, is_large, lives }
    }
}

/// Folder, shim and stores that rounds begin with.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) folder: PathBuf,
    pub(crate) program: PathBuf,
    pub(crate) shim: PathBuf,
}

/// Result of a round: the fault of its last life, the number of its strikes, and the finding of its audit.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) class: String,
    pub(crate) hits: u64,
    pub(crate) finding: Finding,
    /// For a finding that is a failure: the plan.
    pub(crate) failure: Option<String>,
}

/// A running process, whose lines go to a channel.
struct Process {
    child: Child,
    lines: Receiver<String>,
    errors: thread::JoinHandle<String>,
}

impl Process {
    fn start(command: &mut Command) -> anyhow::Result<Self> {
        let streams = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = streams.spawn().context("a process starts")?;
        let (send, lines) = channel();
        let out = BufReader::new(child.stdout.take().context("its output")?);
        thread::spawn(move || {
            out.lines().map_while(Result::ok).take_while(|line| send.send(line.clone()).is_ok()).count()
        });
        let mut err = child.stderr.take().context("its errors")?;
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = err.read_to_string(&mut text);
            text
        });
        Ok(Self { child, lines, errors })
    }

    /// Waits for its end, and returns its lines and, if it failed by itself, why.
    fn end(mut self) -> anyhow::Result<(Vec<String>, Option<String>)> {
        let mut said = Vec::new();
        loop {
            match self.lines.recv_timeout(PATIENCE) {
                Ok(line) => said.push(line),
                Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => break,
                Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {
                    self.child.kill()?;
                    bail!("a process hangs; its last lines are {:?}", &said[said.len().saturating_sub(3)..]);
                }
            }
        }
        let status = self.child.wait()?;
        let errors = self.errors.join().unwrap_or_default();
        // Killed by the disk, or at its end by itself.
        let is_killed = status.signal() == Some(9);
        let failed = errors.contains("panicked") || !(status.success() || is_killed);
        Ok((said, failed.then(|| format!("a process ended with {status}: {errors}"))))
    }
}

/// A process that uses the store, with the disk's faults.
fn user(
    bench: &Bench,
    plan: &Plan,
    life: &Life,
    trace: &Trace,
    folder: &Path,
    number: usize,
) -> anyhow::Result<Process> {
    let tag = format!("{:x}-{number}", life.seed & 0xffff);
    let end = if life.end == End::Close { "close" } else { "die" };
    let orders = ["work", plan.subject.name(), &life.seed.to_string(), &tag, &life.steps.to_string(), end];
    let mut command = Command::new(&bench.program);
    command.args(orders).arg(folder).env("LD_PRELOAD", &bench.shim);
    Process::start(command.env("CAMPAIGN_FOLDER", folder).env("CAMPAIGN_TRACE", trace.path()))
}

/// Judges the files in `folder` by the lines that processes printed.
fn audit(bench: &Bench, plan: &Plan, folder: &Path, said: &[String]) -> anyhow::Result<Finding> {
    let lines = folder.with_extension("said");
    fs::write(&lines, said.join("\n"))?;
    let mut command = Command::new(&bench.program);
    let process = Process::start(command.args(["audit", plan.subject.name()]).arg(folder).arg(&lines))?;
    let (found, failed) = process.end()?;
    match (found.last().and_then(|line| Finding::parse(line)), failed) {
        (_, Some(why)) => Ok(Finding::Noticed(why)),
        (Some(finding), None) => Ok(finding),
        (None, None) => bail!("an audit without a finding"),
    }
}

/// Runs one life in `from`, and puts what a restart finds into `to`. Returns how often the fault struck.
fn live(
    bench: &Bench,
    plan: &Plan,
    life: &Life,
    place: (&Path, &Path),
    disk: &mut Disk,
    said: &mut Vec<String>,
    random: &mut Xoshiro256PlusPlus,
) -> anyhow::Result<(u64, String)> {
    let (from, to) = place;
    let rule = match &life.event {
        Event::Call(rule) => Some(rule),
        _ => None,
    };
    let trace = Trace::begin(from.with_extension("trace"), from, rule, disk)?;
    let processes: Vec<Process> = (0..life.processes)
        .map(|number| user(bench, plan, life, &trace, from, number))
        .collect::<anyhow::Result<_>>()?;
    for process in processes {
        let (lines, failed) = process.end()?;
        ensure!(failed.is_none() || life.event.damages(), "{}", failed.unwrap_or_default());
        said.extend(lines);
    }
    let (is_off, hits) = trace.state()?;
    let damage = match life.event {
        Event::Damage(damage) => Some(damage),
        _ => None,
    };
    // The newest batch of a damaged journal looks torn (docs/kv.md), and the ledger cannot notice that a disk lost its
    // newest transaction alone if it also lost the mark (docs/durability.md).
    let spares_newest = plan.subject == Subject::Keys || matches!(damage, Some(Damage::Lies(_)));
    let (damaged, after) = trace.restart(to, is_off || life.end == End::PowerCut, damage, spares_newest, random)?;
    *disk = after;
    fs::remove_file(trace.path())?;
    Ok((hits + u64::from(damaged.is_some()), damaged.unwrap_or_default()))
}

/// Runs the round of a seed.
pub(crate) fn run(bench: &Bench, seed: u64, has_faults: bool) -> anyhow::Result<Outcome> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut plan = Plan::new(&mut random);
    if !has_faults {
        for life in &mut plan.lives {
            life.event = Event::Nothing;
        }
    }
    let own = tempfile::tempdir_in(&bench.folder)?;
    let (mut from, mut disk, mut said) = (own.path().join("0"), Disk::default(), Vec::new());
    if plan.subject == Subject::Shop {
        trace::copy(&bench.folder.join(if plan.is_large { "large" } else { "small" }), &from)?;
    } else {
        fs::create_dir(&from)?;
    }
    let mut outcome = None;
    for (life, number) in plan.lives.iter().zip(1..) {
        let to = own.path().join(number.to_string());
        fs::create_dir(&to)?;
        let (hits, damaged) = live(bench, &plan, life, (&from, &to), &mut disk, &mut said, &mut random)?;
        // The audit itself changes files, and the next life begins before it.
        let audited = own.path().join("audit");
        let _ = fs::remove_dir_all(&audited);
        trace::copy(&to, &audited)?;
        let finding = audit(bench, &plan, &audited, &said)?;
        let is_failure = match &finding {
            Finding::Whole(_) => false,
            Finding::Noticed(_) => !life.event.damages(),
            Finding::Wrong(_) => true,
        };
        let failure = is_failure.then(|| format!("{plan:?} {damaged}"));
        let ends = is_failure || !matches!(finding, Finding::Whole(_));
        outcome = Some(Outcome { class: life.event.class(), hits, finding, failure });
        if ends {
            break;
        }
        from = to;
    }
    outcome.context("a round has a life")
}
