//! The record queries on this server. Must not hold a rule; those are in the crate `records`.

use ::records::{
    LoadError, Settings,
    grpc::{ReaderGrpc, SERVICES, StreamGrpc, wire},
    rest,
};
use grpc::{health::HealthReporter, reflection::Reflection, server::Builder};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::{counter::ConstCounter, gauge::ConstGauge},
};
use wire::{reader_service_server::ReaderServiceServer, record_stream_service_server::RecordStreamServiceServer};

use crate::http::Site;

/// The service, opened.
#[derive(Clone, Debug)]
pub(crate) struct Records {
    records: ::records::Records,
}

impl Records {
    /// Loads the file.
    pub(crate) async fn open(settings: Settings) -> anyhow::Result<Self> {
        let opening = tokio::task::spawn_blocking(move || ::records::Records::open(settings));
        Ok(Self { records: opening.await?? })
    }

    /// Whether there is a file to load.
    pub(crate) fn has_file(&self) -> bool {
        self.records.is_loaded()
    }

    /// Loads the file anew; what it held before is served until that is done, and after a failure.
    pub(crate) async fn reload(&self) {
        let records = self.records.clone();
        match tokio::task::spawn_blocking(move || records.reload()).await {
            Ok(Ok(())) => tracing::info!("records are loaded anew"),
            Ok(Err(error)) => not_reloaded(&error),
            Err(error) => tracing::error!(%error, "loading records anew ended"),
        }
    }

    pub(crate) fn serve_on(&self, builder: Builder) -> Builder {
        builder
            .add_service(ReaderServiceServer::new(ReaderGrpc::new(self.records.clone())))
            .add_service(RecordStreamServiceServer::new(StreamGrpc::new(self.records.clone())))
    }

    /// Adds the service to what a port tells of itself.
    pub(crate) fn describe(&self, health: &HealthReporter, contracts: Reflection) -> anyhow::Result<Reflection> {
        for service in SERVICES {
            health.set_serving(service, self.records.is_loaded());
        }
        Ok(contracts.descriptors(wire::DESCRIPTORS)?)
    }

    /// The HTTP side.
    pub(crate) fn site(&self) -> Site {
        let what = [
            "records whose column headerKey is headerValue, as JSON",
            "the same as one string of text",
            "the contract of both, in OpenAPI",
        ];
        let pages = rest::PATHS.into_iter().zip(what).collect();
        Site { router: rest::router(self.records.clone()), pages }
    }
}

fn not_reloaded(error: &LoadError) {
    tracing::error!(%error, "records were not loaded anew; those there were are still served");
}

impl Collector for Records {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let levels = self.records.levels();
        let wide = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let gauges = [
            ("records_rows", "Rows of the records' file", wide(levels.rows)),
            ("records_bytes", "Memory of the loaded file, as records.total_bytes counts it", wide(levels.bytes)),
            ("records_cache_bytes", "Memory of compressed answers", wide(levels.cache_bytes)),
            ("records_kept_bytes", "Memory of answers kept in one piece", wide(levels.kept_bytes)),
            (
                "records_jobs_queued",
                "Record queries that wait for a thread",
                i64::try_from(levels.jobs_queued).unwrap_or(i64::MAX),
            ),
        ];
        for (name, help, level) in gauges {
            let gauge = ConstGauge::new(level);
            gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
        }
        let counters = [
            ("records_reloads", "Times the records' file was loaded anew", levels.reloads),
            ("records_reload_failures", "Times that loading the records' file anew failed", levels.reload_failures),
            ("records_rest_answers", "Record queries over HTTP that were answered", levels.rest_answers[0]),
            ("records_rest_refusals", "Record queries over HTTP that were refused", levels.rest_answers[1]),
        ];
        for (name, help, count) in counters {
            let counter = ConstCounter::new(count);
            counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
        }
        Ok(())
    }
}
