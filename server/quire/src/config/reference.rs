//! `quire config`: checks a file of settings, shows their values, and makes their reference, `docs/settings.md`.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
};

use hosting::{Given, Layers, Reader, access::Credentials};

use super::{Config, read_all, sources::Sources};
use crate::{
    cli::{ConfigArgs, ConfigCommand, Flag},
    transport::tls,
};

/// Exit code for invalid settings, as for a wrong use.
const INVALID: u8 = 2;

/// `quire config`.
pub(crate) fn command(command: &ConfigCommand) -> anyhow::Result<ExitCode> {
    match command {
        ConfigCommand::Check { file } => return Ok(check(file)),
        ConfigCommand::Show(args) => show(args, Vec::new())?,
        ConfigCommand::Reference => io::stdout().write_all(reference().as_bytes())?,
        ConfigCommand::Template => io::stdout().write_all(template().as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints every fault of a file, as a start names the first, and every warning.
fn check(file: &Path) -> ExitCode {
    let args = ConfigArgs { config: Some(file.to_owned()), ..ConfigArgs::default() };
    let (faults, warnings) = match super::load(&args, Vec::new()) {
        Ok(sources) => faults(sources),
        Err(error) => (vec![format!("{error:#}")], Vec::new()),
    };
    for line in faults.iter().chain(&warnings) {
        super::complain(line);
    }
    if faults.is_empty() {
        // A closed output is no error.
        let _ = writeln!(io::stdout(), "{} is valid", file.display());
        return ExitCode::SUCCESS;
    }
    INVALID.into()
}

/// Faults and warnings of these sources.
fn faults(sources: Sources) -> (Vec<String>, Vec<String>) {
    let Sources { mut layers, mut warnings, mut faults } = sources;
    loop {
        let mut reader = Reader::new(&layers);
        match read_all(&mut reader) {
            Ok(config) => {
                warnings.extend(reader.warnings());
                faults.extend(file_faults(config));
                return (faults, warnings);
            }
            // Without the invalid value the others can be read.
            Err(refused) => {
                faults.push(refused.text);
                if layers.remove(&refused.key).is_none() {
                    return (faults, warnings);
                }
            }
        }
    }
}

/// Faults of the files that the settings name and a start reads first.
fn file_faults(config: Config) -> Vec<String> {
    let certificate = config.tls.as_ref().map_or(Ok(()), |tls| tls::server(tls).map(drop));
    let tokens = Credentials::open(config.tokens, config.admin_token.as_deref()).map(drop);
    let faults = [certificate, tokens.map_err(anyhow::Error::from)];
    faults.into_iter().filter_map(|read| Some(format!("{:#}", read.err()?))).collect()
}

/// Prints every value with its source, as TOML with comments; secrets are masked.
pub(crate) fn show(args: &ConfigArgs, flags: Vec<Flag>) -> anyhow::Result<()> {
    let (layers, warnings) = super::load(args, flags)?.valid()?;
    let mut reader = Reader::new(&layers);
    read_all(&mut reader)?;
    for warning in [warnings, reader.warnings()].concat() {
        super::complain(&warning);
    }
    Ok(io::stdout().write_all(toml(&reader).as_bytes())?)
}

/// Every value with its source.
pub(super) fn toml(reader: &Reader<'_>) -> String {
    let (mut lines, mut last) = (Vec::new(), "");
    for (key, setting) in reader.declared() {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        if section != last {
            lines.extend((!last.is_empty()).then(String::new));
            lines.push(format!("[{section}]"));
            last = section;
        }
        let shown = match &setting.value {
            None => format!("# {name} is not set"),
            Some(value) => format!("{name} = {value}"),
        };
        lines.push(format!("{shown:<40} # {}", reader.source(key)));
    }
    lines.join("\n") + "\n"
}

/// Begins the reference.
const HEAD: &str = "\
# Settings

Made from the code by `quire config reference`; `UPDATE_DOCS=1 cargo test --workspace --test system settings` writes it
anew. [operate/start.md](operate/start.md#set-a-value) says how to give a setting, and in which order the sources count.

A setting is read once, at the start. Each SIGHUP reads those marked *reloaded* again, and the file that such a setting names; a lower
limit ends nothing that was admitted. The log names what changed, and what waits for a start.

A size is in bytes, or has a binary or decimal unit: `64 MiB`, `512 kB`. A time in seconds may have another unit:
`500ms`, `2min`. An address is `IP:PORT`, `localhost:PORT` for this machine only, or `:PORT` for all its IPv4
addresses. Beyond a limit the answer is RESOURCE_EXHAUSTED, unless the row names another code, and
`quire_refused_total{limit=\"…\"}` counts it.
";

/// The limit of memory, from which other defaults follow.
const MEMORY: &str = "limits.memory_bytes";

/// A setting as the reference shows it.
struct Row<'a> {
    section: &'a str,
    name: &'a str,
    /// The default as TOML.
    value: Option<&'a str>,
    kind: &'a str,
    is_reloaded: bool,
    meaning: &'static str,
}

/// Passes every setting to `show`.
fn each(mut show: impl FnMut(Row<'_>)) {
    // The same on every machine.
    let large = Given { text: "1 TiB".to_owned(), is_text: true, source: String::new() };
    let (nothing, layers) = (Layers::new(), Layers::from([(MEMORY.to_owned(), large)]));
    let [mut usual, mut reader] = [Reader::new(&nothing), Reader::new(&layers)];
    for reader in [&mut usual, &mut reader] {
        if let Err(refused) = read_all(reader) {
            panic!("a default is out of bounds: {refused}");
        }
    }
    for (key, setting) in reader.declared() {
        let (section, name) = key.split_once('.').unwrap_or(("", key));
        let value = if *key == MEMORY { &usual.declared()[key].value } else { &setting.value };
        let meaning = reader.meanings().get(key).copied().unwrap_or_else(|| panic!("{key} has no meaning"));
        let (value, kind, is_reloaded) = (value.as_deref(), &*setting.kind, setting.is_reloaded);
        show(Row { section, name, value, kind, is_reloaded, meaning });
    }
}

/// Every setting with type, default and meaning, as a page of Markdown.
fn reference() -> String {
    let (mut page, mut last) = (HEAD.to_owned(), String::new());
    each(|Row { section, name, value, kind, is_reloaded, meaning }| {
        if section != last {
            let _ = write!(page, "\n## {section}\n\n| setting | type | default | meaning |\n|---|---|---|---|\n");
            section.clone_into(&mut last);
        }
        let value = value.map_or("none".to_owned(), |value| value.replace('"', ""));
        let value = if value.is_empty() { "empty" } else { &*value };
        let reloaded = if is_reloaded { ", *reloaded*" } else { "" };
        let _ = writeln!(page, "| `{section}.{name}` | {kind}{reloaded} | {value} | {meaning} |");
    });
    page
}

/// Begins the template.
const TEMPLATE_HEAD: &str = "\
# Settings of quire serve. Each line shows the default; remove the # before a setting to change it, and check the file
# with `quire config check FILE`. docs/settings.md has the same as a page.
";

/// Columns of the template.
const COLUMNS: usize = 110;

/// Every setting with meaning, type and default, commented out, as a file of settings.
fn template() -> String {
    let (mut page, mut last) = (TEMPLATE_HEAD.to_owned(), String::new());
    each(|Row { section, name, value, kind, is_reloaded, meaning }| {
        if section != last {
            let _ = write!(page, "\n[{section}]\n");
            section.clone_into(&mut last);
        }
        let reloaded = if is_reloaded { "; read again at SIGHUP" } else { "" };
        let (mut text, mut column) = (String::new(), COLUMNS);
        for word in without_links(&format!("{meaning} ({kind}{reloaded})")).split(' ') {
            column += 1 + word.chars().count();
            if column > COLUMNS {
                text.push_str("\n#");
                column = 2 + word.chars().count();
            }
            let _ = write!(text, " {word}");
        }
        let value = value.filter(|value| !value.is_empty()).unwrap_or("\"\"");
        let _ = writeln!(page, "{text}\n#{name} = {value}");
    });
    page
}

/// Markdown whose links are their text.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("](") {
        let (start, label) = before.rsplit_once('[').unwrap_or(("", before));
        plain.extend([start, label]);
        rest = after.split_once(')').map_or("", |(_, rest)| rest);
    }
    plain + rest
}
