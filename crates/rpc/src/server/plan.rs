//! What is to be done with a request, read off its head (gRPC over HTTP/2, "Requests"), once per distinct head.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use quire_http2::Head;

use super::method::{Handler, Method};
use crate::compression::Encoding;
use crate::envelope::Accepted;
use crate::status::Status;
use crate::timeout;

/// A method at its place in the table.
pub(crate) struct Route {
    pub(crate) path: String,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) is_streaming_in: bool,
}

/// All methods of a server; a method's number is its place.
#[derive(Default)]
pub(crate) struct Routes {
    pub(crate) table: Vec<Route>,
    numbers: HashMap<String, usize>,
    services: Vec<String>,
    /// Answers what no service has.
    fallback: Option<usize>,
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
        let is_streaming_in = method.handler.is_streaming_in();
        self.table.push(Route { path, handler: method.handler, is_streaming_in });
        self.table.len() - 1
    }

    pub(crate) fn services(&self) -> &[String] {
        &self.services
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
}

/// A gRPC call, as its head describes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallPlan {
    pub(crate) method: usize,
    pub(crate) timeout: Option<Duration>,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) accepted: Accepted,
}

pub(crate) enum Plan {
    Call(CallPlan),
    /// A gRPC call that fails whatever its messages are.
    Fail(Status),
    /// Not gRPC.
    Http,
    /// gRPC in a dialect we do not speak: HTTP 415, as the protocol asks.
    Unsupported,
}

impl Plan {
    pub(crate) fn read(head: &Head, routes: &Routes) -> Self {
        match content_type(head.get(b"content-type").unwrap_or_default()) {
            ContentType::Other => return Self::Http,
            ContentType::OtherGrpc => return Self::Unsupported,
            ContentType::Grpc if head.method() != b"POST" => return Self::Http,
            ContentType::Grpc => {}
        }
        Self::call(head, routes).map_or_else(Self::Fail, Self::Call)
    }

    fn call(head: &Head, routes: &Routes) -> Result<CallPlan, Status> {
        let path = std::str::from_utf8(head.path()).map_err(|_| Status::unimplemented("a path that is no text"))?;
        let method = routes.find(path)?;
        let timeout = match head.get(b"grpc-timeout") {
            None => None,
            Some(value) => Some(timeout::parse(value).ok_or_else(|| Status::internal("grpc-timeout is malformed"))?),
        };
        let encoding = match head.get(b"grpc-encoding") {
            None => None,
            Some(name) => Encoding::parse(name).map_err(|()| {
                Status::unimplemented(format!("grpc-encoding {} is not spoken here", name.escape_ascii()))
            })?,
        };
        let accepted = head.get(b"grpc-accept-encoding").unwrap_or_default();
        Ok(CallPlan {
            method,
            timeout,
            encoding,
            accepted: Accepted { gzip: Encoding::Gzip.is_in(accepted), zstd: Encoding::Zstd.is_in(accepted) },
        })
    }
}

enum ContentType {
    Grpc,
    OtherGrpc,
    Other,
}

fn content_type(value: &[u8]) -> ContentType {
    let Some(rest) = value.strip_prefix(b"application/grpc") else { return ContentType::Other };
    match rest.first() {
        None | Some(b';') => ContentType::Grpc,
        Some(b'+') if rest == b"+proto" || rest.starts_with(b"+proto;") => ContentType::Grpc,
        Some(b'+') => ContentType::OtherGrpc,
        // grpc-web and whatever else begins alike is another protocol, which the HTTP service may speak.
        _ => ContentType::Other,
    }
}
