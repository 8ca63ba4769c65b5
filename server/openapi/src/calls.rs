//! Methods as paths, and the form of failed calls.
//!
//! Implements: Connect's "Unary-Request", "Unary-Get-Request" and "Error Codes".

use std::collections::BTreeMap;

use quire_rpc::{
    Code,
    prost_types::{MethodDescriptorProto, MethodOptions, method_options::IdempotencyLevel},
};
use serde_json::{Map, Value, json};

use crate::{contracts::Service, schema::Schemas};

/// The document's part about methods.
pub(crate) struct Calls {
    pub(crate) paths: Map<String, Value>,
    /// The services, in order, with their streaming methods.
    pub(crate) tags: Vec<Value>,
}

pub(crate) fn of(services: &[&Service], schemas: &mut Schemas<'_>) -> Calls {
    let mut calls = Calls { paths: Map::new(), tags: Vec::new() };
    for service in services {
        let mut streams = Vec::new();
        for (place, method) in service.descriptor.method.iter().enumerate() {
            let path = format!("/{}/{}", service.name, method.name());
            let comment = service.comment_of(place);
            if method.client_streaming() || method.server_streaming() {
                streams.push(stream(&path, method, comment, schemas));
            } else {
                calls.paths.insert(path, operations(service, method, comment, schemas));
            }
        }
        let mut tag = json!({ "name": service.name, "description": service.comment() });
        if !streams.is_empty() {
            tag["x-streams"] = streams.into();
        }
        calls.tags.push(tag);
    }
    calls
}

/// A streaming method. Its bodies are envelopes around JSON, which no schema describes.
fn stream(path: &str, method: &MethodDescriptorProto, comment: &str, schemas: &mut Schemas<'_>) -> Value {
    json!({
        "path": path,
        "description": comment,
        "contentType": "application/connect+json",
        "request": schemas.refer(method.input_type()),
        "requestStreams": method.client_streaming(),
        "answer": schemas.refer(method.output_type()),
        "answerStreams": method.server_streaming(),
    })
}

fn operations(service: &Service, method: &MethodDescriptorProto, comment: &str, schemas: &mut Schemas<'_>) -> Value {
    let request = json!({ "application/json": { "schema": schemas.refer(method.input_type()) } });
    let answer = json!({ "application/json": { "schema": schemas.refer(method.output_type()) } });
    let mut responses = json!({
        "200": { "description": "The answer.", "content": answer },
        "415": { "description": "The request is neither JSON nor protobuf." },
    });
    for status in statuses().keys() {
        responses[status.to_string()] = json!({ "$ref": format!("#/components/responses/Error{status}") });
    }
    let operation = |suffix: &str| {
        json!({
            "operationId": format!("{}.{}{suffix}", service.name, method.name()),
            "tags": [service.name],
            "summary": summary(method, comment),
            "description": comment,
            "responses": responses,
        })
    };
    let mut post = operation("");
    post["requestBody"] = json!({ "required": true, "content": request });
    let level = method.options.as_ref().map(MethodOptions::idempotency_level);
    if level != Some(IdempotencyLevel::NoSideEffects) {
        return json!({ "post": post });
    }
    let mut get = operation(".get");
    get["parameters"] = json!([
        { "name": "connect", "in": "query", "description": "The protocol's version.", "schema": { "const": "v1" } },
        { "name": "encoding", "in": "query", "required": true, "schema": { "const": "json" } },
        { "name": "message", "in": "query", "required": true, "content": request },
    ]);
    json!({ "get": get, "post": post })
}

/// The comment's first sentence, or the method's name without one.
fn summary(method: &MethodDescriptorProto, comment: &str) -> String {
    match comment.split_inclusive(". ").next() {
        Some(first) if !first.trim().is_empty() => first.trim().to_owned(),
        _ => method.name().to_owned(),
    }
}

/// HTTP statuses of failed calls, each with its codes.
fn statuses() -> BTreeMap<u16, Vec<Code>> {
    let mut statuses: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in Code::ALL.into_iter().filter(|code| *code != Code::Ok) {
        statuses.entry(code.http_status()).or_default().push(code);
    }
    statuses
}

/// Responses and schemas of failed calls.
pub(crate) fn components() -> Value {
    let schema = json!({ "$ref": "#/components/schemas/connect.Error" });
    let mut responses = Map::new();
    for (status, codes) in statuses() {
        let codes: Vec<String> = codes.iter().map(|code| format!("`{}`", code.connect_name())).collect();
        let content = json!({ "application/json": { "schema": schema } });
        let description = format!("The call failed: {}.", codes.join(", "));
        responses.insert(format!("Error{status}"), json!({ "description": description, "content": content }));
    }
    let codes: Vec<String> = statuses().into_values().flatten().map(Code::connect_name).collect();
    json!({
        "responses": responses,
        "schemas": {
            "connect.Error": {
                "type": "object",
                "description": "A call that failed.",
                "required": ["code"],
                "properties": {
                    "code": { "type": "string", "enum": codes },
                    "message": { "type": "string", "description": "For people: what happened, and what to do." },
                    "details": { "type": "array", "items": { "$ref": "#/components/schemas/connect.ErrorDetail" } },
                },
            },
            "connect.ErrorDetail": {
                "type": "object",
                "description": "For programs: a message of the type that it names.",
                "required": ["type", "value"],
                "properties": {
                    "type": { "type": "string", "description": "The message's full name." },
                    "value": { "type": "string", "contentEncoding": "base64", "description": "Protobuf, without padding." },
                },
            },
        },
    })
}
