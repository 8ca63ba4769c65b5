//! Clients and the server over connections in memory, in simulated time: what is said, in which order, and what ends
//! a conversation. Only CPU-bound tasks take real time, and while one runs the simulated time stands.

mod chains;
mod client;
mod ends;
mod order;
