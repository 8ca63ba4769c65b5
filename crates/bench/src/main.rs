//! `quire-bench`.

fn main() {}
