//! The operator of a request.

use std::sync::Arc;

use axum::{
    extract::FromRequestParts,
    http::{StatusCode, request::Parts},
    response::{IntoResponse as _, Response},
};
use bookstore::domain::Actor;
use hosting::{Client, access::Admitted};

use crate::room::session::Session;
use crate::visit::Visit;

/// The operator of a request.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    /// `None` where no credential is asked for.
    admitted: Option<Admitted>,
    /// The cookie of its session, which the browser may not have yet.
    cookie: Option<Arc<str>>,
    form_secret: Arc<str>,
}

impl Operator {
    /// An operator of a server that asks for no credential.
    pub(crate) fn unnamed(form_secret: &Arc<str>) -> Self {
        Self { admitted: None, cookie: None, form_secret: Arc::clone(form_secret) }
    }

    /// The name of the credential.
    pub(crate) fn name(&self) -> Option<&str> {
        self.admitted.as_ref().map(|admitted| &**admitted.name())
    }

    /// The cookie of the session; `None` where no credential is asked for.
    pub(crate) fn cookie(&self) -> Option<&Arc<str>> {
        self.cookie.as_ref()
    }

    /// The operator in the log of the store.
    pub(crate) fn actor(&self) -> Actor {
        self.name().map_or_else(Actor::unnamed, Actor::named)
    }

    /// The client that shares of limits are counted by.
    pub(crate) fn client(&self, visit: &Visit) -> Client {
        match &self.admitted {
            Some(admitted) => Client::Credential(Arc::clone(admitted.name())),
            None => Client::at(visit.peer.address.map(|address| address.ip())),
        }
    }

    /// The secret that the operator's forms carry.
    pub(crate) fn form_secret(&self) -> &Arc<str> {
        &self.form_secret
    }

    /// Logs an action, as calls of operators over gRPC are logged.
    pub(crate) fn log(&self, visit: &Visit, action: &str) {
        let (credential, peer) =
            (self.name().unwrap_or("none needed"), visit.peer.address.map(tracing::field::display));
        tracing::info!(target: hosting::UNBOUNDED, method = action, credential, peer, "an operator's action");
    }
}

impl From<Session> for Operator {
    fn from(session: Session) -> Self {
        Self { admitted: Some(session.admitted), cookie: Some(session.cookie), form_secret: session.form_secret }
    }
}

impl<S: Sync> FromRequestParts<S> for Operator {
    type Rejection = Response;

    /// The operator of an admitted request.
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Response> {
        parts.extensions.get().cloned().ok_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }
}
