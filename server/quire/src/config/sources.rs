//! Sources of settings by rising precedence: file, variables, flags.

use anyhow::{Context as _, bail};
use hosting::{
    Given, Layers,
    names::{did_you_mean, nearest},
};

use super::file::{self, unknown};
use crate::cli::{ConfigArgs, Flag};

/// The variable that names the file.
const FILE_VARIABLE: &str = "QUIRE_CONFIG";

/// All given values.
pub(super) struct Sources {
    pub layers: Layers,
    /// One for each given value without effect.
    pub warnings: Vec<String>,
}

/// Reads file, variables and flags. `known` are the names of all settings.
pub(super) fn read(args: &ConfigArgs, flags: Vec<Flag>, known: &[&str]) -> anyhow::Result<Sources> {
    let mut layers = file::read(args.config.as_deref(), known)?;
    let mut warnings = Vec::new();
    for (name, text) in variables() {
        let Some(key) = known.iter().find(|key| variable(key).eq_ignore_ascii_case(&name)) else {
            warnings.push(ignored(&name, known));
            continue;
        };
        let text = text.into_string().ok().with_context(|| format!("{name} is not UTF-8; it must be text"))?;
        layers.insert((*key).to_owned(), given(&text, variable(key)));
    }
    for text in &args.set {
        let Some((key, value)) = text.split_once('=').filter(|(key, _)| key.contains('.')) else {
            bail!("--set {text}: it must be SECTION.KEY=VALUE, as ledger.commit=each");
        };
        let key = key.trim();
        if !known.contains(&key) {
            bail!("--set {text}: {}", unknown(key, None, known));
        }
        layers.insert(key.to_owned(), given(value.trim(), "--set".to_owned()));
    }
    let data = args.data.as_ref().map(|data| ("--data", "server.data", data.to_string_lossy().into_owned()));
    for (flag, key, text) in flags.into_iter().chain(data) {
        layers.insert(key.to_owned(), given(&text, flag.to_owned()));
    }
    Ok(Sources { layers, warnings })
}

/// Value of a variable or flag, which may be quoted as in the file.
fn given(text: &str, source: String) -> Given {
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Given { text: bare.to_owned(), is_text: true, source }
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
