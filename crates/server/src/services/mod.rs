//! What is served beside the bookstore, a file for each service: its wiring and nothing else.

pub(crate) mod rpcgame;
