//! Suggestions for a misspelt name, the nearest first.

use strsim::levenshtein;

/// Maximum names listed in an error.
const LISTED_MAX: usize = 20;

/// Lists the names for an error, those most similar to `wanted` first.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let wanted = wanted.to_lowercase();
    names.sort_by_cached_key(|name| levenshtein(&name.to_lowercase(), &wanted));
    let more = names.len().saturating_sub(LISTED_MAX);
    let list = names[..names.len() - more].join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_name_comes_first() {
        assert_eq!(listed(["Search", "Hello", "Buy"], "buyy"), "Buy, Hello, Search");
        assert_eq!(listed([], "x"), "nothing");
    }

    #[test]
    fn long_list_is_cut() {
        let names: Vec<String> = (0..30).map(|n| format!("n{n:02}")).collect();
        let list = listed(names.iter().map(String::as_str), "n");
        assert!(list.ends_with(" and 10 more") && list.matches(", ").count() == LISTED_MAX - 1, "{list}");
    }
}
