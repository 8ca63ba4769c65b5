//! Plan for a request, derived from its head, once per distinct head.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use quire_http2::Head;
use quire_json::{MessageId, Schema};

use super::request::CallPlan;
use super::service::{Handler, Method};
use crate::interceptor::Interceptor;
use crate::message::framing::Framed;
use crate::message::transcode::{self, Json};
use crate::protocol::{Codec, Dialect, Get, Recognised, Terms, recognise};
use crate::server::browser::is_preflight;
use crate::server::deadlines::Deadlines;
use crate::server::observer::Refusal;
use crate::server::reply::plain_http::Unserved;
use crate::status::Status;
use quire_net::Shares;

/// A method's entry in the table.
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) handler: Arc<dyn Handler>,
    /// Interceptors that its calls pass before the handler.
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) deadlines: Deadlines,
    pub(crate) is_streaming_in: bool,
    /// The method's own shares of calls, and the limit's name.
    pub(crate) shares: Option<(Refusal, Shares)>,
    is_streaming_out: bool,
    has_side_effects: bool,
}

impl Route {
    fn takes_get(&self) -> bool {
        !(self.streams() || self.has_side_effects)
    }

    pub(crate) fn streams(&self) -> bool {
        self.is_streaming_in || self.is_streaming_out
    }
}

/// Message types of all methods, for JSON calls.
struct Types {
    schema: Arc<Schema>,
    /// Request and answer types by method number; `None` for a method without contract.
    methods: Vec<Option<(MessageId, MessageId)>>,
}

/// All methods of a server; a method's number is its index.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) table: Vec<Route>,
    numbers: HashMap<String, usize>,
    services: Vec<String>,
    /// Method for paths of no service.
    fallback: Option<usize>,
    pub(crate) contracts: Contracts,
    /// Built at the first JSON call.
    types: OnceLock<Option<Types>>,
}

impl Routes {
    pub(crate) fn add(&mut self, service: &str, methods: Vec<Method>) {
        self.services.push(service.to_owned());
        for method in methods {
            let path = format!("/{service}/{}", method.name);
            let number = self.push(path.clone(), method);
            self.numbers.insert(path, number);
        }
    }

    pub(crate) fn set_fallback(&mut self, method: Method) {
        self.fallback = Some(self.push(method.name.to_owned(), method));
    }

    fn push(&mut self, path: String, method: Method) -> usize {
        let (is_streaming_in, is_streaming_out) = (method.handler.is_streaming_in(), method.handler.is_streaming_out());
        let has_side_effects = method.has_side_effects();
        self.table.push(Route {
            path,
            handler: method.handler,
            interceptors: Vec::new(),
            deadlines: Deadlines::default(),
            is_streaming_in,
            shares: None,
            is_streaming_out,
            has_side_effects,
        });
        self.table.len() - 1
    }

    /// Gives these methods, if they exist, their own shares of calls, which they have together.
    pub(crate) fn limit_methods(&mut self, paths: &[&str], limit: Refusal, shares: &Shares) {
        for number in paths.iter().filter_map(|path| self.numbers.get(*path)) {
            self.table[*number].shares = Some((limit, shares.clone()));
        }
    }

    pub(crate) fn services(&self) -> &[String] {
        &self.services
    }

    /// Plan of a call of the method, whose caller wants these terms.
    fn call(&self, method: usize, dialect: Dialect, mut terms: Terms) -> CallPlan {
        terms.timeout = self.table[method].deadlines.timeout(terms.timeout);
        CallPlan { method, dialect, terms }
    }

    /// False if a request is surely no call; then its head need not be parsed.
    pub(crate) fn may_be_call(&self, path: &str, content_type: &[u8]) -> bool {
        self.numbers.contains_key(path) || !matches!(recognise(content_type), Recognised::Other | Recognised::Unary(_))
    }

    fn find(&self, path: &str) -> Result<usize, Status> {
        if let Some(number) = self.numbers.get(path) {
            return Ok(*number);
        }
        if let Some(number) = self.fallback {
            return Ok(number);
        }
        let service = path.trim_start_matches('/').split('/').next().unwrap_or_default();
        Err(if self.services.iter().any(|known| known == service) {
            Status::unimplemented(format!("the service has no method {path}"))
        } else {
            Status::unimplemented(format!("no service {service} here"))
        })
    }

    /// JSON codecs of a call's request and answer; `None` in protobuf.
    #[inline]
    pub(crate) fn json(&self, plan: &CallPlan) -> Result<Option<(Json, Json)>, Status> {
        match plan.dialect.codec {
            Codec::Proto => Ok(None),
            Codec::Json => self.json_of(plan.method).map(Some),
        }
    }

    fn json_of(&self, method: usize) -> Result<(Json, Json), Status> {
        let types = self.types.get_or_init(|| self.read_types()).as_ref();
        let found = types.and_then(|types| Some((types, types.methods[method]?)));
        let Some((types, (request, answer))) = found else {
            return Err(Status::unimplemented(
                "the method's contract is not known here, so it has no JSON: send protobuf",
            ));
        };
        let json = |message| Json { schema: Arc::clone(&types.schema), message };
        Ok((json(request), json(answer)))
    }

    fn read_types(&self) -> Option<Types> {
        let sets = self.contracts.sets();
        let schema = Schema::new(sets.iter().copied()).ok()?;
        let mut methods = vec![None; self.table.len()];
        for (path, request, answer) in sets.into_iter().flat_map(transcode::methods) {
            let Some(number) = self.numbers.get(&path) else { continue };
            methods[*number] = schema.message(&request).zip(schema.message(&answer));
        }
        Some(Types { schema: Arc::new(schema), methods })
    }
}

pub(crate) enum Plan {
    /// A call, with its message if that is in the head.
    Call(CallPlan, Option<Framed<Bytes>>),
    /// A call that fails before its messages are read.
    Fail(Dialect, Status),
    /// A request for a method that cannot be a call of it.
    Unserved(Unserved),
    /// A CORS preflight.
    Preflight,
    /// Not a call.
    Http,
}

impl Plan {
    /// True for plain gRPC, which browsers cannot send.
    pub(crate) fn is_grpc(&self) -> bool {
        matches!(self, Self::Call(CallPlan { dialect, .. }, _) | Self::Fail(dialect, _) if dialect.needs_trailers())
    }

    pub(crate) fn read(head: &Head, routes: &Routes) -> Self {
        let target = std::str::from_utf8(head.path()).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let known = routes.numbers.get(path).copied();
        match (head.method(), known) {
            (b"POST", _) => Self::post(head, routes, known),
            (b"GET", Some(method)) => Self::get(head, routes, method, query),
            (_, Some(_)) if is_preflight(head) => Self::Preflight,
            (_, Some(method)) => Self::Unserved(Unserved::NotAllowed { get: routes.table[method].takes_get() }),
            (_, None) => Self::Http,
        }
    }

    fn post(head: &Head, routes: &Routes, known: Option<usize>) -> Self {
        let streams = |number: usize| routes.table[number].streams();
        let (dialect, method) = match (recognise(head.get(b"content-type").unwrap_or_default()), known) {
            (Recognised::Call(dialect), _) => {
                let path =
                    std::str::from_utf8(head.path()).map_err(|_| Status::unimplemented("a path that is no text"));
                (dialect, known.map_or_else(|| routes.find(path?), Ok))
            }
            (Recognised::Unary(dialect), Some(number)) if !streams(number) => (dialect, Ok(number)),
            (Recognised::Stream(dialect), Some(number)) if streams(number) => (dialect, Ok(number)),
            (Recognised::UnknownCodec, _) | (_, Some(_)) => return Self::Unserved(Unserved::Unsupported),
            (_, None) => return Self::Http,
        };
        let call = || Ok(routes.call(method?, dialect, dialect.terms(head)?));
        match call() {
            Ok(plan) => Self::Call(plan, None),
            Err(status) => Self::Fail(dialect, status),
        }
    }

    fn get(head: &Head, routes: &Routes, method: usize, query: &str) -> Self {
        if !routes.table[method].takes_get() {
            return Self::Unserved(Unserved::NotAllowed { get: false });
        }
        let Some(Get { codec, terms, message }) = Get::read(head, query.as_bytes()) else {
            return Self::Unserved(Unserved::Unsupported);
        };
        let dialect = Dialect::get(codec);
        match message {
            Ok(bytes) => {
                let message = Framed { compressed: terms.encoding.is_some(), bytes };
                Self::Call(routes.call(method, dialect, terms), Some(message))
            }
            Err(status) => Self::Fail(dialect, status),
        }
    }
}

/// Contracts of a builder's services, each an encoded `FileDescriptorSet`. Shared, so that a service also sees the
/// contracts of services added after it.
#[derive(Clone, Default)]
pub(crate) struct Contracts(Arc<Mutex<Vec<&'static [u8]>>>);

impl Contracts {
    pub(crate) fn add(&self, set: &'static [u8]) {
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !set.is_empty() && !sets.contains(&set) {
            sets.push(set);
        }
    }

    /// Contracts added so far, without duplicates.
    pub(crate) fn sets(&self) -> Vec<&'static [u8]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
