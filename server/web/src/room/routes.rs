//! Paths of the room.

use axum::{
    Router,
    extract::{DefaultBodyLimit, State},
    http::StatusCode,
    middleware,
    response::Response,
    routing::{get, post},
};

use super::{
    backups, catalogue, door, export, import, keys, log, operator::Operator, overview, query, sales, settings,
    state::Room, upload::UPLOAD_BYTES_MAX, work,
};
use crate::{routes::guarded, visit::Visit};

/// Most bytes of a form: a value of 64 KiB, each byte of which may take three characters.
const FORM_BYTES_MAX: usize = 256 << 10;

/// The pages, which admit their callers themselves.
pub(crate) fn router(room: &Room) -> Router {
    let pages = Router::new()
        .route("/admin", get(overview::overview))
        .route(door::LIVE, get(overview::live))
        .route("/admin/cut", post(overview::cut))
        .route("/admin/errors", get(overview::errors))
        .route("/admin/sign-out", post(door::sign_out))
        .route("/admin/catalogue", get(catalogue::catalogue))
        .route("/admin/catalogue/book", get(catalogue::book))
        .route("/admin/catalogue/restock-all", post(catalogue::restock_all))
        .route("/admin/catalogue/restock", post(catalogue::restock))
        .route("/admin/catalogue/edit", post(catalogue::edit))
        .route("/admin/catalogue/list", post(catalogue::list))
        .route("/admin/catalogue/add", get(catalogue::add_form).post(catalogue::add))
        .route("/admin/catalogue/export", get(export::catalogue))
        .route("/admin/catalogue/import/apply", post(import::apply))
        .route("/admin/log/export", get(export::log_file))
        .route("/admin/sales", get(sales::sales))
        .route("/admin/log", get(log::log))
        .route("/admin/keys", get(keys::keys))
        .route("/admin/keys/entry", get(keys::entry))
        .route("/admin/keys/create", post(keys::create))
        .route("/admin/keys/change", post(keys::change))
        .route("/admin/records", get(query::query_box))
        .route("/admin/work", get(work::work))
        .route("/admin/backups", get(backups::backups).post(backups::make))
        .route("/admin/settings", get(settings::settings))
        .route("/admin/settings/reload", post(settings::reload))
        .fallback(nothing_here);
    let files = Router::new()
        .route("/admin/catalogue/import", get(import::form).post(import::preview))
        .layer(DefaultBodyLimit::max(UPLOAD_BYTES_MAX));
    // Of any size: it is read in pieces.
    let backup = Router::new().route("/admin/backups/verify", post(backups::verify)).layer(DefaultBodyLimit::disable());
    let pages = pages
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX))
        .merge(files)
        .merge(backup)
        .layer(middleware::from_fn_with_state(room.clone(), door::admit));
    let open = Router::new()
        .route("/admin/sign-in", get(door::sign_in_page).post(door::sign_in))
        .layer(DefaultBodyLimit::max(FORM_BYTES_MAX));
    open.merge(pages).with_state(room.clone()).layer(middleware::map_response(guarded))
}

async fn nothing_here(State(room): State<Room>, visit: Visit, operator: Operator) -> Response {
    let text = "The address may have a slip in it.".to_owned();
    room.sorry(&visit, &operator, StatusCode::NOT_FOUND, "There is no such page", text)
}
