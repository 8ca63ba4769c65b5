//! A service as a server takes it: its name and its methods.
//!
//! Must not know how they are called.
//!
//! Implements: no specification.

use std::sync::Arc;

use super::method::Method;
use crate::status::Status;

/// A gRPC service, as generated code implements it.
pub trait Service {
    /// `package.Service`.
    fn name(&self) -> &'static str;
    /// Its methods.
    fn methods(self) -> Vec<Method>;
    /// Its contract and all files that it imports: an encoded `FileDescriptorSet`. Empty if there is none; reflection and
    /// JSON then do not know the service.
    fn descriptors(&self) -> &'static [u8] {
        &[]
    }
}

/// A service that cannot serve: every call of it fails with the same status.
#[derive(Clone, Debug)]
pub struct RefusedService {
    /// `package.Service`.
    pub name: &'static str,
    /// The paths of its methods.
    pub methods: &'static [&'static str],
    /// Its contract, as [`Service::descriptors`] has it.
    pub descriptors: &'static [u8],
    /// What every caller is told.
    pub status: Status,
}

impl Service for RefusedService {
    fn name(&self) -> &'static str {
        self.name
    }

    fn methods(self) -> Vec<Method> {
        let status = Arc::new(self.status);
        let names = self.methods.iter().filter_map(|path| path.rsplit('/').next());
        names.map(|name| Method::refused(name, Arc::clone(&status))).collect()
    }

    fn descriptors(&self) -> &'static [u8] {
        self.descriptors
    }
}
