//! Backups: the age of the newest one, one to keep, and the verification of one.

use std::{
    io::{self, Read},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    body::{Body, BodyDataStream},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use operate::Making;
use tokio::{sync::mpsc, time::timeout};

use super::{
    door::Sent,
    entries::timestamp,
    figures::in_words,
    operator::Operator,
    state::{Room, forged, respond},
    upload::{before_file, boundary_of},
    views::BackupsPage,
};
use crate::visit::Visit;

/// Longest wait for the next piece of a file.
const NEXT_PIECE: Duration = Duration::from_secs(30);

/// Bytes of a form within which its file must begin.
const FIELDS_BYTES_MAX: usize = 16 << 10;

pub(crate) async fn backups(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let age = room.services().operate.newest().borrow().backup_age;
    let frame = room.frame(&visit, &operator, "/admin/backups");
    respond(StatusCode::OK, &BackupsPage { frame, age: age.map(in_words), verified: None })
}

/// Verifies the file of a form, which may have any size: its pieces are read as they come.
pub(crate) async fn verify(State(room): State<Room>, visit: Visit, operator: Operator, request: Request) -> Response {
    let Some(boundary) = boundary_of(&visit.headers).map(ToOwned::to_owned) else {
        return StatusCode::UNSUPPORTED_MEDIA_TYPE.into_response();
    };
    let mut body = request.into_body().into_data_stream();
    let Some((fields, first)) = before_contents(&mut body, &boundary).await else {
        return (StatusCode::BAD_REQUEST, "the form has no file\n").into_response();
    };
    if Sent::checked(fields, &operator).is_none() {
        return forged();
    }
    operator.log(&visit, "verify a backup");
    let (pieces, come) = mpsc::channel(1);
    let file = Pieces { piece: first, come };
    let verifying = room.services().operate.verify(operator.client(&visit), file);
    let feeding = async move {
        let mut is_wanted = true;
        while let Some(piece) = next_piece(&mut body).await {
            // A browser shows no answer before it has sent everything.
            is_wanted = is_wanted && pieces.send(piece).await.is_ok();
        }
    };
    let (verified, ()) = tokio::join!(verifying, feeding);
    let age = room.services().operate.newest().borrow().backup_age.map(in_words);
    let frame = room.frame(&visit, &operator, "/admin/backups");
    let verified = Some(verified.map_err(|error| error.to_string()));
    respond(StatusCode::OK, &BackupsPage { frame, age, verified })
}

/// The fields before the file of a form, and the first bytes of the file.
async fn before_contents(body: &mut BodyDataStream, boundary: &str) -> Option<(Vec<(String, String)>, Bytes)> {
    let mut read = BytesMut::new();
    loop {
        read.extend_from_slice(&next_piece(body).await?);
        if let Some((fields, start)) = before_file(&read, boundary) {
            return Some((fields, read.freeze().slice(start..)));
        }
        if read.len() > FIELDS_BYTES_MAX {
            return None;
        }
    }
}

/// The next piece of a body; `None` at its end, and if none comes in time.
async fn next_piece(body: &mut BodyDataStream) -> Option<Bytes> {
    timeout(NEXT_PIECE, body.next()).await.ok()??.ok()
}

/// A body that a thread reads, which waits for its pieces.
struct Pieces {
    piece: Bytes,
    come: mpsc::Receiver<Bytes>,
}

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.come.blocking_recv() {
                Some(piece) => self.piece = piece,
                None => return Ok(0),
            }
        }
        let count = self.piece.len().min(into.len());
        into[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

/// Makes a backup, which the browser keeps.
pub(crate) async fn make(State(room): State<Room>, visit: Visit, operator: Operator, sent: Sent) -> Response {
    let (operate, client) = (room.services().operate.clone(), operator.client(&visit));
    let making = || -> Making {
        operator.log(&visit, "backup");
        Box::pin(async move { operate.backup(client).await })
    };
    let pieces = match room.backups().click(sent.once()).pieces(making).await {
        Ok(Some(pieces)) => pieces,
        Ok(None) => {
            let text = "This form has made its backup. Open the page anew for another one.".to_owned();
            return room.sorry(&visit, &operator, StatusCode::CONFLICT, "There is one backup", text);
        }
        Err(error) => {
            let text = format!("{error}.");
            return room.sorry(&visit, &operator, StatusCode::SERVICE_UNAVAILABLE, "There is no backup", text);
        }
    };
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = timestamp(i64::try_from(since.as_millis()).unwrap_or_default()).replace(':', "-");
    file(&format!("quire-{time}.backup"), "application/x-tar", Body::from_stream(pieces))
}

/// A file that the browser keeps.
pub(crate) fn file(name: &str, kind: &'static str, body: Body) -> Response {
    let mut response = ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "no-store")], body).into_response();
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{name}\"")) {
        response.headers_mut().insert(header::CONTENT_DISPOSITION, value);
    }
    response
}
