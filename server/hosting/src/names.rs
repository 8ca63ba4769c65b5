//! Suggestions for unknown names.

/// The names that end in the same word, else the one that differs in the fewest letters.
pub fn nearest<'a>(name: &str, separator: char, known: impl Iterator<Item = &'a str> + Clone) -> Vec<&'a str> {
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

/// A question with the names; `None` without any.
pub fn did_you_mean(names: &[impl AsRef<str>]) -> Option<String> {
    (!names.is_empty()).then(|| format!("did you mean {}?", one_of(names)))
}

/// `a, b or c`.
pub fn one_of(names: &[impl AsRef<str>]) -> String {
    let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
    match &*names {
        [first @ .., last] if !first.is_empty() => format!("{} or {last}", first.join(", ")),
        _ => names.concat(),
    }
}
