//! Where settings come from, from weak to strong: defaults, a file, variables, flags. Must not know what any one means.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, bail};
use figment::{
    Figment, Metadata, Provider, Source,
    providers::{Format as _, Serialized, Toml},
    value::{Dict, Map, Value},
};
use serde_json::Value as Json;

use super::raw::Raw;
use crate::cli::ConfigArgs;

/// The file read when none is named.
const DEFAULT_FILE: &str = "quire.toml";

/// The variable that names the file.
const FILE_VARIABLE: &str = "QUIRE_CONFIG";

/// A setting given by a flag: the flag, the setting, the value.
pub(crate) type Flag = (&'static str, &'static str, String);

/// All that was given.
pub(super) struct Sources {
    pub figment: Figment,
    /// What was given and has no effect, a line each.
    pub warnings: Vec<String>,
}

/// Reads the file and the variables, and puts the flags over them.
pub(super) fn read(args: &ConfigArgs, flags: Vec<Flag>) -> anyhow::Result<Sources> {
    let known = known()?;
    let mut figment = Figment::from(Serialized::defaults(Raw::default()));
    if let Some(file) = file(args.config.as_deref())? {
        figment = figment.merge(Toml::file_exact(file));
    }
    let mut warnings = Vec::new();
    for (name, text) in variables() {
        let named = known.iter().find(|(key, _)| variable(key).eq_ignore_ascii_case(&name));
        let Some((key, default)) = named else {
            warnings.push(ignored(&name, &known));
            continue;
        };
        let text = text.into_string().ok().with_context(|| format!("{name} is not UTF-8; it must be text"))?;
        figment = figment.merge(Given { source: variable(key), key, value: read_as(default, &text) });
    }
    for text in &args.set {
        let Some((key, value)) = text.split_once('=').filter(|(key, _)| key.contains('.')) else {
            bail!("--set {text}: it must be SECTION.KEY=VALUE, as ledger.commit=each");
        };
        let key = key.trim();
        let Some(default) = known.get(key) else {
            bail!("--set {text}: {}", unknown(key, None, &known));
        };
        figment = figment.merge(Given { source: "--set".to_owned(), key, value: read_as(default, value.trim()) });
    }
    let data = args.data.as_ref().map(|data| ("--data", "server.data", data.to_string_lossy().into_owned()));
    for (flag, key, text) in flags.into_iter().chain(data) {
        let default = known.get(key).context("a flag for a setting that does not exist")?;
        figment = figment.merge(Given { source: flag.to_owned(), key, value: read_as(default, &text) });
    }
    Ok(Sources { figment, warnings })
}

/// The file to read, if there is one.
fn file(named: Option<&Path>) -> anyhow::Result<Option<&Path>> {
    let path = named.unwrap_or(Path::new(DEFAULT_FILE));
    // Read here, too, because figment does not tell a file that is absent from one that cannot be read.
    match std::fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && named.is_none() => Ok(None),
        read => {
            read.with_context(|| format!("cannot read the configuration {}", path.display()))?;
            Ok(Some(path))
        }
    }
}

fn variables() -> impl Iterator<Item = (String, std::ffi::OsString)> {
    let named = std::env::vars_os().filter_map(|(name, text)| Some((name.into_string().ok()?, text)));
    named.filter(|(name, _)| name.to_ascii_uppercase().starts_with("QUIRE_") && name != FILE_VARIABLE)
}

/// `QUIRE_LEDGER_COMMIT` is `ledger.commit`.
fn variable(key: &str) -> String {
    format!("QUIRE_{}", key.replace('.', "_").to_uppercase())
}

/// Every setting, `SECTION.KEY`, with its default.
pub(super) fn known() -> anyhow::Result<BTreeMap<String, Json>> {
    let sections: BTreeMap<String, BTreeMap<String, Json>> =
        serde_json::from_value(serde_json::to_value(Raw::default())?)?;
    let keys = |(section, keys): (String, BTreeMap<String, Json>)| {
        keys.into_iter().map(move |(key, default)| (format!("{section}.{key}"), default))
    };
    Ok(sections.into_iter().flat_map(keys).collect())
}

/// Text stays text unless the setting is a number or a switch: a token may be all digits.
fn read_as(default: &Json, text: &str) -> Value {
    match text.parse() {
        // Quotes around it, as in the file, are taken off.
        Ok(value @ Value::String(..)) => value,
        Ok(value) if default.is_boolean() || default.is_number() => value,
        _ => text.into(),
    }
}

/// One value given by a variable or a flag; a provider of its own so that its source can be named.
struct Given<'a> {
    source: String,
    key: &'a str,
    value: Value,
}

impl Provider for Given<'_> {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> Result<Map<figment::Profile, Dict>, figment::Error> {
        Serialized::default(self.key, &self.value).data()
    }
}

/// What the source of a default is called.
pub(super) const DEFAULT: &str = "default";

/// What a source is called.
pub(super) fn name(metadata: &Metadata) -> String {
    match &metadata.source {
        Some(Source::File(path)) => path.display().to_string(),
        _ if ["--", "QUIRE_"].iter().any(|start| metadata.name.starts_with(start)) => metadata.name.to_string(),
        _ => DEFAULT.to_owned(),
    }
}

/// Where the value of `key` came from.
pub(super) fn source_of(figment: &Figment, key: &str) -> String {
    figment.find_metadata(key).map_or_else(|| DEFAULT.to_owned(), name)
}

/// Says that `key` is no setting, and which one it may have been meant to be.
pub(super) fn unknown(key: &str, source: Option<&str>, known: &BTreeMap<String, Json>) -> String {
    let source = source.map_or(String::new(), |source| format!(", from {source}"));
    let meant = did_you_mean(&nearest(key, '.', known.keys().map(String::as_str)));
    let right = meant.unwrap_or_else(|| "`quire serve --print-config` shows all".to_owned());
    format!("there is no setting {key}{source}; {right}")
}

/// Variables of that form may belong to others: Kubernetes sets some for a service named quire.
fn ignored(name: &str, known: &BTreeMap<String, Json>) -> String {
    // Compared without what all begin with.
    let names: Vec<String> = known.keys().map(|key| variable(key).replacen("QUIRE_", "", 1)).collect();
    let bare = name.to_ascii_uppercase().replacen("QUIRE_", "", 1);
    let meant = nearest(&bare, '_', names.iter().map(String::as_str));
    let meant: Vec<String> = meant.into_iter().map(|meant| format!("QUIRE_{meant}")).collect();
    let right = did_you_mean(&meant).map_or(String::new(), |question| format!("; {question}"));
    format!("the variable {name} is ignored: it names no setting{right}")
}

/// What was most likely meant: the names that end in the same word, else the one that few letters tell apart.
pub(super) fn nearest<'a>(name: &str, separator: char, known: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
    let word = if separator == '.' { name.rsplit('.').next().unwrap_or(name) } else { name };
    let ending = format!("{separator}{word}");
    let same: Vec<&str> = known.clone().filter(|known| known.ends_with(&ending)).collect();
    if !same.is_empty() {
        return same;
    }
    let distances = known.map(|known| (strsim::levenshtein(name, known), known));
    let closest = distances.min().filter(|(distance, _)| *distance <= (name.len() / 3).max(2));
    closest.map(|(_, known)| known).into_iter().collect()
}

/// Nothing for no names.
pub(super) fn did_you_mean(names: &[impl AsRef<str>]) -> Option<String> {
    (!names.is_empty()).then(|| format!("did you mean {}?", one_of(names)))
}

/// `a, b or c`.
pub(super) fn one_of(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match &*names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::{ignored, known, unknown};

    #[test]
    fn an_unknown_name_is_answered_with_the_nearest_one() {
        let known = known().expect("settings");
        for (key, meant) in [
            ("ledger.comit", "did you mean ledger.commit?"),
            ("server.calls_in_flight", "did you mean limits.calls_in_flight?"),
            ("leger.commit", "did you mean ledger.commit?"),
            ("sky.colour", "`quire serve --print-config` shows all"),
        ] {
            assert_eq!(unknown(key, None, &known), format!("there is no setting {key}; {meant}"));
        }
        for (name, meant) in [
            ("QUIRE_LEDGER_COMIT", "; did you mean QUIRE_LEDGER_COMMIT?"),
            ("QUIRE_DATA", "; did you mean QUIRE_SERVER_DATA?"),
            ("QUIRE_PORT", ""),
            ("QUIRE_SERVICE_HOST", ""),
            ("QUIRE_PORT_10086_TCP_ADDR", ""),
        ] {
            assert_eq!(ignored(name, &known), format!("the variable {name} is ignored: it names no setting{meant}"));
        }
    }
}
