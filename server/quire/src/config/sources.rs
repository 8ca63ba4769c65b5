//! Sources of settings by rising precedence: file, variables, flags.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, bail};
use hosting::{
    Given, Layers,
    names::{did_you_mean, nearest},
};
use toml::{Table, Value};

use crate::cli::{ConfigArgs, Flag};

/// The default file.
const DEFAULT_FILE: &str = "quire.toml";

/// The variable that names the file.
const FILE_VARIABLE: &str = "QUIRE_CONFIG";

/// All given values.
#[derive(Default)]
pub(super) struct Sources {
    pub layers: Layers,
    /// One for each given value without effect.
    pub warnings: Vec<String>,
    /// One for each name that is no setting.
    pub faults: Vec<String>,
}

impl Sources {
    /// The values and the warnings; the error is the first fault.
    pub(super) fn valid(self) -> anyhow::Result<(Layers, Vec<String>)> {
        self.faults.into_iter().next().map_or(Ok((self.layers, self.warnings)), |fault| Err(anyhow::Error::msg(fault)))
    }
}

/// Reads file, variables and flags. `known` are the names of all settings.
pub(super) fn read(args: &ConfigArgs, flags: Vec<Flag>, known: &[&str]) -> anyhow::Result<Sources> {
    let mut sources = Sources::default();
    read_file(args.config.as_deref(), known, &mut sources)?;
    for (name, text) in variables() {
        let Some(key) = known.iter().find(|key| variable(key).eq_ignore_ascii_case(&name)) else {
            sources.warnings.push(ignored(&name, known));
            continue;
        };
        let text = text.into_string().ok().with_context(|| format!("{name} is not UTF-8; it must be text"))?;
        sources.layers.insert((*key).to_owned(), given(&text, variable(key)));
    }
    for text in &args.set {
        let Some((key, value)) = text.split_once('=').filter(|(key, _)| key.contains('.')) else {
            bail!("--set {text}: it must be SECTION.KEY=VALUE, as ledger.commit=each");
        };
        let key = key.trim();
        if !known.contains(&key) {
            bail!("--set {text}: {}", unknown(key, None, known));
        }
        sources.layers.insert(key.to_owned(), given(value.trim(), "--set".to_owned()));
    }
    let data = args.data.as_ref().map(|data| ("--data", "server.data", data.to_string_lossy().into_owned()));
    for (flag, key, text) in flags.into_iter().chain(data) {
        sources.layers.insert(key.to_owned(), given(&text, flag.to_owned()));
    }
    Ok(sources)
}

/// The file of settings: the named one, or the default one if it is there.
pub(crate) fn file(args: &ConfigArgs) -> Option<&Path> {
    args.config.as_deref().or_else(|| Some(Path::new(DEFAULT_FILE)).filter(|path| path.try_exists().unwrap_or(true)))
}

/// Reads the values of the file; the default one need not be there.
fn read_file(named: Option<&Path>, known: &[&str], sources: &mut Sources) -> anyhow::Result<()> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => return Ok(()),
        read => read.with_context(|| format!("cannot read the configuration {}", path.display()))?,
    };
    let source = path.display().to_string();
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => bail!("{source} cannot be read: {}", one_line(&error.to_string())),
    };
    for (section, values) in table {
        let has_section = known.iter().any(|key| key.split_once('.').is_some_and(|(name, _)| name == section));
        match values {
            Value::Table(values) if has_section => {
                for (name, value) in values {
                    let key = format!("{section}.{name}");
                    if known.contains(&&*key) {
                        sources.layers.insert(key, written(&value, &source));
                    } else {
                        let unknown = unknown(&key, Some(&source), known);
                        sources.faults.push(format!("{unknown} [{section}] has {}", names(&section, known)));
                    }
                }
            }
            other if has_section => {
                let value = written(&other, &source).text;
                let want = format!("it must be a section, as [{section}]");
                sources.faults.push(format!("{section} is '{value}', from {source}; {want}"));
            }
            _ => sources.faults.push(no_section(&section, &source, known)),
        }
    }
    Ok(())
}

/// Value of a variable or flag, which may be quoted as in the file.
fn given(text: &str, source: String) -> Given {
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Given { text: bare.to_owned(), is_text: true, source }
}

/// Value of the file.
fn written(value: &Value, source: &str) -> Given {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(_) => "a list".to_owned(),
        Value::Table(_) => "a section".to_owned(),
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Boolean(is_on) => is_on.to_string(),
        Value::Datetime(time) => time.to_string(),
    };
    Given { text, is_text: value.is_str(), source: source.to_owned() }
}

fn variables() -> impl Iterator<Item = (String, std::ffi::OsString)> {
    let named = std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text)));
    named.filter(|(name, _)| name.to_ascii_uppercase().starts_with("QUIRE_") && name != FILE_VARIABLE)
}

/// `QUIRE_LEDGER_COMMIT` is `ledger.commit`.
fn variable(key: &str) -> String {
    format!("QUIRE_{}", key.replace('.', "_").to_uppercase())
}

/// Warning for an unknown variable; it may be another program's: Kubernetes sets some for a service named quire.
pub(super) fn ignored(name: &str, known: &[&str]) -> String {
    // Compared without the common prefix.
    let names: Vec<String> = known.iter().map(|key| variable(key).replacen("QUIRE_", "", 1)).collect();
    let bare = name.to_ascii_uppercase().replacen("QUIRE_", "", 1);
    let meant = nearest(&bare, '_', names.iter().map(String::as_str));
    let meant: Vec<String> = meant.into_iter().map(|meant| format!("QUIRE_{meant}")).collect();
    let right = did_you_mean(&meant).map_or(String::new(), |question| format!("; {question}"));
    format!("the variable {name} is ignored: it names no setting{right}")
}

/// Error text for the unknown setting `key`, with the likely intended one.
pub(super) fn unknown(key: &str, source: Option<&str>, known: &[&str]) -> String {
    let source = source.map_or(String::new(), |source| format!(", from {source}"));
    let meant = did_you_mean(&nearest(key, '.', known.iter().copied()));
    let right = meant.unwrap_or_else(|| "`quire config show` lists all".to_owned());
    format!("there is no setting {key}{source}; {right}")
}

/// The settings of a section.
fn names(section: &str, known: &[&str]) -> String {
    let keys = known.iter().filter_map(|key| key.split_once('.'));
    keys.filter(|(name, _)| *name == section).map(|(_, key)| key).collect::<Vec<_>>().join(", ")
}

/// Error for a name outside every section, or of an unknown section.
fn no_section(name: &str, source: &str, known: &[&str]) -> String {
    if known.iter().any(|key| key.ends_with(&format!(".{name}"))) {
        return unknown(name, Some(source), known);
    }
    let sections: BTreeSet<&str> = known.iter().filter_map(|key| Some(key.split_once('.')?.0)).collect();
    let meant: Vec<_> = nearest(name, '.', sections.iter().copied()).iter().map(|name| format!("[{name}]")).collect();
    let meant = did_you_mean(&meant).map_or(String::new(), |question| question + " ");
    let sections: Vec<&str> = sections.into_iter().collect();
    format!("there is no setting {name}, from {source}; {meant}the sections are {}", sections.join(", "))
}

/// Shortens the TOML parser's multi-line message.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('|'));
    lines.collect::<Vec<_>>().join("; ")
}
