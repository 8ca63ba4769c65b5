//! Everything that was measured, as rows of CSV.

use super::Measurements;
use crate::lab::Results;

/// A row a run.
pub(super) fn runs(results: &Results) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record([
        "load",
        "server",
        "round",
        "requests",
        "seconds",
        "requests_per_second",
        "bytes_a_request",
        "mean_us",
        "p50_us",
        "p90_us",
        "p99_us",
        "first_byte_p50_us",
        "first_byte_p99_us",
        "server_cpu_us_a_request",
        "client_cpu_us_a_request",
        "client_busy_max",
        "doubts",
    ])?;
    for one in results.all() {
        let (response, first_byte) = (&one.run.response, &one.run.first_byte);
        rows.write_record([
            one.load.clone(),
            one.subject.to_owned(),
            one.round.to_string(),
            one.run.requests.to_string(),
            one.run.seconds.to_string(),
            one.run.rate.to_string(),
            one.bytes_a_request().to_string(),
            response.mean_us().to_string(),
            response.quantile_us(0.5).to_string(),
            response.quantile_us(0.9).to_string(),
            response.quantile_us(0.99).to_string(),
            first_byte.quantile_us(0.5).to_string(),
            first_byte.quantile_us(0.99).to_string(),
            one.server_cpu_us().to_string(),
            one.client_cpu_us().to_string(),
            one.run.client_busy_max.to_string(),
            one.run.verdict.reasons.join("; "),
        ])?;
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}

/// A row a query of the databases.
pub(super) fn queries(measured: &Measurements) -> anyhow::Result<String> {
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(["engine", "round", "query", "rows_ms", "json_ms"])?;
    for asked in &measured.engines {
        for (query, (rows_ms, json_ms)) in asked.rows_ms.iter().zip(&asked.json_ms).enumerate() {
            rows.write_record([
                asked.engine.clone(),
                asked.round.to_string(),
                query.to_string(),
                rows_ms.to_string(),
                json_ms.to_string(),
            ])?;
        }
    }
    Ok(String::from_utf8(rows.into_inner()?)?)
}
