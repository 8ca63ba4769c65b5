//! The configuration file: values by name, and errors for unknown names.

use std::{collections::BTreeSet, path::Path};

use anyhow::{Context as _, bail};
use hosting::{
    Given, Layers,
    names::{did_you_mean, nearest},
};
use toml::{Table, Value};

/// The default file.
const DEFAULT_FILE: &str = "quire.toml";

/// The values of the file, if there is one.
pub(super) fn read(named: Option<&Path>, known: &[&str]) -> anyhow::Result<Layers> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => return Ok(Layers::new()),
        read => read.with_context(|| format!("cannot read the configuration {}", path.display()))?,
    };
    let source = path.display().to_string();
    let table: Table = match text.parse() {
        Ok(table) => table,
        Err(error) => bail!("{source} cannot be read: {}", one_line(&error.to_string())),
    };
    let mut layers = Layers::new();
    for (section, values) in table {
        let has_section = known.iter().any(|key| key.split_once('.').is_some_and(|(name, _)| name == section));
        match values {
            Value::Table(values) if has_section => {
                for (name, value) in values {
                    let key = format!("{section}.{name}");
                    if !known.contains(&&*key) {
                        bail!("{} [{section}] has {}", unknown(&key, Some(&source), known), names(&section, known));
                    }
                    layers.insert(key, given(&value, &source));
                }
            }
            other if has_section => {
                let value = given(&other, &source).text;
                bail!("{section} is '{value}', from {source}; it must be a section, as [{section}]");
            }
            _ => bail!("{}", no_section(&section, &source, known)),
        }
    }
    Ok(layers)
}

/// Converts a TOML value for a setting.
fn given(value: &Value, source: &str) -> Given {
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

/// Error text for the unknown setting `key`, with the likely intended one.
pub(super) fn unknown(key: &str, source: Option<&str>, known: &[&str]) -> String {
    let source = source.map_or(String::new(), |source| format!(", from {source}"));
    let meant = did_you_mean(&nearest(key, '.', known.iter().copied()));
    let right = meant.unwrap_or_else(|| "`quire serve --print-config` shows all".to_owned());
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
