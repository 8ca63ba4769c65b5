//! Clients and the server over in-memory connections, in simulated time: messages, their order, and the ends of
//! conversations. Only CPU-bound tasks take real time, and while one runs simulated time is paused.

mod chains;
mod client;
mod ends;
mod order;
