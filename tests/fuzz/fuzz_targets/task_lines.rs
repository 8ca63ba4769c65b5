//! Any bytes to the task server's line protocol: no panic, and every split of them has the same result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tasks::line::{Line, Lines};

const LINE_BYTES_MAX: usize = 64;

fn run(data: &[u8], cut: usize) -> Vec<Line> {
    let mut lines = Lines::new(LINE_BYTES_MAX);
    let mut found = Vec::new();
    for mut input in data.chunks(cut) {
        while let Some(line) = lines.next(&mut input) {
            found.push(line);
        }
        assert!(input.is_empty());
    }
    found.extend(lines.finish());
    found
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, data)) = data.split_first() else { return };
    assert_eq!(run(data, usize::MAX), run(data, usize::from(first) + 1));
});
