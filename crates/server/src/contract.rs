//! `/openapi.json`, and the page `/openapi` that explores it: what is answered over HTTP. Must not know any service.

use std::sync::Arc;

use axum::{
    extract::State,
    http::header,
    response::{Html, IntoResponse},
    routing::get,
};
use hosting::{Error, Route, Site};
use quire_rpc::server::Builder;
use serde_json::{Value, json};

/// Makes the document; the services' parts may change with what they have loaded.
type Make = Arc<dyn Fn() -> Value + Send + Sync>;

/// Adds both pages to a site. The document has the methods of `builder`, the parts of the site, and its other pages.
pub(crate) fn add_to(mut site: Site, builder: &Builder) -> Result<Site, Error> {
    let mut fixed = openapi::document("Quire", env!("CARGO_PKG_VERSION"), &builder.descriptors(), builder.services())?;
    let own = [("/openapi", "every method and path, to try out"), ("/openapi.json", "the same as an OpenAPI document")];
    let parts = std::mem::take(&mut site.parts);
    let described: Vec<Value> = parts.iter().map(|part| part()).collect();
    let is_described = |path: &str| described.iter().any(|part| part["paths"].get(path).is_some());
    for (path, what) in site.pages.iter().chain(&own).filter(|(path, _)| !is_described(path)) {
        fixed["paths"][path] = page(path, what);
    }
    let make: Make = Arc::new(move || {
        let mut document = fixed.clone();
        for part in &parts {
            openapi::add(&mut document, &part());
        }
        document
    });
    let [(page, about_page), (document, about_document)]: [Route<&str>; 2] = own;
    let handlers = [(page, get(Html(openapi::PAGE)), about_page), (document, get(answer), about_document)];
    Ok(site.and(Site::new(make, handlers)))
}

/// A path that the document names without its details.
fn page(path: &str, what: &str) -> Value {
    let responses = json!({ "default": { "description": what } });
    json!({ "get": { "operationId": path, "summary": what, "responses": responses } })
}

async fn answer(State(make): State<Make>) -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], make().to_string())
}
