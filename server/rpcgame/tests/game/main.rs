//! The game from the clients' point of view: every transport, every refusal, every limit. One test binary, to link only
//! once.

mod drivers;
mod groups;
mod lean_server;
mod lean_session;
mod limits;
mod refusals;
mod strangers;
mod stream;
mod support;
