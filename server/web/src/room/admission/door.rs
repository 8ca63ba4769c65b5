//! Admission: sessions by cookie, the form for a token, and the origin of requests and forms.

use std::time::Instant;

use axum::{
    extract::{FromRequest, Request, State},
    http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header},
    middleware::Next,
    response::{IntoResponse as _, Redirect, Response},
};
use bytes::Bytes;
use hosting::access::Denied;

use crate::room::{
    operator::Operator,
    outcome::is_key,
    session::is_same,
    state::{Room, forged, respond},
    views::SignInPage,
};
use crate::{
    assets::Assets,
    request::{cookie, field, is_same_origin, query},
    visit::{Visit, keep, secure},
};

/// The path of the room, which every other one begins with.
pub(crate) const HOME: &str = "/admin";

/// The path of streams.
pub(crate) const LIVE: &str = "/admin/live";

/// True unless a page of another site makes the request. Links of other sites lead to the form for a token, because the
/// session's cookie is not sent with them.
fn is_ours(method: &Method, headers: &HeaderMap, uri: &Uri) -> bool {
    if *method != Method::GET && *method != Method::HEAD {
        return is_same_origin(headers, uri);
    }
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|sent| sent == value);
    let is_typed = is("sec-fetch-site", "none");
    let is_link = is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
    is_typed || is_link || is_same_origin(headers, uri)
}

/// Admits operators; others get the form for a token.
pub(crate) async fn admit(State(room): State<Room>, mut request: Request, next: Next) -> Response {
    let visit = Visit::of(&request);
    if !is_ours(request.method(), &visit.headers, &visit.uri) {
        return forged();
    }
    if !room.auth().is_required() {
        request.extensions_mut().insert(Operator::unnamed(room.form_secret()));
        return next.run(request).await;
    }
    let known = cookie(&visit.headers, room.cookie()).and_then(|sent| match visit.uri.path() {
        // A page's stream is opened again by itself.
        LIVE => room.sessions().look_at(sent, Instant::now()),
        _ => room.sessions().take_up(sent, Instant::now()),
    });
    if let Some(session) = known {
        visit.peer.set_known();
        request.extensions_mut().insert(Operator::from(session));
        return next.run(request).await;
    }
    let is_form = request.method() == Method::POST;
    // A certificate of the connection admits without a form.
    match room.auth().admit(None, &visit.peer) {
        Ok(Some(admitted)) if !is_form => {
            let session = room.sessions().open(admitted, Instant::now());
            let sent = room.session_cookie(&session.cookie);
            request.extensions_mut().insert(Operator::from(session));
            let mut response = next.run(request).await;
            keep(&mut response, &sent);
            response
        }
        Ok(_) => room.token_form(&visit, &Denied::Missing, is_form),
        Err(denied) => room.token_form(&visit, &denied, is_form),
    }
}

impl Room {
    fn session_cookie(&self, sent: &str) -> String {
        let (name, secure) = (self.cookie(), secure(self.is_tls()));
        format!("{name}={sent}; Path={HOME}; HttpOnly; SameSite=Strict{secure}")
    }

    /// The form for a token, with the reason for a refusal. `is_form` is true in place of a form's result.
    fn token_form(&self, visit: &Visit, denied: &Denied, is_form: bool) -> Response {
        let (status, refused) = match denied {
            Denied::Missing if is_form => (
                StatusCode::UNAUTHORIZED,
                Some("Your session is over, so nothing was done. Sign in and send the form again.".to_owned()),
            ),
            Denied::Missing => (StatusCode::UNAUTHORIZED, None),
            Denied::Off => (StatusCode::UNAUTHORIZED, Some(format!("{}.", self.auth().error_text(denied)))),
            Denied::Wrong => (StatusCode::UNAUTHORIZED, Some("This token is not known. Look at it again.".to_owned())),
            Denied::Scope(name) => (
                StatusCode::FORBIDDEN,
                Some(format!("The token of “{name}” is good, but does not have the scope admin.")),
            ),
            Denied::Guessing => (
                StatusCode::TOO_MANY_REQUESTS,
                Some("Too many wrong tokens came from here. Try again in a minute.".to_owned()),
            ),
        };
        let asked = query(&visit.uri, "next").filter(|path| is_room_path(path));
        let asked = asked.unwrap_or_else(|| match visit.uri.path() {
            "/admin/sign-in" => HOME.to_owned(),
            _ if is_form => HOME.to_owned(),
            _ => visit.uri.path_and_query().map_or(HOME, |path| path.as_str()).to_owned(),
        });
        let mut response = respond(status, &SignInPage { assets: Assets::get(), refused, next: asked });
        let head = response.headers_mut();
        if status == StatusCode::UNAUTHORIZED {
            head.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            head.insert(header::RETRY_AFTER, HeaderValue::from_static("60"));
        }
        response
    }
}

/// True for a path of the room, so that the form for a token leads nowhere else.
fn is_room_path(path: &str) -> bool {
    let rest = path.strip_prefix(HOME);
    let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['/', '?']));
    is_below && path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
}

pub(crate) async fn sign_in_page(State(room): State<Room>, visit: Visit) -> Response {
    if !room.auth().is_required() {
        return Redirect::to(HOME).into_response();
    }
    room.token_form(&visit, &Denied::Missing, false)
}

/// Opens a session for a good token.
pub(crate) async fn sign_in(State(room): State<Room>, visit: Visit, form: Bytes) -> Response {
    if !is_same_origin(&visit.headers, &visit.uri) {
        return forged();
    }
    let token = field(&form, "token").unwrap_or_default();
    let admitted = match room.auth().admit(Some(token.trim().as_bytes()), &visit.peer) {
        Ok(Some(admitted)) => admitted,
        Ok(None) => return Redirect::to(HOME).into_response(),
        Err(denied) => return room.token_form(&visit, &denied, false),
    };
    let session = room.sessions().open(admitted, Instant::now());
    let sent = room.session_cookie(&session.cookie);
    Operator::from(session).log(&visit, "sign in to /admin");
    // The session of before is not left behind.
    if let Some(before) = cookie(&visit.headers, room.cookie()) {
        room.sessions().close(before);
    }
    let next = field(&form, "next").filter(|path| is_room_path(path)).unwrap_or_else(|| HOME.to_owned());
    let mut response = Redirect::to(&next).into_response();
    keep(&mut response, &sent);
    response
}

/// Ends the session.
pub(crate) async fn sign_out(State(room): State<Room>, visit: Visit, operator: Operator, _: Sent) -> Response {
    operator.log(&visit, "sign out of /admin");
    if let Some(sent) = operator.cookie() {
        room.sessions().close(sent);
    }
    let mut response = Redirect::to("/admin/sign-in").into_response();
    keep(&mut response, &format!("{}; Max-Age=0", room.session_cookie("")));
    response
}

/// The fields of a form that carries the operator's secret.
#[derive(Debug)]
pub(crate) struct Sent(Vec<(String, String)>);

impl Sent {
    /// The fields, if one of them is the operator's secret.
    pub(crate) fn checked(fields: Vec<(String, String)>, operator: &Operator) -> Option<Self> {
        let sent = Self(fields);
        let is_own = is_same(sent.field("secret"), operator.form_secret()) && is_key(sent.once());
        is_own.then_some(sent)
    }

    /// A field's value; empty if it is absent.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.0.iter().find(|(field, _)| field == name).map_or("", |(_, value)| value)
    }

    /// The form's key.
    pub(crate) fn once(&self) -> &str {
        self.field("once")
    }
}

impl FromRequest<Room> for Sent {
    type Rejection = Response;

    async fn from_request(request: Request, room: &Room) -> Result<Self, Response> {
        let operator = request.extensions().get::<Operator>().cloned().ok_or_else(forged)?;
        let body = Bytes::from_request(request, room).await.map_err(axum::response::IntoResponse::into_response)?;
        let fields = form_urlencoded::parse(&body).into_owned().collect();
        Self::checked(fields, &operator).ok_or_else(forged)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

    use super::{is_ours, is_room_path};

    fn headers(fields: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        fields.iter().map(pair).collect()
    }

    #[test]
    fn other_sites_may_link_here_and_nothing_else() {
        let uri = Uri::from_static("/admin/log");
        let site = |value| ("sec-fetch-site", value);
        let link = [site("cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")];
        let frame = [site("cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "iframe")];
        let script = [site("cross-site"), ("sec-fetch-mode", "cors"), ("sec-fetch-dest", "empty")];
        let image = [site("same-site"), ("sec-fetch-mode", "no-cors"), ("sec-fetch-dest", "image")];
        let old_script = [("host", "quire.example"), ("origin", "http://evil.example")];
        for (fields, reads, writes) in [
            (&[][..], true, true),
            (&[site("same-origin")], true, true),
            (&[site("none")], true, false),
            (&link, true, false),
            (&frame, false, false),
            (&script, false, false),
            (&image, false, false),
            (&old_script, false, false),
        ] {
            assert_eq!(is_ours(&Method::GET, &headers(fields), &uri), reads, "{fields:?}");
            assert_eq!(is_ours(&Method::POST, &headers(fields), &uri), writes, "{fields:?}");
        }
    }

    #[test]
    fn the_form_for_a_token_leads_into_the_room_alone() {
        for path in ["/admin", "/admin/log?book=7", "/admin?done=x"] {
            assert!(is_room_path(path), "{path}");
        }
        for path in ["", "/", "/administrator", "//admin", "/admin\\..", "https://evil.example/admin", "/admin /x"] {
            assert!(!is_room_path(path), "{path}");
        }
    }
}
