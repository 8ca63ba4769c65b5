//! The requests of an HTTP load, checked once and filled in for each turn.
//!
//! Values of placeholders in a URL are escaped where necessary, so that a row with a space is still a request; those
//! that a header cannot hold fail their request.

use anyhow::{Context as _, anyhow};
use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Method, Request, Uri};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use quire_rpc::client::HttpRequest;

use crate::template::{Sources, Template, Turn};
use crate::values::{scheme_and_rest, with_host};

/// Bytes that RFC 3986 does not allow in path and query; existing escapes stay.
const ESCAPED: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// A request as given on the command line.
#[derive(Clone, Debug, Default)]
pub struct RequestArgs {
    /// `http://` or `https://`, with placeholders in path and query.
    pub url: String,
    /// Default: GET, or POST with a body.
    pub method: Option<String>,
    /// Headers, each as `Name: value`.
    pub headers: Vec<String>,
    /// The body; placeholders are filled in if it is text.
    pub data: Option<Vec<u8>>,
    pub http2: bool,
}

#[derive(Debug)]
pub struct Requests {
    method: Method,
    scheme: Scheme,
    /// Authority to connect to.
    authority: Authority,
    /// Authority that requests name: that of the URL, or of a Host header. Only HTTP/2 puts it into the URI.
    asked_authority: Option<Authority>,
    target: Template,
    /// The request, if it is constant.
    constant: Option<Request<Bytes>>,
    /// The same for HTTP/2.
    constant_http2: Option<HttpRequest>,
    fixed_headers: HeaderMap,
    varying_headers: Vec<(HeaderName, Template)>,
    body: Payload,
}

#[derive(Debug)]
enum Payload {
    Fixed(Bytes),
    Varying(Template),
}

impl Requests {
    /// Checks all input.
    pub fn new(args: &RequestArgs, sources: &Sources) -> anyhow::Result<Self> {
        let url = &args.url;
        let (scheme, authority, target) = split(url).map_err(|reason| {
            anyhow!(
                "`{url}` cannot be measured: {reason}; write http://HOST:PORT/PATH, https://HOST:PORT/PATH or :PORT/PATH"
            )
        })?;
        let target = template("URL", &target, sources)?;
        let method = match &args.method {
            Some(name) => Method::from_bytes(name.as_bytes()).ok().with_context(|| {
                format!("`{name}` is not a method: write GET, HEAD, POST, PUT, PATCH, DELETE or another token")
            })?,
            None if args.data.is_some() => Method::POST,
            None => Method::GET,
        };
        let body = match &args.data {
            None => Payload::Fixed(Bytes::new()),
            Some(data) => payload(data, sources)?,
        };
        let mut requests = Self {
            method,
            scheme,
            asked_authority: args.http2.then(|| authority.clone()),
            authority,
            target,
            constant: None,
            constant_http2: None,
            fixed_headers: HeaderMap::new(),
            varying_headers: Vec::new(),
            body,
        };
        for header in &args.headers {
            requests.add_header(header, args.http2, sources)?;
        }
        requests.add_own_headers(args);
        let varies = !requests.varying_headers.is_empty() || matches!(requests.body, Payload::Varying(_));
        if !varies && requests.target.constant().is_some() {
            let constant = requests.make(Turn { number: 0, client: 0, worker: 0 });
            requests.constant_http2 = constant.clone().map(|constant| HttpRequest::new(constant).repeated());
            requests.constant = constant;
        }
        Ok(requests)
    }

    fn add_header(&mut self, header: &str, http2: bool, sources: &Sources) -> anyhow::Result<()> {
        let failed = |reason: &str| anyhow!("header `{header}`: {reason}");
        let (name, value) =
            header.split_once(':').ok_or_else(|| failed("the colon is missing: write `Name: value`"))?;
        let (name, value) = (name.trim(), value.trim());
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| failed("its name has characters that HTTP does not allow"))?;
        if name == CONTENT_LENGTH || name == TRANSFER_ENCODING {
            return Err(failed("it is set from the body"));
        }
        let value = template(&format!("header {name}"), value, sources)?;
        let Some(constant) = value.constant() else {
            self.varying_headers.push((name, value));
            return Ok(());
        };
        if name == HOST && http2 {
            let authority = constant.parse().map_err(|_| failed("its value is not HOST or HOST:PORT"))?;
            self.asked_authority = Some(authority);
            return Ok(());
        }
        let value = HeaderValue::from_str(constant).map_err(|_| failed("its value holds a control character"))?;
        self.fixed_headers.append(name, value);
        Ok(())
    }

    /// Adds the headers that HTTP requires and the caller did not give.
    fn add_own_headers(&mut self, args: &RequestArgs) {
        let given = |name: &HeaderName, own: &Self| {
            own.fixed_headers.contains_key(name) || own.varying_headers.iter().any(|(other, _)| other == name)
        };
        if !args.http2 && !given(&HOST, self) {
            let host = HeaderValue::from_str(self.authority.as_str());
            self.fixed_headers.extend(host.map(|host| (HOST, host)));
        }
        if args.data.is_some() && !given(&CONTENT_TYPE, self) {
            self.fixed_headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
    }

    pub fn is_https(&self) -> bool {
        self.scheme == Scheme::HTTPS
    }

    /// The host to connect to, as the URL names it.
    pub fn host(&self) -> &str {
        self.authority.host()
    }

    pub fn port(&self) -> u16 {
        self.authority.port_u16().unwrap_or(if self.is_https() { 443 } else { 80 })
    }

    pub fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn origin(&self) -> String {
        format!("{}://{}", self.scheme, self.authority)
    }

    /// The request for one turn, as HTTP/2 sends it.
    pub(super) fn make_http2(&self, turn: Turn) -> Option<HttpRequest> {
        self.constant_http2.clone().or_else(|| self.make(turn).map(HttpRequest::new))
    }

    /// The request for one turn; `None` if it cannot be built: for example, a row put a control character into a header.
    pub(super) fn make(&self, turn: Turn) -> Option<Request<Bytes>> {
        if let Some(constant) = &self.constant {
            return Some(constant.clone());
        }
        let mut target = String::new();
        self.target.render(turn, &mut target);
        let uri = self.uri(&target)?;
        let body = match &self.body {
            Payload::Fixed(bytes) => bytes.clone(),
            Payload::Varying(template) => rendered(template, turn),
        };
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        request.headers_mut().clone_from(&self.fixed_headers);
        for (name, value) in &self.varying_headers {
            let value = HeaderValue::from_maybe_shared(rendered(value, turn)).ok()?;
            request.headers_mut().append(name.clone(), value);
        }
        Some(request)
    }

    fn uri(&self, target: &str) -> Option<Uri> {
        let target = PathAndQuery::try_from(utf8_percent_encode(target, ESCAPED).to_string()).ok()?;
        let Some(authority) = &self.asked_authority else { return Some(Uri::from(target)) };
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(authority.clone());
        parts.path_and_query = Some(target);
        Uri::from_parts(parts).ok()
    }
}

/// Splits a URL into scheme, authority, and the rest from `/` on.
fn split(url: &str) -> Result<(Scheme, Authority, String), String> {
    let url = with_host(url);
    // As in other tools, an address alone means plain HTTP.
    let (scheme, rest) = scheme_and_rest(&url);
    let scheme = match scheme.unwrap_or("http").to_ascii_lowercase().as_str() {
        "http" => Scheme::HTTP,
        "https" => Scheme::HTTPS,
        scheme => return Err(format!("the scheme {scheme} is unknown")),
    };
    let rest = rest.split('#').next().unwrap_or_default();
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    if authority.contains("{{") {
        return Err("placeholders belong in the path and the query".into());
    }
    if authority.contains('@') {
        return Err("a user name belongs in a header".into());
    }
    let authority: Authority = authority.parse().map_err(|_| format!("`{authority}` is not HOST or HOST:PORT"))?;
    if authority.host().is_empty() {
        return Err("the host is missing".into());
    }
    if authority.as_str().len() > authority.host().len() && authority.port_u16().is_none_or(|port| port == 0) {
        return Err("the port must be a number from 1 to 65535".into());
    }
    let slash = if target.starts_with('/') { "" } else { "/" };
    Ok((scheme, authority, format!("{slash}{target}")))
}

fn template(place: &str, text: &str, sources: &Sources) -> anyhow::Result<Template> {
    Template::parse(text, sources).with_context(|| format!("in the {place}"))
}

fn payload(data: &[u8], sources: &Sources) -> anyhow::Result<Payload> {
    let Ok(text) = std::str::from_utf8(data) else { return Ok(Payload::Fixed(Bytes::copy_from_slice(data))) };
    let template = template("body", text, sources)?;
    Ok(match template.constant() {
        Some(text) => Payload::Fixed(Bytes::copy_from_slice(text.as_bytes())),
        None => Payload::Varying(template),
    })
}

fn rendered(template: &Template, turn: Turn) -> Bytes {
    let mut out = BytesMut::new();
    template.render(turn, &mut out);
    out.freeze()
}
