//! What a server's contract says of a method: from its `.proto` files, or asked of the server by reflection.

use std::path::{Path, PathBuf};

use grpc::client::Channel;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};

use super::nearest::listed;
use super::{Shape, reflection};

/// A method that is not to be found.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The name is not of the form `package.Service/Method`.
    #[error("{0:?} does not name a method: write package.Service/Method")]
    Name(String),
    /// `--proto` cannot be used.
    #[error("--proto {}: {reason}", path.display())]
    Proto {
        /// As given.
        path: PathBuf,
        /// The compiler's words.
        reason: String,
    },
    /// The server does not tell its contracts.
    #[error("the server does not offer reflection: name its contract with --proto FILE")]
    NoReflection,
    /// Reflection failed.
    #[error("reflection failed: {0}")]
    Reflection(String),
    /// No such service.
    #[error("there is no service {name}: the contract has {there}")]
    Service {
        /// As given.
        name: String,
        /// Those there are, the nearest first.
        there: String,
    },
    /// No such method.
    #[error("{service} has no method {name}: it has {there}")]
    Method {
        /// As given.
        name: String,
        /// Full name of the service.
        service: String,
        /// Those there are, the nearest first.
        there: String,
    },
}

/// Descriptors of services and all they need.
#[derive(Clone, Debug)]
pub struct Schema {
    pool: DescriptorPool,
}

/// Service and method of `package.Service/Method`; a dot for the slash and a leading slash are taken too.
pub fn split_method(name: &str) -> Result<(&str, &str), SchemaError> {
    let trimmed = name.trim_start_matches('/');
    let split = trimmed.split_once('/').or_else(|| trimmed.rsplit_once('.'));
    let legal = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    split.filter(|(service, method)| legal(service) && legal(method)).ok_or_else(|| SchemaError::Name(name.to_owned()))
}

impl Schema {
    /// Compiles a `.proto` file; without import paths, its own folder is one.
    pub fn from_proto(file: &Path, imports: &[PathBuf]) -> Result<Self, SchemaError> {
        let failed = |error: protox::Error| SchemaError::Proto {
            path: file.to_owned(),
            reason: first_line(&format!("{error:?}")),
        };
        let own = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let includes: Vec<&Path> =
            if imports.is_empty() { vec![own] } else { imports.iter().map(PathBuf::as_path).collect() };
        let mut compiler = protox::Compiler::new(includes).map_err(failed)?;
        compiler.include_imports(true).open_file(file).map_err(failed)?;
        Ok(Self { pool: compiler.descriptor_pool() })
    }

    /// Asks the server for `service` and all it needs.
    pub async fn by_reflection(channel: &Channel, service: &str) -> Result<Self, SchemaError> {
        let mut server = reflection::Client::new(channel.clone());
        let Some(files) = server.files_of(service).await? else {
            let names = server.services().await?;
            let there = listed(names.iter().map(String::as_str), service);
            return Err(SchemaError::Service { name: service.to_owned(), there });
        };
        let mut pool = DescriptorPool::new();
        let unsound = |error| SchemaError::Reflection(format!("the server's contract is unsound: {error}"));
        pool.add_file_descriptor_protos(files).map_err(unsound)?;
        Ok(Self { pool })
    }

    /// The method of these names.
    pub fn method(&self, service: &str, method: &str) -> Result<MethodDescriptor, SchemaError> {
        let Some(found) = self.pool.get_service_by_name(service) else {
            let services: Vec<ServiceDescriptor> = self.pool.services().collect();
            let there = listed(services.iter().map(ServiceDescriptor::full_name), service);
            return Err(SchemaError::Service { name: service.to_owned(), there });
        };
        let methods: Vec<MethodDescriptor> = found.methods().collect();
        let there = || listed(methods.iter().map(MethodDescriptor::name), method);
        methods.iter().find(|candidate| candidate.name() == method).cloned().ok_or_else(|| SchemaError::Method {
            name: method.to_owned(),
            service: service.to_owned(),
            there: there(),
        })
    }
}

impl From<&MethodDescriptor> for Shape {
    fn from(method: &MethodDescriptor) -> Self {
        Self { client_streams: method.is_client_streaming(), server_streams: method.is_server_streaming() }
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}
