//! The game as clients meet it: every transport, every refusal, every limit. In one test binary, for the linker's sake.

mod drivers;
mod groups;
mod lean_server;
mod lean_session;
mod limits;
mod refusals;
mod strangers;
mod stream;
mod support;
