//! Commands on data: import a catalogue, export it, make one up.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, ensure};
use bookstore::{
    BookstoreService, exchange,
    store::{self, Migrated},
};
use indicatif::{ProgressBar, ProgressStyle};

use crate::{
    cli::{ExportArgs, Generate, ImportArgs, MigrateArgs},
    config::Config,
};

/// `quire import`.
pub(crate) fn import(args: &ImportArgs) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(&args.config)?;
    let (source, name, size): (Box<dyn Read>, _, _) = if args.file == Path::new("-") {
        (Box::new(io::stdin().lock()), "standard input".to_owned(), 0)
    } else {
        let name = args.file.display().to_string();
        let file = File::open(&args.file).with_context(|| format!("cannot read {name}"))?;
        let size = file.metadata().map_or(0, |meta| meta.len());
        (Box::new(file), name, size)
    };
    let shown = Progress::default();
    shown.begin("importing");
    let mut progress = |read| shown.at(read, size);
    let mut report = |row: &exchange::BadRow| shown.0.suspend(|| eprintln!("left out: {row}"));
    let options = exchange::Options {
        progress: &mut progress,
        skip_bad: if args.skip_bad { Some(&mut report) } else { None },
        sample: !args.no_sample,
    };
    let path = config.data.join(bookstore::FILE_NAME);
    let imported = exchange::import(&path, source, &config.settings_of::<BookstoreService>(), options);
    shown.end();
    let imported = imported.context(name)?;
    let left_out = if imported.bad > 0 { format!(", {} rows left out", imported.bad) } else { String::new() };
    writeln!(io::stdout(), "{} books imported into {}{left_out}", imported.books, path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// `quire export`.
pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(&args.config)?;
    let path = config.data.join(bookstore::FILE_NAME);
    let shown = Progress::default();
    shown.begin("exporting");
    let mut progress = |done, all| shown.at(done, all);
    let mut export = |into: &mut dyn Write| {
        exchange::export(
            &path,
            BufWriter::with_capacity(1 << 20, into),
            &config.settings_of::<BookstoreService>(),
            &mut progress,
        )
    };
    // A pipe or a device is written as it is; a file has its name only when it is whole.
    let file = args.out.as_deref().filter(|path| !path.exists() || path.is_file());
    let exported = match (file, &args.out) {
        (Some(file), _) => {
            let cannot = || format!("cannot write {}", file.display());
            let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            // What the umask leaves of it, as for any new file.
            let made = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder);
            let mut whole = made.with_context(cannot)?;
            let exported = export(whole.as_file_mut())?;
            whole.as_file().sync_all().with_context(cannot)?;
            whole.persist(file).map_err(|error| error.error).with_context(cannot)?;
            exported
        }
        (None, out) => match export(&mut place(out.as_deref())?) {
            Err(exchange::ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            exported => exported?,
        },
    };
    shown.end();
    if let Some(file) = file {
        writeln!(io::stdout(), "{exported} books exported to {}", file.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// `quire migrate`.
pub(crate) fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let settings = Config::of_tool(&args.config)?.settings_of::<BookstoreService>();
    let path = args.from.strip_prefix("sqlite:").map(Path::new);
    let path = path.with_context(|| format!("--from is '{}'; it must be sqlite:PATH", args.from))?;
    ensure!(args.to.starts_with("postgres"), "--to must be postgres://USER@HOST/DATABASE");
    let shown = Progress::default();
    shown.begin("copying");
    let done = store::migrate(path, &args.to, &settings, &mut |done, all| shown.at(done, all));
    shown.end();
    match done? {
        Migrated::Copied(sums) => writeln!(io::stdout(), "copied {sums}; set ledger.url to sell from there")?,
        Migrated::There(sums) => writeln!(io::stdout(), "the database holds all of it already: {sums}")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// How far a command is: on standard error, if that is a terminal.
pub(crate) struct Progress(ProgressBar);

impl Default for Progress {
    fn default() -> Self {
        Self(ProgressBar::no_length())
    }
}

impl Progress {
    /// A new step.
    pub(crate) fn begin(&self, step: &'static str) {
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
            self.0.set_style(style);
        }
        self.0.reset();
        self.0.unset_length();
        self.0.enable_steady_tick(Duration::from_millis(200));
        self.0.set_message(step);
    }

    /// So much of `all` is done; 0 if that is not known.
    pub(crate) fn at(&self, done: u64, all: u64) {
        if all > 0 && self.0.length() != Some(all) {
            self.0.set_length(all);
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {bar:40} {percent}% {eta}") {
                self.0.set_style(style);
            }
        }
        self.0.set_position(done);
    }

    /// Nothing more to show.
    pub(crate) fn end(&self) {
        self.0.finish_and_clear();
    }
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
        // A reader that takes only a part, as `head` does, has what it wanted.
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
