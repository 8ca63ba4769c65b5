//! The `OpenAPI` document of a server: each method of its services in Connect's JSON form, and the services' own HTTP
//! paths. Must not know any service, nor how anything is served.
//!
//! Implements: `OpenAPI` 3.1.1; schemas are JSON Schema 2020-12.

mod calls;
mod contracts;
mod schema;

use base64::{Engine as _, prelude::BASE64_STANDARD as STANDARD};
use quire_rpc::prost::DecodeError;
use ring::digest::{SHA256, digest};
use serde_json::{Value, json};

use self::{
    calls::Calls,
    contracts::{Contracts, Service},
    schema::Schemas,
};

/// A page that shows the document at `/openapi.json` and can make its calls. `links` are names and paths of other pages
/// of the server, without characters that HTML escapes.
///
/// Its policy names its style and its script by their sums (Content Security Policy Level 3), so that nothing else runs.
pub fn page(links: &[(&str, &str)]) -> String {
    let page = include_str!("page.html");
    let sum = |tag: &str| {
        let inside = page.split_once(&format!("<{tag}>")).and_then(|(_, rest)| rest.split_once(&format!("</{tag}>")));
        let (inside, _) = inside.unwrap_or_default();
        format!("sha256-{}", STANDARD.encode(digest(&SHA256, inside.as_bytes())))
    };
    let links: Vec<String> = links.iter().map(|(name, path)| format!("<a href=\"{path}\">{name}</a>")).collect();
    page.replacen("STYLE", &sum("style"), 1).replacen("SCRIPT", &sum("script"), 1).replacen("LINKS", &links.concat(), 1)
}

const ABOUT: &str = "Every method answers a POST in JSON. A method that changes nothing answers a GET as well, which \
caches may keep. The same paths speak gRPC, gRPC-Web and Connect, in protobuf and JSON. A method that streams is named \
under its service, in `x-streams`: it speaks the same protocols, each message in an envelope of its own.\n\n\
JSON is protobuf's: a 64-bit integer is a string, bytes are in base64, an enum's value is its name, and a field that has \
its default value is left out. A reader accepts `null` and unknown members as well, and ignores them. The header \
`connect-timeout-ms` is a deadline.";

/// Builds the document of these services; `sets` are encoded `FileDescriptorSet`s with their contracts. Services that
/// are in no set are omitted.
pub fn document(title: &str, version: &str, sets: &[&[u8]], services: &[String]) -> Result<Value, DecodeError> {
    let contracts = Contracts::read(sets)?;
    let mut schemas = Schemas::new(&contracts);
    let served: Vec<&Service> = services.iter().filter_map(|name| contracts.service(name)).collect();
    let Calls { paths, tags } = calls::of(&served, &mut schemas);
    let mut components = calls::components();
    add(&mut components, &json!({ "schemas": schemas.into_components() }));
    Ok(json!({
        "openapi": "3.1.1",
        "info": {
            "title": title,
            "version": version,
            "description": ABOUT,
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "tags": tags,
        "paths": paths,
        "components": components,
    }))
}

/// Merges `part` into `document`: members of objects and items of arrays. Other values of the document are kept.
pub fn add(document: &mut Value, part: &Value) {
    match (document, part) {
        (Value::Object(all), Value::Object(more)) => {
            for (name, value) in more {
                match all.get_mut(name) {
                    Some(there) => add(there, value),
                    None => drop(all.insert(name.clone(), value.clone())),
                }
            }
        }
        (Value::Array(all), Value::Array(more)) => all.extend(more.iter().cloned()),
        _ => {}
    }
}
