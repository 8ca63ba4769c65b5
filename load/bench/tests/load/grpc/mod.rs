//! The gRPC workload against the engine's test services.

mod calls;
mod fit;
mod inputs;
mod support;
