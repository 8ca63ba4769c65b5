//! Commands on data: import, export, migrate and generate.

use std::{
    cell::Cell,
    fs::{self, File},
    io::{self, BufWriter, IsTerminal as _, Read, Write},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use bookstore::{
    BookstoreService, exchange,
    store::{self, Found, Migrated, Plan},
};
use quire_terminal::screen;
use tempfile::NamedTempFile;

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
    let mut report = |row: &exchange::BadRow| shown.note(&format!("left out: {row}"));
    let options = exchange::Options {
        progress: &mut progress,
        skip_bad: if args.skip_bad { Some(&mut report) } else { None },
        sample: !args.no_sample,
    };
    let path = config.data.join(bookstore::FILE_NAME);
    let imported = exchange::import(&path, source, &config.settings_of::<BookstoreService>(), options);
    drop(shown);
    let imported = imported.context(name)?;
    let left_out = if imported.bad > 0 { format!(", {} rows left out", imported.bad) } else { String::new() };
    writeln!(io::stdout(), "{} books imported into {}{left_out}", imported.books, path.display())?;
    Ok(ExitCode::SUCCESS)
}

/// `quire export`.
pub(crate) fn export(args: &ExportArgs) -> anyhow::Result<ExitCode> {
    let config = Config::of_tool(&args.config)?;
    ensure!(!args.json, "--json is for export log and export sales; books are CSV");
    let path = config.data.join(bookstore::FILE_NAME);
    let shown = Progress::default().unless(args.out.is_none() && io::stdout().is_terminal());
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
    let mut output = Output::open(args.out.as_deref())?;
    let exported = match export(output.writer()) {
        Err(exchange::ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
            return Ok(ExitCode::SUCCESS);
        }
        exported => exported?,
    };
    let file = output.finish()?;
    drop(shown);
    if let Some(file) = file {
        writeln!(io::stdout(), "{exported} books exported to {}", file.display())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Destination of an export: a pipe or a device directly, a file under a name of its own until it is complete.
pub(crate) enum Output<'a> {
    Open(Box<dyn Write>),
    Whole(NamedTempFile, &'a Path),
}

impl<'a> Output<'a> {
    /// Opens the file, or standard output.
    pub(crate) fn open(out: Option<&'a Path>) -> anyhow::Result<Self> {
        let Some(file) = out.filter(|path| !path.exists() || path.is_file()) else {
            return Ok(Self::Open(place(out)?));
        };
        let folder = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Masked by the umask, as for any new file.
        let made = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder);
        Ok(Self::Whole(made.with_context(|| cannot_write(file))?, file))
    }

    pub(crate) fn writer(&mut self) -> &mut dyn Write {
        match self {
            Self::Open(out) => out,
            Self::Whole(file, _) => file.as_file_mut(),
        }
    }

    /// Gives a complete file its name, and returns that.
    pub(crate) fn finish(self) -> anyhow::Result<Option<&'a Path>> {
        let Self::Whole(whole, file) = self else { return Ok(None) };
        whole.as_file().sync_all().with_context(|| cannot_write(file))?;
        whole.persist(file).map_err(|error| error.error).with_context(|| cannot_write(file))?;
        Ok(Some(file))
    }
}

fn cannot_write(file: &Path) -> String {
    format!("cannot write {}", file.display())
}

/// `quire migrate`.
pub(crate) fn migrate(args: &MigrateArgs) -> anyhow::Result<ExitCode> {
    let settings = Config::of_tool(&args.config)?.settings_of::<BookstoreService>();
    let path = args.from.strip_prefix("sqlite:").map(Path::new);
    let path = path.with_context(|| format!("--from is '{}'; it must be sqlite:PATH", args.from))?;
    let Some(to) = &args.to else { return upgrade(&store::look(path, &settings)?) };
    ensure!(to.starts_with("postgres"), "--to must be postgres://USER@HOST/DATABASE");
    if args.dry_run {
        return plan(&store::plan_migration(path, to, &settings)?);
    }
    let shown = Progress::default();
    shown.begin("copying");
    let done = store::migrate(path, to, &settings, &mut |done, all| shown.at(done, all));
    drop(shown);
    match done? {
        Migrated::Copied(sums) => writeln!(io::stdout(), "copied {sums}; set ledger.url to sell from there")?,
        Migrated::There(sums) => writeln!(io::stdout(), "the database holds all of it already: {sums}")?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a start would migrate.
fn upgrade(found: &Found) -> anyhow::Result<ExitCode> {
    let Found { here, schema, .. } = found;
    let mut out = io::stdout();
    writeln!(out, "the file, of schema {schema}, holds {here}")?;
    if *schema < store::VERSION {
        writeln!(out, "the next start migrates it to schema {}; nothing was changed", store::VERSION)?;
    } else {
        writeln!(out, "the next start migrates nothing: the schema is this program's")?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints what a migration would do.
fn plan(plan: &Plan) -> anyhow::Result<ExitCode> {
    let Plan { here, schema, there, problems } = plan;
    let mut out = io::stdout();
    writeln!(out, "the file, of schema {schema}, holds {here}")?;
    match there {
        Some(there) if there.is_empty() => writeln!(out, "the database has empty tables")?,
        Some(there) => writeln!(out, "the database holds {there}")?,
        // Otherwise a problem says why nothing is known of it.
        None if problems.is_empty() => writeln!(out, "the database has no tables; they would be made")?,
        None => {}
    }
    for problem in problems {
        writeln!(out, "in the way: {}", screen::line(&problem.to_string()))?;
    }
    let done = match there {
        Some(there) if there == here => "the database holds all of it already",
        _ if problems.is_empty() => "it can be copied",
        _ => "it cannot be copied",
    };
    writeln!(out, "{done}; nothing was changed")?;
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Progress of a command: one line on standard error, redrawn in place, if that is a terminal. Dropping it clears the
/// line.
pub(crate) struct Progress {
    is_shown: bool,
    step: Cell<&'static str>,
    begun: Cell<Instant>,
    drawn: Cell<Instant>,
}

/// Least time between two redraws.
const REDRAW: Duration = Duration::from_millis(200);
/// Returns to the beginning of the line and clears it (ECMA-48: CR, EL).
const CLEAR: &str = "\r\x1b[K";

impl Default for Progress {
    fn default() -> Self {
        let (is_shown, now) = (io::stderr().is_terminal(), Instant::now());
        Self { is_shown, step: Cell::new(""), begun: Cell::new(now), drawn: Cell::new(now) }
    }
}

impl Progress {
    /// Progress that is not shown.
    pub(crate) fn hidden() -> Self {
        Self::default().unless(true)
    }

    /// Begins a step.
    pub(crate) fn begin(&self, step: &'static str) {
        self.step.set(step);
        self.begun.set(Instant::now());
        self.draw(None);
    }

    /// Shows `done` of `all`; `all` is 0 if unknown.
    pub(crate) fn at(&self, done: u64, all: u64) {
        if self.drawn.get().elapsed() >= REDRAW {
            self.draw((all > 0).then(|| 100 * u128::from(done) / u128::from(all)));
        }
    }

    fn draw(&self, percent: Option<u128>) {
        if !self.is_shown {
            return;
        }
        self.drawn.set(Instant::now());
        let (step, seconds) = (self.step.get(), self.begun.get().elapsed().as_secs());
        let percent = percent.map_or_else(String::new, |percent| format!(" {percent}%"));
        eprint!("{CLEAR}{step}{percent} {seconds} s");
    }

    /// Prints a line above the progress.
    pub(crate) fn note(&self, line: &str) {
        eprintln!("{}{line}", if self.is_shown { CLEAR } else { "" });
    }

    /// Hides it if the command's output goes to the same terminal.
    fn unless(mut self, is_output_shown: bool) -> Self {
        self.is_shown &= !is_output_shown;
        self
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.is_shown {
            eprint!("{CLEAR}");
        }
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
        // A reader that stops early, such as `head`, is no error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        done => done.map(|()| ExitCode::SUCCESS).context("cannot write what was made up"),
    }
}

/// Opens the file, or standard output.
fn place(out: Option<&Path>) -> anyhow::Result<Box<dyn Write>> {
    let Some(path) = out else { return Ok(Box::new(io::stdout().lock())) };
    let file = File::create(path).with_context(|| cannot_write(path))?;
    Ok(Box::new(file))
}
