//! The interface of a service, from opening to closing.

use std::{
    any::{Any, TypeId},
    collections::HashMap,
    future,
    net::SocketAddr,
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use axum::{Router, routing::MethodRouter};
use prometheus_client::registry::Registry;
use quire_net::turned_on;
use quire_rpc::{
    Limits,
    rustls::ServerConfig,
    server::{Builder, ConnectionRegistry, Observer},
};
use serde_json::Value;
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

use crate::{
    Error,
    access::{AuthPolicy, Scope},
    metrics::Refusals,
    ports::{Connections, Sockets},
    settings::{Reader, Refused, Settings},
};

/// A boxed future, which keeps the trait dyn-compatible.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Context for opening a service.
#[derive(Debug)]
pub struct Host<'a> {
    /// The data folder. It may not exist yet.
    pub data: PathBuf,
    /// The main port's address.
    pub address: SocketAddr,
    /// True if the main port serves TLS only.
    pub is_tls: bool,
    /// Access control.
    pub auth: AuthPolicy,
    /// Listeners.
    pub sockets: &'a mut Sockets,
    /// Connection limits of the ports.
    pub connections: Connections,
    /// The longest gRPC message, in either direction.
    pub message_bytes_max: usize,
    /// Counts requests refused by a limit.
    pub refusals: Refusals,
    /// Handles of the services that are open already.
    pub handles: Handles,
    /// Registry for the service's metrics; their names get the prefix `quire_`.
    pub metrics: &'a mut Registry,
}

/// Handles that services offer to those that are opened later, one of a type.
#[derive(Debug, Default)]
pub struct Handles(HashMap<TypeId, Box<dyn Any + Send + Sync>>);

impl Handles {
    /// Offers a handle.
    pub fn offer<T: Any + Send + Sync>(&mut self, handle: T) {
        self.0.insert(TypeId::of::<T>(), Box::new(handle));
    }

    /// The handle of this type; `None` if no open service offers one.
    pub fn get<T: Any + Clone>(&self) -> Option<T> {
        self.0.get(&TypeId::of::<T>())?.downcast_ref().cloned()
    }
}

/// Makes the observer of a server with these methods.
pub type Observe = Arc<dyn Fn(&Builder) -> Arc<dyn Observer> + Send + Sync>;

/// Guards a gRPC server at this address: authenticates each call.
pub type Guard = Arc<dyn Fn(Builder, SocketAddr) -> Builder + Send + Sync>;

/// Context for services with tasks or their own ports.
pub struct Serving {
    /// Limits of the main port.
    pub limits: Limits,
    /// Makes each server's observer.
    pub observer: Observe,
    /// Guard for each server.
    pub guard: Guard,
    /// Open connections of all ports.
    pub connections: ConnectionRegistry,
    /// Set for TLS only.
    pub tls: Option<Arc<ServerConfig>>,
    /// The runtimes of the threads that serve connections.
    pub workers: Vec<Handle>,
    /// Turns true when the server stops.
    pub stop: watch::Receiver<bool>,
    /// Tasks that the server waits for before it closes the services.
    pub tasks: JoinSet<Result<(), Error>>,
}

impl Serving {
    /// Completes when the server stops.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        turned_on(self.stop.clone())
    }

    /// Runs `work` until the server stops.
    pub fn run_until_stopped(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        let stopped = self.stopped();
        self.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = stopped => {}
            }
            Ok(())
        });
    }
}

/// A path or a port, with a description.
pub type Route<T> = (T, &'static str);

/// Makes a part of the `OpenAPI` document: its `paths` and `components`.
pub type Part = Box<dyn Fn() -> Value + Send + Sync>;

/// HTTP/1.1 routes of a service, with a line for each path for the page `/`.
#[derive(Default)]
pub struct Site {
    /// The handlers.
    pub router: Router,
    /// The paths. One that ends with `{*NAME}` has all paths that begin as it does.
    pub pages: Vec<Route<&'static str>>,
    /// Those of them for operators only; they need [`Scope::Admin`] instead.
    pub operators: Vec<&'static str>,
    /// `OpenAPI` descriptions of the paths, made on request of the document.
    pub parts: Vec<Part>,
    /// Pages for browsers. The first of all has `/` for requests that accept `text/html`, too.
    pub fronts: Vec<Front>,
}

/// Pages for browsers. They are not listed at `/` and admit their callers themselves, so that a browser gets a form for
/// its credential.
#[derive(Clone, Debug)]
pub struct Front {
    /// Text of links to them.
    pub name: &'static str,
    /// The path that all of them are below.
    pub folder: &'static str,
    /// The handlers.
    pub router: Router,
}

impl Site {
    /// A site of these paths and handlers with this state.
    pub fn new<S: Clone + Send + Sync + 'static>(
        state: S,
        pages: impl IntoIterator<Item = (&'static str, MethodRouter<S>, &'static str)>,
    ) -> Self {
        let (mut router, mut lines) = (Router::new(), Vec::new());
        for (path, answer, what) in pages {
            router = router.route(path, answer);
            lines.push((path, what));
        }
        Self { router: router.with_state(state), pages: lines, ..Self::default() }
    }

    /// Describes paths of this site for the server's `OpenAPI` document.
    #[must_use]
    pub fn described(mut self, part: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// Adds another site.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.pages.extend(other.pages);
        self.operators.extend(other.operators);
        self.parts.extend(other.parts);
        self.fronts.extend(other.fronts);
        Self { router: self.router.merge(other.router), ..self }
    }
}

/// An open service. The server calls the methods in this order; most have defaults.
pub trait Service: Any + Send + Sync {
    /// Adds the gRPC services.
    fn grpc(&self, builder: Builder) -> Builder {
        builder
    }

    /// Routes over HTTP/1.1.
    fn http(&self) -> Site {
        Site::default()
    }

    /// Its own ports.
    fn ports(&self) -> Vec<Route<SocketAddr>> {
        Vec::new()
    }

    /// Starts its tasks and own ports, before the main port accepts connections.
    fn start(&mut self, _serving: &mut Serving) -> Result<(), Error> {
        Ok(())
    }

    /// Health of the gRPC services, for health checks.
    fn healthy(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }

    /// True if the whole server is unhealthy while this service is.
    fn is_essential(&self) -> bool {
        false
    }

    /// The failure, as a line of `/healthz`.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// Reads its files again, beside the threads that serve; called at each SIGHUP, never twice at once.
    fn reload(&self) -> Pending<'_, ()> {
        Box::pin(future::ready(()))
    }

    /// Completes with the reason if the service wants the server to stop.
    fn over(&self) -> Pending<'static, &'static str> {
        Box::pin(future::pending())
    }

    /// Ends the calls that would not end by themselves, when the server stops.
    fn drain(&self) {}

    /// After the last call: puts everything acknowledged on disk; false if that takes longer. Blocks.
    fn close(&self, _timeout: Duration) -> bool {
        true
    }
}

/// Opening of a service.
pub trait Open: Service + Sized {
    /// Its settings.
    type Settings: Settings;

    /// Scope that a caller's credential needs, where one is required. Without it a service does not compile.
    const SCOPE: Scope;

    /// Its gRPC services for operators only; they need [`Scope::Admin`] instead.
    const OPERATORS: &'static [&'static str] = &[];

    /// True if the main port serves it.
    const IS_ON_MAIN_PORT: bool = true;

    /// The setting that turns the service off; `None` if it is always on.
    const ENABLED: Option<&'static str> = None;

    /// Opens the service.
    fn open(settings: Self::Settings, host: &mut Host<'_>) -> impl Future<Output = Result<Self, Error>> + Send;
}

/// A service's name, and the scopes that its callers need.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// [`Open::ENABLED`].
    pub enabled: Option<&'static str>,
    /// [`Open::SCOPE`].
    pub scope: Scope,
    /// [`Open::OPERATORS`].
    pub operators: &'static [&'static str],
}

impl Declared {
    /// The service's name: that of the setting that turns it off.
    pub fn name(&self) -> &'static str {
        self.enabled.map_or("server", |key| key.strip_suffix(".enabled").unwrap_or(key))
    }
}

/// An enabled service with its settings.
pub trait Choice: Any + Send {
    /// Its name and scopes.
    fn declared(&self) -> Declared;

    /// Opens the service.
    fn open<'a>(self: Box<Self>, host: &'a mut Host<'_>) -> Pending<'a, Result<Box<dyn Service>, Error>>;
}

struct On<S: Open>(S::Settings);

impl<S: Open> Choice for On<S> {
    fn declared(&self) -> Declared {
        Declared { enabled: S::ENABLED, scope: S::SCOPE, operators: S::OPERATORS }
    }

    fn open<'a>(self: Box<Self>, host: &'a mut Host<'_>) -> Pending<'a, Result<Box<dyn Service>, Error>> {
        Box::pin(async move { Ok(Box::new(S::open(self.0, host).await?) as Box<dyn Service>) })
    }
}

impl dyn Choice {
    /// The settings, if the service is `S`.
    pub fn settings<S: Open>(&self) -> Option<&S::Settings> {
        (self as &dyn Any).downcast_ref::<On<S>>().map(|on| &on.0)
    }
}

/// A service's settings, if enabled.
type Read = Result<Option<Box<dyn Choice>>, Refused>;

/// An entry in the list of services.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// [`Open::ENABLED`].
    pub enabled: Option<&'static str>,
    read: fn(&mut Reader<'_>) -> Read,
}

impl Entry {
    /// Reads the service's settings, which must be valid; `None` if it is off.
    pub fn read(&self, from: &mut Reader<'_>) -> Read {
        (self.read)(from)
    }
}

/// The entry of the service `S`.
pub const fn entry<S: Open>() -> Entry {
    Entry {
        enabled: S::ENABLED,
        read: |from| {
            let before = from.taken();
            let is_on = S::ENABLED.map_or(Ok(true), |key| from.switch(key, true))?;
            from.describe(S::Settings::MEANINGS);
            from.read_open(S::SCOPE)?;
            let settings = S::Settings::read(from)?;
            if !is_on {
                from.roll_back_to(before);
                return Ok(None);
            }
            from.note_if_exposed(before, S::IS_ON_MAIN_PORT, S::SCOPE);
            Ok(Some(Box::new(On::<S>(settings))))
        },
    }
}
