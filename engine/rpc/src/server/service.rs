//! The service trait of a server: name and methods.

use std::sync::Arc;

use super::method::Method;
use crate::status::Status;

/// A gRPC service, as generated code implements it.
pub trait Service {
    /// `package.Service`.
    fn name(&self) -> &'static str;
    /// Its methods.
    fn methods(self) -> Vec<Method>;
    /// Its contract and all imported files: an encoded `FileDescriptorSet`. Empty if there is none; the service is then
    /// missing from reflection and JSON.
    fn descriptors(&self) -> &'static [u8] {
        &[]
    }
}

/// An unavailable service: every call fails with the same status.
#[derive(Clone, Debug)]
pub struct RefusedService {
    /// `package.Service`.
    pub name: &'static str,
    /// The paths of its methods.
    pub methods: &'static [&'static str],
    /// Its contract, as in [`Service::descriptors`].
    pub descriptors: &'static [u8],
    /// Status of every call.
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
