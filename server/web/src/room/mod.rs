//! The operator's room, at `/admin` and below: pages over the services' handles, for operators alone.
//!
//! [`door`] admits operators and checks forms; [`state`] has the handles, sessions and forms; the other modules turn
//! requests into calls of a service, and answers into [`views`].

mod backups;
mod catalogue;
mod door;
mod entries;
mod export;
mod figures;
mod import;
mod keys;
mod live;
mod log;
mod moment;
mod operator;
mod outcome;
mod overview;
mod parts;
mod query;
mod routes;
mod sales;
mod session;
mod settings;
mod state;
mod upload;
mod views;
mod waiting;
mod work;

pub use live::STREAMS_MAX;
pub(crate) use routes::router;
pub(crate) use state::{Room, Services};
