//! The interface of a service: what a server gives it, and what it asks of it, from the start to the end. Must not
//! know how anything is served.

use std::{any::Any, future, net::SocketAddr, path::PathBuf, pin::Pin, sync::Arc, time::Duration};

use axum::{Router, routing::MethodRouter};
use prometheus_client::registry::Registry;
use quire_rpc::{
    Limits,
    rustls::ServerConfig,
    server::{Builder, Observer},
};
use serde_json::Value;
use tokio::{runtime::Handle, sync::watch, task::JoinSet};

use crate::{
    access::{Doors, Scope},
    connections::Connections,
    error::Error,
    metrics::Refusals,
    settings::{Reader, Refused, Settings},
};

/// A future behind a pointer, so that the interface can be one.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What a service is opened with.
#[derive(Debug)]
pub struct Host<'a> {
    /// The data folder. It may not exist yet.
    pub data: PathBuf,
    /// The main port's address.
    pub address: SocketAddr,
    /// Whether the main port speaks TLS only.
    pub is_tls: bool,
    /// Which callers may do what.
    pub doors: Doors,
    /// How many connections each port may have.
    pub connections: Connections,
    /// The longest gRPC message, asked or answered.
    pub message_bytes_max: usize,
    /// Counts requests that run into a limit.
    pub refusals: Refusals,
    /// Where a service registers its metrics; their names get the prefix `quire_`.
    pub metrics: &'a mut Registry,
}

/// Makes the observer of a server with these methods.
pub type Observe = Arc<dyn Fn(&Builder) -> Arc<dyn Observer> + Send + Sync>;

/// Has a server for gRPC at this address ask its callers for what they need.
pub type Guard = Arc<dyn Fn(Builder, SocketAddr) -> Builder + Send + Sync>;

/// What a service that runs tasks or has ports of its own shares with the main port.
pub struct Serving {
    /// Limits of the main port.
    pub limits: Limits,
    /// Makes what counts the calls of each server.
    pub observer: Observe,
    /// Belongs around each server.
    pub guard: Guard,
    /// Set if only TLS is spoken.
    pub tls: Option<Arc<ServerConfig>>,
    /// The runtimes of the threads that serve connections.
    pub workers: Vec<Handle>,
    /// Turns true when the server stops.
    pub stop: watch::Receiver<bool>,
    /// The server waits for these tasks before it closes the services.
    pub tasks: JoinSet<Result<(), Error>>,
}

impl Serving {
    /// Completes when the server stops.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut stop = self.stop.clone();
        async move {
            // An error means that the sender is gone, and the server with it.
            drop(stop.wait_for(|stop| *stop).await);
        }
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

/// A path or a port, and what is there.
pub type Route<T> = (T, &'static str);

/// A part of an `OpenAPI` document: `paths` and `components`.
/// Makes a part of the `OpenAPI` document.
pub type Part = Box<dyn Fn() -> Value + Send + Sync>;

/// What a service answers over HTTP/1.1, and a line about each path for the page `/`.
#[derive(Default)]
pub struct Site {
    /// Answers.
    pub router: Router,
    /// Paths.
    pub pages: Vec<Route<&'static str>>,
    /// What the paths take and answer, in `OpenAPI`'s terms, made when the document is asked for.
    pub parts: Vec<Part>,
}

impl Site {
    /// Answers each path with its handler and this state.
    pub fn new<S: Clone + Send + Sync + 'static>(
        state: S,
        pages: impl IntoIterator<Item = (&'static str, MethodRouter<S>, &'static str)>,
    ) -> Self {
        let (mut router, mut lines) = (Router::new(), Vec::new());
        for (path, answer, what) in pages {
            router = router.route(path, answer);
            lines.push((path, what));
        }
        Self { router: router.with_state(state), pages: lines, parts: Vec::new() }
    }

    /// Describes paths of this site for the server's `OpenAPI` document.
    #[must_use]
    pub fn described(mut self, part: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        self.parts.push(Box::new(part));
        self
    }

    /// This site and another.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.pages.extend(other.pages);
        self.parts.extend(other.parts);
        Self { router: self.router.merge(other.router), ..self }
    }
}

/// A service that is open. A server asks it in this order; what it does not have, it leaves to the defaults.
pub trait Service: Any + Send + Sync {
    /// Adds the gRPC services.
    fn grpc(&self, builder: Builder) -> Builder {
        builder
    }

    /// What is answered over HTTP/1.1.
    fn http(&self) -> Site {
        Site::default()
    }

    /// Ports of its own.
    fn ports(&self) -> Vec<Route<SocketAddr>> {
        Vec::new()
    }

    /// Starts its tasks and serves its own ports. The main port accepts connections next.
    fn start(&mut self, _serving: &mut Serving) -> Result<(), Error> {
        Ok(())
    }

    /// Whether the gRPC services serve, for health checks.
    fn healthy(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }

    /// Whether the server as a whole is unhealthy while this service is.
    fn is_essential(&self) -> bool {
        false
    }

    /// What has failed, as a line of `/healthz`.
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

    /// The server stops: ends the calls that would not end by themselves.
    fn drain(&self) {}

    /// Every call has ended, or was cut: puts everything acknowledged on disk; false if that takes longer. Blocks.
    fn close(&self, _timeout: Duration) -> bool {
        true
    }
}

/// How a service is opened.
pub trait Open: Service + Sized {
    /// Its settings.
    type Settings: Settings;

    /// What a caller's credential must be for, where one is needed. Without it a service does not compile.
    const SCOPE: Scope;

    /// Its gRPC services for operators alone; they need [`Scope::Admin`] instead.
    const OPERATORS: &'static [&'static str] = &[];

    /// Whether the main port serves it.
    const IS_ON_MAIN_PORT: bool = true;

    /// The setting that turns the service off; `None` if it is always on.
    const ENABLED: Option<&'static str> = None;

    /// Opens the service.
    fn open(settings: Self::Settings, host: &mut Host<'_>) -> impl Future<Output = Result<Self, Error>> + Send;
}

/// What callers of a service need.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// [`Open::SCOPE`].
    pub scope: Scope,
    /// [`Open::OPERATORS`].
    pub operators: &'static [&'static str],
}

/// A service that is on, with its settings.
pub trait Choice: Any + Send {
    /// What callers need.
    fn declared(&self) -> Declared;

    /// Opens the service.
    fn open<'a>(self: Box<Self>, host: &'a mut Host<'_>) -> Pending<'a, Result<Box<dyn Service>, Error>>;
}

struct On<S: Open>(S::Settings);

impl<S: Open> Choice for On<S> {
    fn declared(&self) -> Declared {
        Declared { scope: S::SCOPE, operators: S::OPERATORS }
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

/// A service's settings, if it is on.
type Read = Result<Option<Box<dyn Choice>>, Refused>;

/// A service in the list of services.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    read: fn(&mut Reader<'_>) -> Read,
}

impl Entry {
    /// Reads the service's settings; `None` if it is off. Its settings must be valid all the same.
    pub fn read(&self, from: &mut Reader<'_>) -> Read {
        (self.read)(from)
    }
}

/// The service `S`, for the list of services.
pub const fn entry<S: Open>() -> Entry {
    Entry {
        read: |from| {
            let before = from.taken();
            let is_on = S::ENABLED.map_or(Ok(true), |key| from.switch(key, true))?;
            from.read_open(S::SCOPE)?;
            let settings = S::Settings::read(from)?;
            if !is_on {
                from.forget_since(before);
                return Ok(None);
            }
            from.shut_doors(before, S::IS_ON_MAIN_PORT, S::SCOPE);
            Ok(Some(Box::new(On::<S>(settings))))
        },
    }
}
