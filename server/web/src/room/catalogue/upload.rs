//! Forms with a file (RFC 7578), read into memory within a limit.

use axum::{
    extract::{FromRequest, Request},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use tokio::sync::Semaphore;

use crate::room::{
    door::Sent,
    operator::Operator,
    state::{Room, forged},
};

/// Most bytes of a form with a file.
pub(crate) const UPLOAD_BYTES_MAX: usize = 32 << 20;

/// Forms with files that are read at once.
static READS: Semaphore = Semaphore::const_new(2);

/// The file of a form that carries the operator's secret.
#[derive(Debug)]
pub(crate) struct Upload(pub(crate) Bytes);

impl FromRequest<Room> for Upload {
    type Rejection = Response;

    async fn from_request(request: Request, room: &Room) -> Result<Self, Response> {
        let operator = request.extensions().get::<Operator>().cloned().ok_or_else(forged)?;
        let boundary = boundary_of(request.headers());
        let boundary = boundary.ok_or_else(|| StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response())?.to_owned();
        let _read = READS.try_acquire().map_err(|_| {
            (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "5")], "other files are being read\n")
                .into_response()
        })?;
        let body = Bytes::from_request(request, room).await.map_err(axum::response::IntoResponse::into_response)?;
        let (mut fields, mut file) = (Vec::new(), Bytes::new());
        for part in parts(&body, &boundary) {
            match part.name {
                "file" => file = body.slice_ref(part.content),
                name => fields.push((name.to_owned(), String::from_utf8_lossy(part.content).into_owned())),
            }
        }
        Sent::checked(fields, &operator).map(|_| Self(file)).ok_or_else(forged)
    }
}

/// Fields before the file, and the place where the file begins; `None` while that has not come.
pub(crate) fn before_file(body: &[u8], boundary: &str) -> Option<(Vec<(String, String)>, usize)> {
    let between = format!("\r\n--{boundary}");
    let (mut rest, mut fields) = (body.strip_prefix(&between.as_bytes()[2..])?, Vec::new());
    loop {
        let (head, content) = cut(rest.strip_prefix(b"\r\n")?, b"\r\n\r\n")?;
        match name_of(head) {
            Some("file") => return Some((fields, body.len() - content.len())),
            name => {
                let (content, after) = cut(content, between.as_bytes())?;
                fields.extend(name.map(|name| (name.to_owned(), String::from_utf8_lossy(content).into_owned())));
                rest = after;
            }
        }
    }
}

/// The boundary of a form with a file.
pub(crate) fn boundary_of(headers: &HeaderMap) -> Option<&str> {
    boundary(headers.get(header::CONTENT_TYPE)?.to_str().ok()?)
}

/// The boundary that a form's type names.
fn boundary(kind: &str) -> Option<&str> {
    let parameters = kind.strip_prefix("multipart/form-data")?.split(';').map(str::trim);
    let value = parameters.into_iter().find_map(|parameter| parameter.strip_prefix("boundary="))?;
    let value = value.trim_matches('"');
    (!value.is_empty() && value.len() <= 70).then_some(value)
}

/// A field or a file.
#[derive(Debug, PartialEq, Eq)]
struct Part<'b> {
    name: &'b str,
    content: &'b [u8],
}

/// The parts of a body; those without a name are left out.
fn parts<'b>(body: &'b [u8], boundary: &str) -> Vec<Part<'b>> {
    let between = format!("\r\n--{boundary}");
    // The first one has no line before it.
    let Some(mut rest) = body.strip_prefix(&between.as_bytes()[2..]) else { return Vec::new() };
    let mut parts = Vec::new();
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        let Some((part, next)) = cut(after, between.as_bytes()) else { break };
        rest = next;
        let Some((head, content)) = cut(part, b"\r\n\r\n") else { continue };
        parts.extend(name_of(head).map(|name| Part { name, content }));
    }
    parts
}

/// The name in a part's header.
fn name_of(head: &[u8]) -> Option<&str> {
    let mut lines = str::from_utf8(head).ok()?.lines();
    let line = lines.find(|line| line.to_ascii_lowercase().starts_with("content-disposition:"))?;
    let (_, name) = line.split_once("; name=\"")?;
    Some(name.split_once('"')?.0)
}

/// Bytes before and after the first occurrence of `mark`.
fn cut<'b>(bytes: &'b [u8], mark: &[u8]) -> Option<(&'b [u8], &'b [u8])> {
    let mut start = 0;
    loop {
        let place = start + bytes[start..].iter().position(|byte| *byte == mark[0])?;
        if bytes[place..].starts_with(mark) {
            return Some((&bytes[..place], &bytes[place + mark.len()..]));
        }
        start = place + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, before_file, boundary, parts};

    #[test]
    fn fields_and_files_are_found_between_boundaries() {
        let kind = "multipart/form-data; charset=utf-8; boundary=\"x1\"";
        assert_eq!(boundary(kind), Some("x1"));
        assert_eq!((boundary("text/plain; boundary=x"), boundary("multipart/form-data")), (None, None));
        let body = b"--x1\r\nContent-Disposition: form-data; name=\"once\"\r\n\r\nkey\r\n--x1\r\n\
                     content-disposition: form-data; name=\"file\"; filename=\"a; name=.csv\"\r\nContent-Type: text/csv\r\n\r\n\
                     a\r\n\r\n--x\r\nb\r\n--x1\r\nX: y\r\n\r\nnameless\r\n--x1--\r\n";
        let found = parts(body, "x1");
        assert_eq!(
            found,
            [Part { name: "once", content: b"key" }, Part { name: "file", content: b"a\r\n\r\n--x\r\nb" }]
        );
    }

    #[test]
    fn a_file_begins_after_its_fields_and_not_before_its_header_has_come() {
        let body = b"--x\r\nContent-Disposition: form-data; name=\"secret\"\r\n\r\ns\r\n--x\r\n\
                     Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\ncontent";
        let start = body.len() - b"content".len();
        assert_eq!(before_file(body, "x"), Some((vec![("secret".to_owned(), "s".to_owned())], start)));
        for length in 0..start {
            assert_eq!(before_file(&body[..length], "x"), None, "{length}");
        }
    }

    #[test]
    fn a_body_that_is_cut_off_or_of_another_form_has_no_parts() {
        for body in
            [&b""[..], b"--x", b"--x\r\n", b"--x\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nrest", b"--y\r\n"]
        {
            assert_eq!(parts(body, "x"), [], "{}", body.escape_ascii());
        }
    }
}
