//! The HTTP side's part of the server's `OpenAPI` document.
//!
//! Implements: `OpenAPI` 3.1.1.

use serde_json::{Value, json};

use crate::rest::request::{MATCHING_HEADER, ROWS_HEADER};

fn parameter(name: &str, required: bool, description: &str, schema: &Value) -> Value {
    json!({ "name": name, "in": "query", "required": required, "description": description, "schema": schema })
}

fn parameters(names: Option<&[String]>) -> Value {
    let column = match names {
        Some(names) => json!({ "type": "string", "enum": names }),
        None => json!({ "type": "string" }),
    };
    let whole = json!({ "type": "integer", "minimum": 0, "maximum": 9_007_199_254_740_991_u64 });
    let share = json!({ "type": "number", "minimum": 0, "maximum": 1 });
    json!([
        parameter("headerKey", true, "A column's name.", &column),
        parameter(
            "headerValue",
            true,
            "Rows that hold exactly this in the column are answered.",
            &json!({ "type": "string" })
        ),
        parameter(
            "result_size",
            false,
            "The share of the matching rows to answer: the first ones, as many as result_size times their number, rounded down.",
            &share
        ),
        parameter("offset", false, "Rows to leave out at the start of that share.", &whole),
        parameter("limit", false, "Rows to answer then, at most.", &whole),
    ])
}

fn header(description: &str, kind: &str) -> Value {
    json!({ "description": description, "required": true, "schema": { "type": kind } })
}

fn refused(description: &str) -> Value {
    let schema = json!({ "$ref": "#/components/schemas/search.Refusal" });
    json!({ "description": description, "content": { "application/json": { "schema": schema } } })
}

fn responses(content_type: &str, schema: &Value, answer_bytes: usize) -> Value {
    let mut headers = serde_json::Map::new();
    headers.insert("ETag".to_owned(), header("The same whenever the answer is the same.", "string"));
    headers.insert("Vary".to_owned(), header("Answers are compressed as Accept-Encoding allows.", "string"));
    headers.insert(ROWS_HEADER.to_owned(), header("Rows in the answer.", "integer"));
    headers.insert(MATCHING_HEADER.to_owned(), header("Rows that match.", "integer"));
    let too_large = format!("The answer would have more than {answer_bytes} bytes; ask for pages.");
    json!({
        "200": { "description": "The matching rows, in the order of the file.", "headers": headers,
                 "content": { content_type: { "schema": schema } } },
        "304": { "description": "The caller has the answer already, as If-None-Match says.", "headers": headers },
        "400": refused("A parameter is missing, unknown or wrong, or there is no such column."),
        "413": refused(&too_large),
        "503": refused("There is no file to ask, or too many queries wait."),
    })
}

fn operations(name: &str, summary: &str, parameters: &Value, responses: &Value) -> Value {
    let operation = |id: String, responses: &Value| json!({ "operationId": id, "summary": summary, "parameters": parameters, "responses": responses });
    let mut bare = responses.clone();
    for response in bare.as_object_mut().into_iter().flat_map(serde_json::Map::values_mut) {
        // HEAD responses have the same headers and no content.
        response.as_object_mut().map(|response| response.remove("content"));
    }
    json!({ "get": operation(name.to_owned(), responses), "head": operation(format!("{name}_head"), &bare) })
}

/// The paths and their schemas; `names` are the columns of the loaded file.
pub(super) fn part(names: Option<&[String]>, answer_bytes: usize) -> Value {
    let parameters = parameters(names);
    let records = responses("application/json", &json!({ "$ref": "#/components/schemas/search.Answer" }), answer_bytes);
    let lines = responses("text/plain", &json!({ "type": "string" }), answer_bytes);
    let values = json!({ "type": "object", "additionalProperties": { "type": "string" }, "required": names.unwrap_or_default() });
    let count = json!({ "type": "integer", "minimum": 0 });
    json!({
        "paths": {
            "/search": operations("search", "Matching rows as objects.", &parameters, &records),
            "/search_string": operations("search_string", "Matching rows as lines of CSV.", &parameters, &lines),
        },
        "components": { "schemas": {
            "search.Answer": {
                "type": "object",
                "required": ["records", "num_record", "num_matching"],
                "additionalProperties": false,
                "properties": {
                    "records": { "type": "array", "items": values },
                    "num_record": count,
                    "num_matching": count,
                },
            },
            "search.Refusal": {
                "type": "object",
                "required": ["error"],
                "additionalProperties": false,
                "properties": { "error": { "type": "string" } },
            },
        } },
    })
}
