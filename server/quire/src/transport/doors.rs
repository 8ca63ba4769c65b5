//! Authenticates callers over HTTP: each method and path requires the scope of its service.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use axum::{
    Router,
    extract::Request as HttpRequest,
    http::{StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse as _, Response},
};
use hosting::{
    Client, Declared, UNBOUNDED,
    access::{AuthPolicy, Authenticator, Denied, Scope},
};
use quire_rpc::{Peer, Request, Status, Until, server::Builder};

use super::logged::Logged;

/// Paths that need no credential.
const OPEN: [&str; 2] = ["/healthz", super::health::CHECK];

/// The scopes of gRPC services and of paths.
#[derive(Clone, Debug, Default)]
pub(super) struct Scopes {
    services: HashMap<String, Scope>,
    pages: HashMap<&'static str, Scope>,
}

impl Scopes {
    /// Adds the gRPC services `names` of a service with this declaration.
    pub(super) fn add_services(&mut self, names: &[String], declared: &Declared) {
        for name in names {
            let scope = if declared.operators.contains(&name.as_str()) { Scope::Admin } else { declared.scope };
            self.services.insert(name.clone(), scope);
        }
    }

    pub(super) fn add_pages(&mut self, paths: impl IntoIterator<Item = &'static str>, scope: Scope) {
        self.pages.extend(paths.into_iter().map(|path| (path, scope)));
    }

    /// Scope that a caller of this path needs: that of the path itself, or of the longest beginning that a page has.
    fn of_page(&self, path: &str) -> Option<Scope> {
        let begins = |page: &str| page.split_once("{*").is_some_and(|(begin, _)| path.starts_with(begin));
        let below = || self.pages.iter().filter(|(page, _)| begins(page)).max_by_key(|(page, _)| page.len());
        self.pages.get(path).copied().or_else(|| below().map(|(_, scope)| *scope))
    }
}

/// The scopes of one port, and the authenticator of each.
#[derive(Debug)]
struct Port {
    scopes: Scopes,
    authenticators: Vec<Authenticator>,
}

impl Port {
    fn new(scopes: Scopes, auth: &AuthPolicy, address: SocketAddr) -> Arc<Self> {
        let scopes_and_none = Scope::ALL.map(Some).into_iter().chain([None]);
        let authenticators = scopes_and_none.map(|scope| auth.authenticator(scope, address)).collect();
        Arc::new(Self { scopes, authenticators })
    }

    fn authenticator(&self, scope: Option<Scope>) -> Option<&Authenticator> {
        self.authenticators.iter().find(|authenticator| authenticator.scope() == scope)
    }

    fn is_required(&self) -> bool {
        self.authenticators.iter().any(Authenticator::is_required)
    }

    /// Scope that a caller of this method needs.
    fn of_method(&self, method: &str) -> Option<Scope> {
        let service = method.trim_start_matches('/').split('/').next().unwrap_or_default();
        self.scopes.services.get(service).copied()
    }
}

/// Has a server ask for credentials where it needs any, and log what operators do.
pub(super) fn guard(builder: Builder, scopes: &Scopes, auth: &AuthPolicy, address: SocketAddr) -> Builder {
    let port = Port::new(scopes.clone(), auth, address);
    let builder = if port.is_required() { builder.ask_callers() } else { builder };
    let shown = Arc::clone(&port);
    let is_looked_at = move |method: &str| shown.is_required() || shown.of_method(method) == Some(Scope::Admin);
    builder.interceptor_for(is_looked_at, move |method: &str, request: &mut Request<()>| check(&port, method, request))
}

fn check(port: &Port, method: &str, request: &mut Request<()>) -> Result<(), Status> {
    if OPEN.contains(&method) || method == super::health::WATCH {
        return Ok(());
    }
    let Some(authenticator) = port.authenticator(port.of_method(method)) else { return Ok(()) };
    let sent = request.metadata().get("authorization").and_then(|value| bearer(value.as_bytes()));
    let nowhere = request.peer().is_none().then(Peer::default);
    let Some(peer) = request.peer().or(nowhere.as_ref()) else { return Ok(()) };
    match authenticator.admit(sent, peer) {
        Ok(admitted) => {
            if authenticator.scope() == Some(Scope::Admin) {
                let id = request.metadata().get("x-request-id");
                log_operator_call(method, admitted.as_ref().map(|admitted| &**admitted.name()), peer, id);
            }
            if let Some(admitted) = admitted {
                peer.set_known();
                request.extensions_mut().insert(Client::Credential(Arc::clone(admitted.name())));
                request.extensions_mut().insert(Until::new(move || {
                    let revoked = admitted.revoked();
                    async move {
                        revoked.await;
                        Status::unauthenticated("the credential was revoked")
                    }
                }));
            }
            Ok(())
        }
        Err(denied) => {
            let text = authenticator.error_text(&denied);
            Err(match denied {
                Denied::Scope(_) => Status::permission_denied(text),
                Denied::Guessing => Status::resource_exhausted(text),
                Denied::Missing | Denied::Wrong | Denied::Off => Status::unauthenticated(text),
            })
        }
    }
}

/// Logs an operator's call with its caller.
fn log_operator_call(method: &str, name: Option<&str>, peer: &Peer, id: Option<&str>) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let request = id.map_or_else(|| NEXT.fetch_add(1, Relaxed).to_string(), |id| id.escape_debug().take(64).collect());
    let (credential, peer) = (name.unwrap_or("none needed"), peer.address.map(tracing::field::display));
    tracing::info!(target: UNBOUNDED, method, credential, peer, request, "an operator's action");
}

/// Makes pages require credentials, if any are needed.
pub(super) fn guard_pages(router: Router, scopes: &Scopes, auth: &AuthPolicy, address: SocketAddr) -> Router {
    let port = Port::new(scopes.clone(), auth, address);
    if !port.is_required() {
        return router;
    }
    router.layer(middleware::from_fn(move |request: HttpRequest, next: Next| {
        let port = Arc::clone(&port);
        async move {
            match check_page(&port, &request) {
                Ok(()) => next.run(request).await,
                Err(refusal) => *refusal,
            }
        }
    }))
}

fn check_page(port: &Port, request: &HttpRequest) -> Result<(), Box<Response>> {
    let path = request.uri().path();
    if OPEN.contains(&path) {
        return Ok(());
    }
    let Some(authenticator) = port.authenticator(port.scopes.of_page(path)) else { return Ok(()) };
    let sent = request.headers().get(header::AUTHORIZATION).and_then(|value| bearer(value.as_bytes()));
    let nowhere = Arc::default();
    let peer: &Arc<Peer> = request.extensions().get().unwrap_or(&nowhere);
    let denied = match authenticator.admit(sent, peer) {
        Ok(admitted) => {
            if let Some(admitted) = admitted {
                peer.set_known();
                if let Some(logged) = request.extensions().get::<Arc<Logged>>() {
                    logged.set_credential(admitted.name());
                }
            }
            return Ok(());
        }
        Err(denied) => denied,
    };
    let text = authenticator.error_text(&denied) + "\n";
    Err(Box::new(match denied {
        Denied::Scope(_) => (StatusCode::FORBIDDEN, text).into_response(),
        Denied::Guessing => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "60")], text).into_response(),
        Denied::Missing | Denied::Wrong | Denied::Off => {
            (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response()
        }
    }))
}

/// The token of an `authorization` field.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

#[cfg(test)]
mod tests {
    use hosting::access::Scope;

    use super::Scopes;

    #[test]
    fn a_path_has_the_scope_of_the_longest_page_that_it_begins_with() {
        let mut scopes = Scopes::default();
        scopes.add_pages(["/log/checkpoint", "/log/tile/{*tile}", "/log/tile/entries/{*tile}"], Scope::Shop);
        scopes.add_pages(["/log/tile/entries/{*tile}"], Scope::Admin);
        for (path, scope) in [
            ("/log/checkpoint", Some(Scope::Shop)),
            ("/log/checkpoint/", None),
            ("/log/tile/0/000", Some(Scope::Shop)),
            ("/log/tile/entries/000", Some(Scope::Admin)),
            ("/log/tile/entries/x001/000.p/3", Some(Scope::Admin)),
            ("/log/tile", None),
        ] {
            assert_eq!(scopes.of_page(path), scope, "{path}");
        }
    }
}
