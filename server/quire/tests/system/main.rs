//! System tests of the server, its console and its client, run as separate processes like operators and shoppers do.
//! One test binary, because each one links the whole server.

#[path = "../common/mod.rs"]
mod common;

mod admin;
mod admin_program;
mod backup;
mod bad_calls;
mod bad_starts;
mod browsers;
mod busy_ports;
mod calls;
mod certificates;
mod client;
mod configuration;
mod console;
mod descriptors;
mod durability;
mod fairness;
mod frozen;
mod full_disk;
mod health;
mod http;
mod idle;
mod import;
mod kv;
mod kv_client;
mod kv_crashes;
mod limits;
mod lost_pages;
mod malice;
mod manager;
mod operate;
mod outcomes;
mod probe;
mod receipts;
mod records;
mod reservations;
mod room;
mod rpcgame;
mod search;
mod settings;
mod shutdown;
mod storefront;
mod tasks;
mod terminal;
mod tokens;
mod two_servers;
mod upgrades;
mod verify;
