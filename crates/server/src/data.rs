//! Commands on data: import a catalogue, make one up.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use anyhow::Context;
use bookstore::exchange;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    cli::{Generate, ImportArgs},
    config::Config,
};

/// `quire import`.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(&args.config)?;
    let file = File::open(&args.file).with_context(|| format!("cannot read {}", args.file.display()))?;
    let size = file.metadata().map_or(0, |meta| meta.len());
    // Drawn only on a terminal, on standard error.
    let bar = ProgressBar::new(size);
    bar.set_style(ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}")?);
    let mut progress = |read| bar.set_position(read);
    let mut report = |row: &exchange::BadRow| bar.suspend(|| eprintln!("left out: {row}"));
    let options =
        exchange::Options { progress: &mut progress, skip_bad: if args.skip_bad { Some(&mut report) } else { None } };
    let path = config.data.join(crate::serve::FILE_NAME);
    let imported = exchange::import(&path, file, &config.store, options);
    bar.finish_and_clear();
    let imported = imported.with_context(|| args.file.display().to_string())?;
    let left_out = if imported.bad > 0 { format!(", {} rows left out", imported.bad) } else { String::new() };
    writeln!(io::stdout(), "{} books imported into {}{left_out}", imported.books, path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// `quire generate`.
pub(crate) fn generate(what: &Generate) -> anyhow::Result<ExitCode> {
    let done = match what {
        Generate::Catalogue { rows, seed, first_id, out } => {
            bookstore::generate::catalogue(place(out.as_deref())?, *first_id, *rows, *seed)
        }
        Generate::Records { rows, seed, out } => records::generate::tickets(place(out.as_deref())?, *rows, *seed),
    };
    match done {
        // Whoever reads a part of it, as `head` does, has what it wanted.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        done => done.map(|()| ExitCode::SUCCESS).context("cannot write what was made up"),
    }
}

/// The file of that name, or standard output.
fn place(out: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = out else { return Ok(Box::new(io::stdout().lock())) };
    let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Box::new(file))
}
