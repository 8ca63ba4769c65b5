//! Errors of opening and serving.

/// Reason why a service cannot be opened or served. The text is for the operator.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
