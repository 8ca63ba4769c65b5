//! Benchmarks of the stores: `cargo bench -p benches`. `cargo test -p benches --benches` runs each once, with little data.
