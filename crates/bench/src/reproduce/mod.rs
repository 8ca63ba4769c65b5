//! Published experiments, repeated: each is a file that starts the servers it needs, loads them in turns, and says
//! what it found beside what was published.

pub mod server;
