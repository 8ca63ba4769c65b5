//! `quire verify`: a store or a backup, compared in all its parts.

use std::{
    fs::File,
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, Instant},
};

use bookstore::{
    FILE_NAME,
    store::{self, Verified},
};
use quire_terminal::screen;
use serde::Serialize;

use crate::{
    cli::VerifyArgs,
    commands::{backup::verify_file, data::Progress},
    config::Config,
};

/// Begin of a database file of `SQLite`.
const DATABASE: &[u8; 16] = b"SQLite format 3\0";

/// Exit code if there is nothing to verify or it cannot be read.
const UNREADABLE: u8 = 3;

/// `quire verify`.
pub(crate) fn command(args: &VerifyArgs) -> ExitCode {
    let done = verify(args);
    done.unwrap_or_else(|error| {
        eprintln!("quire: {}", screen::line(&format!("{error:#}")));
        ExitCode::from(UNREADABLE)
    })
}

fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let place = match &args.file {
        Some(file) => file.clone(),
        None => Config::of_tool(&args.config)?.data,
    };
    let file = if place.is_dir() { place.join(FILE_NAME) } else { place };
    let (progress, begun) = (Progress::default(), Instant::now());
    let verified = if is_backup(&file)? {
        verify_file(&file, &progress)?
    } else {
        progress.begin("verifying");
        store::verify(&file, &mut |done, all| progress.at(done, all))?
    };
    drop(progress);
    let code = if verified.problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    let result = Report { file, verified, seconds: begun.elapsed().as_secs_f64() };
    let mut out = io::stdout();
    if args.json {
        serde_json::to_writer(&mut out, &result)?;
        writeln!(out)?;
    } else {
        result.print(&mut out)?;
    }
    Ok(code)
}

/// True for an existing file that is no database.
fn is_backup(file: &Path) -> anyhow::Result<bool> {
    if !file.exists() {
        return Ok(false);
    }
    let mut begin = Vec::new();
    File::open(file)?.take(DATABASE.len() as u64).read_to_end(&mut begin)?;
    Ok(!begin.is_empty() && begin != DATABASE)
}

#[derive(Serialize)]
struct Report {
    file: PathBuf,
    #[serde(flatten)]
    verified: Verified,
    seconds: f64,
}

impl Report {
    fn print(&self, out: &mut impl io::Write) -> io::Result<()> {
        let Verified {
            entries,
            last,
            known_missing,
            covered,
            other_programs,
            other_newest,
            books,
            reservations,
            keys,
            problems,
            ..
        } = &self.verified;
        let file = self.file.display();
        writeln!(out, "{file}: {entries} log entries, {books} books, {keys} keys in the index")?;
        match covered {
            Some(covered) if i64::try_from(*covered).is_ok_and(|covered| covered < *last) => {
                let first = covered + 1;
                writeln!(
                    out,
                    "the entries from number {first} on are of other programs; the next purchase adds them to the head"
                )?;
            }
            Some(_) => writeln!(out, "the head covers all of them")?,
            None => writeln!(out, "the log has no head to compare it with")?,
        }
        if *reservations > 0 {
            writeln!(out, "open reservations: {reservations}")?;
        }
        if *known_missing > 0 {
            writeln!(out, "numbers recorded as without an entry: {known_missing}")?;
        }
        if *other_programs > 0 {
            let newest: Vec<String> = other_newest.iter().map(|number| format!("number {number}")).collect();
            writeln!(out, "entries by other programs: {other_programs}, the newest {}", newest.join(", "))?;
        }
        for problem in problems {
            writeln!(out, "wrong: {}", screen::line(&problem.message))?;
        }
        let rate = u128::from(*entries) * 1_000_000 / Duration::from_secs_f64(self.seconds).as_micros().max(1);
        let wrong =
            if problems.is_empty() { "nothing is wrong".to_owned() } else { format!("{} wrong", problems.len()) };
        writeln!(out, "{wrong}; {:.1} s, {rate} entries a second", self.seconds)
    }
}
