//! Replaces [`postgres`](super) in a build without the feature `postgres`: every use of a shared database is refused.

use std::{convert::Infallible, sync::Arc};

use super::{
    interface::Store,
    sums::{Count, Sums},
};
use crate::{
    catalogue::Shelf,
    domain::{Entry, NewBook},
    metrics::Metrics,
    settings::Settings,
};

/// This build has no driver for the configured database.
#[derive(Debug, thiserror::Error)]
#[error(
    "this build has no PostgreSQL: `make run` leaves it out to start sooner. \
     Build with `cargo build --release -p server`"
)]
pub struct DatabaseError;

pub(crate) fn open_shared(
    _: &str,
    _: Settings,
    _: Arc<Shelf>,
    _: Arc<Metrics>,
) -> Result<Arc<dyn Store>, DatabaseError> {
    Err(DatabaseError)
}

/// A command's connection; never exists.
pub(crate) struct Importer(Infallible);

impl Importer {
    pub(crate) fn begin(_: &str, _: &Settings, _: bool) -> Result<Self, DatabaseError> {
        Err(DatabaseError)
    }

    pub(crate) fn add(&mut self, _: &[NewBook]) -> Result<Vec<bool>, String> {
        match self.0 {}
    }

    pub(crate) fn commit(self) -> Result<(), String> {
        match self.0 {}
    }

    pub(crate) fn each_book<E>(&self, _: impl FnOnce(Count), _: impl FnMut(NewBook) -> Result<(), E>) -> Result<(), E> {
        match self.0 {}
    }
}

/// A transaction that fills the tables; never exists.
pub(super) struct Copier(Infallible);

/// Writer of rows into a table; never exists.
pub(super) struct Rows(Infallible);

impl Copier {
    pub(super) fn begin(_: &str, _: &Settings) -> Result<Self, DatabaseError> {
        Err(DatabaseError)
    }

    pub(super) fn look(_: &str, _: &Settings) -> Result<Option<Sums>, DatabaseError> {
        Err(DatabaseError)
    }

    pub(super) fn sums(&self) -> Result<Sums, String> {
        match self.0 {}
    }

    pub(super) fn books(&self) -> Result<Rows, String> {
        match self.0 {}
    }

    pub(super) fn entries(&self) -> Result<Rows, String> {
        match self.0 {}
    }

    pub(super) fn hold(&self, _: &[i64]) -> Result<i64, String> {
        match self.0 {}
    }

    pub(super) fn commit(self, _: i64) -> Result<(), String> {
        match self.0 {}
    }
}

impl Rows {
    pub(super) fn add_book(&mut self, _: &NewBook) -> Result<(), String> {
        match self.0 {}
    }

    pub(super) fn add_entry(&mut self, _: &Entry) -> Result<(), String> {
        match self.0 {}
    }

    pub(super) fn finish(self) -> Result<(), String> {
        match self.0 {}
    }
}
