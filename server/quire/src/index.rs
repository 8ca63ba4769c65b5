//! The page at `/`: the server's services and their addresses.

use std::{
    fmt::{self, Write as _},
    net::SocketAddr,
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::IntoResponse,
    routing::get,
};
use hosting::Route;

/// Contents of the page.
#[derive(Debug)]
pub(crate) struct Index<'a> {
    pub pages: &'a [Route<&'static str>],
    /// `/package.Service/Method`, grouped by service.
    pub methods: &'a [&'a str],
    pub ports: &'a [Route<SocketAddr>],
}

impl Index<'_> {
    /// Adds the page, and an answer for unknown paths.
    pub(crate) fn add_to(&self, router: Router) -> Router {
        let (mut text, mut html) = (String::new(), String::new());
        // Writing to a string cannot fail.
        let _ = self.write(&mut text, str::to_owned);
        let _ = self.write(&mut html, |path| format!("<a href=\"{path}\">{path}</a>"));
        let html =
            format!("<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>quire</title><pre>{html}</pre>");
        let page = async move |headers: HeaderMap| {
            let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
            let (kind, body) = if accept.contains("text/html") { ("text/html", html) } else { ("text/plain", text) };
            let headers =
                [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8")), (header::VARY, "accept".to_owned())];
            (headers, body)
        };
        router.route("/", get(page)).fallback(nothing_here)
    }

    fn write(&self, page: &mut String, link: impl Fn(&str) -> String) -> fmt::Result {
        writeln!(page, "quire {}", env!("CARGO_PKG_VERSION"))?;
        writeln!(page, "\nHTTP, on this port:")?;
        for (path, what) in self.pages {
            let space = " ".repeat(20_usize.saturating_sub(path.len()));
            writeln!(page, "  {}{space} {what}", link(path))?;
        }
        writeln!(page, "\ngRPC, gRPC-Web and Connect, on this port; reflection and /openapi tell the messages:")?;
        let service = |path: &str| path.trim_start_matches('/').split('/').next().unwrap_or_default().to_owned();
        for methods in self.methods.chunk_by(|one, next| service(one) == service(next)) {
            let names: Vec<_> = methods.iter().filter_map(|path| path.rsplit('/').next()).collect();
            writeln!(page, "  {}: {}", service(methods[0]), names.join(", "))?;
        }
        if !self.ports.is_empty() {
            writeln!(page, "\nOther ports:")?;
        }
        for (address, what) in self.ports {
            writeln!(page, "  {:<20} {what}", address.to_string())?;
        }
        Ok(())
    }
}

async fn nothing_here() -> impl IntoResponse {
    (StatusCode::NOT_FOUND, "there is nothing at this path; / lists what is here\n")
}

#[cfg(test)]
mod tests {
    use super::Index;

    #[test]
    fn what_there_is_is_listed_by_service_and_by_port() {
        let index = Index {
            pages: &[("/healthz", "ok, or what failed")],
            methods: &["/a.B/One", "/a.B/Two", "/c.D/Three"],
            ports: &[(([127, 0, 0, 1], 80).into(), "tasks")],
        };
        let mut page = String::new();
        index.write(&mut page, |path| format!("<{path}>")).expect("a page");
        let lines: Vec<&str> = page.lines().skip(1).filter(|line| !line.is_empty()).collect();
        assert_eq!(
            lines,
            [
                "HTTP, on this port:",
                "  </healthz>             ok, or what failed",
                "gRPC, gRPC-Web and Connect, on this port; reflection and /openapi tell the messages:",
                "  a.B: One, Two",
                "  c.D: Three",
                "Other ports:",
                "  127.0.0.1:80         tasks",
            ]
        );
        let nothing = Index { pages: &[], methods: &[], ports: &[] };
        let mut page = String::new();
        nothing.write(&mut page, str::to_owned).expect("a page");
        assert!(!page.contains("Other ports"), "{page}");
    }
}
