//! The services as the room sees them, and its sessions, forms and streams.

use std::{pin::Pin, sync::Arc};

use askama::Template;
use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Redirect, Response},
};
use bookstore::Bookstore;
use hosting::{SettingsInForce, access::Authenticator};
use kv::KeyValue;
use operate::Operate;
use records::Records;
use rpcgame::Games;

use super::{
    clicks::Backups,
    live::RoomLive,
    operator::Operator,
    outcome::{Begun, Done, Outcomes, wait},
    session::{Sessions, secret},
    views::{ForgedPage, Frame, Link, SorryPage},
    waiting::Waiting,
};
use crate::{
    assets::Assets,
    request::query,
    visit::{Visit, rendered, unmade},
};

/// Handles of the services; those that are off are `None`.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    pub(crate) store: Bookstore,
    pub(crate) kv: Option<KeyValue>,
    pub(crate) records: Option<Records>,
    pub(crate) games: Option<Games>,
    pub(crate) tasks: Option<tasks::Metrics>,
    pub(crate) settings: SettingsInForce,
    pub(crate) operate: Operate,
}

/// The room; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Room(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    services: Services,
    auth: Authenticator,
    is_tls: bool,
    /// Name of the session's cookie, which has the port, because browsers send cookies to every port of a host.
    cookie: String,
    /// The secret of forms where no credential is asked for.
    form_secret: Arc<str>,
    sessions: Sessions,
    outcomes: Outcomes,
    waiting: Waiting,
    backups: Backups,
    live: RoomLive,
}

/// An action that a form asks for.
pub(crate) type Work = Pin<Box<dyn Future<Output = Done> + Send>>;

impl Room {
    pub(crate) fn new(services: Services, auth: Authenticator, is_tls: bool, port: u16) -> Self {
        let live = RoomLive::new(services.store.clone(), services.operate.clone());
        Self(Arc::new(Inner {
            live,
            services,
            auth,
            is_tls,
            cookie: format!("quire-room-{port}"),
            form_secret: secret().into(),
            sessions: Sessions::default(),
            outcomes: Outcomes::default(),
            waiting: Waiting::default(),
            backups: Backups::default(),
        }))
    }

    pub(crate) fn services(&self) -> &Services {
        &self.0.services
    }

    /// Files that wait for their confirmation.
    pub(crate) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }

    /// The form for a backup that was sent last.
    pub(crate) fn backups(&self) -> &Backups {
        &self.0.backups
    }

    /// The streams.
    pub(crate) fn live(&self) -> &RoomLive {
        &self.0.live
    }

    pub(crate) fn store(&self) -> &Bookstore {
        &self.0.services.store
    }

    pub(crate) fn auth(&self) -> &Authenticator {
        &self.0.auth
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.is_tls
    }

    pub(crate) fn cookie(&self) -> &str {
        &self.0.cookie
    }

    pub(crate) fn form_secret(&self) -> &Arc<str> {
        &self.0.form_secret
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    /// The parts of every page; `here` is the path of its entry in the navigation.
    pub(crate) fn frame(&self, visit: &Visit, operator: &Operator, here: &str) -> Frame {
        let Services { store, kv, records, games, tasks, .. } = self.services();
        let links = [
            ("/admin", "Overview", true),
            ("/admin/catalogue", "Catalogue", true),
            ("/admin/log", "Log", true),
            ("/admin/sales", "Sales", true),
            ("/admin/keys", "Keys", kv.is_some()),
            ("/admin/records", "Records", records.is_some()),
            ("/admin/work", "Games and tasks", games.is_some() || tasks.is_some()),
            ("/admin/settings", "Settings", true),
            ("/admin/backups", "Backups", true),
        ];
        let shown = links.into_iter().filter(|(.., is_there)| *is_there);
        Frame {
            assets: Assets::get(),
            version: env!("CARGO_PKG_VERSION"),
            links: shown.map(|(path, label, _)| Link { path, label, is_here: path == here }).collect(),
            name: operator.name().map(str::to_owned),
            secret: Arc::clone(operator.form_secret()),
            outcome: query(&visit.uri, "done").and_then(|key| self.0.outcomes.get(&key)),
            trouble: store.trouble(),
        }
    }

    /// The page for what cannot be shown.
    pub(crate) fn sorry(
        &self,
        visit: &Visit,
        operator: &Operator,
        status: StatusCode,
        title: &str,
        text: String,
    ) -> Response {
        let frame = self.frame(visit, operator, "");
        respond(status, &SorryPage { frame, title: title.to_owned(), text })
    }

    /// Does what a form asks for, once for each form, even if the browser goes away meanwhile; then leads to `back`, which
    /// shows the result. `action` is the line of the server's log.
    pub(crate) async fn act(
        &self,
        visit: &Visit,
        operator: &Operator,
        key: &str,
        (action, back): (String, &str),
        work: Work,
    ) -> Response {
        let result = match self.0.outcomes.begin(key) {
            Begun::First(sender, result) => {
                operator.log(visit, &action);
                tokio::spawn(async move { sender.send_replace(Some(work.await)) });
                result
            }
            Begun::Again(result) => result,
            Begun::Crowded => {
                let text = "Too many actions run. Nothing was done; send the form again after a pause.".to_owned();
                return self.sorry(visit, operator, StatusCode::SERVICE_UNAVAILABLE, "This has to wait", text);
            }
        };
        wait(result).await;
        let joint = if back.contains('?') { '&' } else { '?' };
        Redirect::to(&format!("{back}{joint}done={key}")).into_response()
    }
}

/// An answer with a page. Never compressed, because a page holds the secret of forms beside text of others
/// ("BREACH"), and never kept by the browser.
pub(crate) fn respond(status: StatusCode, page: &impl Template) -> Response {
    let Some(text) = rendered(page) else { return unmade() };
    let mut response = (status, Body::from(text)).into_response();
    let head = response.headers_mut();
    head.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    head.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The page for a request that another site's page made, or for a form without the session's secret.
pub(crate) fn forged() -> Response {
    respond(StatusCode::FORBIDDEN, &ForgedPage { assets: Assets::get() })
}
