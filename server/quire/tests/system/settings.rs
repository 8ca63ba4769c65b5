//! Compares the settings in the docs with the output of `--print-config`.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{process, store::folder};

/// Every setting, `section.key`, with its default.
fn defaults() -> BTreeMap<String, String> {
    let folder = folder();
    let printed = process::run(folder.path(), &["serve", "--print-config"], "");
    assert!(printed.status.success(), "{printed:?}");
    let (mut section, mut settings) = (String::new(), BTreeMap::new());
    for line in String::from_utf8_lossy(&printed.stdout).lines().filter(|line| !line.is_empty()) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            name.clone_into(&mut section);
        } else if let Some((name, _)) = line.strip_prefix("# ").and_then(|line| line.split_once(" is not set")) {
            settings.insert(format!("{section}.{name}"), "none".to_owned());
        } else {
            let (name, value) = line.split_once(" = ").unwrap_or_else(|| panic!("{line}"));
            let value = value.rsplit_once(" # ").expect("a source").0.trim().trim_matches('"');
            settings.insert(format!("{section}.{name}"), value.to_owned());
        }
    }
    settings
}

/// The rows of a page's tables: names and defaults, also where several share a row.
fn rows(page: &str) -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut rows = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("| ")) {
        let mut cells = line.split(" | ").map(|cell| cell.replace(['`', '"'], "").trim().to_owned());
        let (Some(names), Some(values)) = (cells.next(), cells.next()) else { continue };
        let (names, values): (Vec<_>, Vec<_>) = (names.split(", ").collect(), values.split(", ").collect());
        for (place, name) in names.iter().enumerate() {
            let value = if values.len() == names.len() { values[place] } else { values[0] };
            rows.push(((*name).to_owned(), value.to_owned()));
        }
    }
    rows
}

/// Normalizes a value: a size in bytes, a number without separators, other text unchanged.
fn plain(value: &str) -> String {
    let bare = value.replace(',', "");
    let (number, unit) = bare.split_once(' ').unwrap_or((&bare, ""));
    let scale = match unit {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return value.to_owned(),
    };
    number.parse::<u64>().map_or(value.to_owned(), |number| (number * scale).to_string())
}

#[test]
fn the_docs_name_every_setting_and_its_default() {
    let defaults = defaults();
    let rows = rows("operating.md");
    for (key, default) in &defaults {
        let said: Vec<_> = rows.iter().filter(|(name, _)| name == key).collect();
        assert_eq!(said.len(), 1, "docs/operating.md names {key} (default {default}) {} times", said.len());
        assert_eq!(plain(&said[0].1), plain(default), "the default of {key} in docs/operating.md");
    }
    for (name, _) in &rows {
        let section = name.split_once('.').map_or("", |(section, _)| section);
        let is_setting = defaults.keys().any(|key| key.starts_with(&format!("{section}.")));
        assert!(!is_setting || defaults.contains_key(name), "docs/operating.md names {name}, which is no setting");
    }
}

#[test]
fn the_page_of_each_service_tells_the_same_defaults() {
    let defaults = defaults();
    for section in ["kv", "tasks", "records", "rpcgame"] {
        let page = format!("{section}.md");
        let rows = rows(&page);
        for (key, default) in defaults.iter().filter(|(key, _)| key.starts_with(&format!("{section}."))) {
            let bare = &key[section.len() + 1..];
            let said = rows.iter().find(|(name, _)| name == key || name == bare);
            let (_, said) = said.unwrap_or_else(|| panic!("docs/{page} does not name {key} (default {default})"));
            assert_eq!(plain(said), plain(default), "the default of {key} in docs/{page}");
        }
    }
}
