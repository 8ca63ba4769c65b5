//! The gRPC workload against the engine's test services.

mod calls;
mod inputs;
mod support;
