//! Checks that code quoted in the engine's pages is code that runs.

use std::fs;
use std::path::Path;

/// Code blocks of a page in these languages, as lines without indentation.
fn blocks(page: &str, language: &str) -> Vec<Vec<String>> {
    let opening = format!("```{language}");
    let mut found = Vec::new();
    let mut lines = page.lines();
    while lines.by_ref().any(|line| line == opening) {
        found.push(lines.by_ref().take_while(|line| *line != "```").map(|line| line.trim().to_owned()).collect());
    }
    found
}

#[test]
fn every_block_of_the_pages_is_in_an_example() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let examples: Vec<Vec<String>> = fs::read_dir(root.join("../rpc/examples"))
        .unwrap()
        .map(|file| fs::read_to_string(file.unwrap().path()).unwrap())
        .map(|text| text.lines().map(|line| line.trim().to_owned()).collect())
        .collect();
    for (page, language, at_least) in [("engine.md", "rust", 10), ("engine.md", "js", 1), ("migration.md", "rust", 2)] {
        let blocks = blocks(&fs::read_to_string(root.join("../../docs").join(page)).unwrap(), language);
        assert!(blocks.len() >= at_least, "{page} has {} blocks", blocks.len());
        for block in blocks {
            let is_quoted =
                examples.iter().any(|example| example.windows(block.len()).any(|lines| *lines == block[..]));
            assert!(is_quoted, "{page}: no example has\n{}", block.join("\n"));
        }
    }
}
