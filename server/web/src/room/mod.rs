//! The operator's room, at `/admin` and below: pages over the services' handles, for operators alone.
//!
//! [`admission`] admits operators and checks forms; [`state`] has the handles, sessions and forms; the other modules turn
//! requests into calls of a service, and answers into [`views`].

mod admission;
mod backups;
mod catalogue;
mod clicks;
mod entries;
mod keys;
mod log;
mod overview;
mod query;
mod routes;
mod sales;
mod settings;
mod state;
mod views;
mod work;

use self::{
    admission::{door, operator, outcome, session},
    catalogue::{export, import, upload, waiting},
    overview::{figures, live, moment, parts},
};

pub use live::STREAMS_MAX;
pub(crate) use routes::router;
pub(crate) use state::{Room, Services};
