//! The contract of a method, from `.proto` files or by reflection.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use quire_rpc::client::Channel;
use strsim::levenshtein;

use super::reflection;

/// Descriptors of services and their dependencies.
#[derive(Clone, Debug)]
pub struct Schema {
    pool: DescriptorPool,
}

/// Splits `package.Service/Method`; a dot for the slash and a leading slash are accepted too.
pub fn split_method(name: &str) -> anyhow::Result<(&str, &str)> {
    let trimmed = name.trim_start_matches('/');
    let split = trimmed.split_once('/').or_else(|| trimmed.rsplit_once('.'));
    let legal = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    split
        .filter(|(service, method)| legal(service) && legal(method))
        .with_context(|| format!("{name:?} does not name a method: write package.Service/Method"))
}

impl Schema {
    /// Compiles a `.proto` file; without import paths, its own folder is one.
    pub fn from_proto(file: &Path, imports: &[PathBuf]) -> anyhow::Result<Self> {
        let failed = |error: protox::Error| {
            let reason = format!("{error:?}");
            anyhow!("--proto {}: {}", file.display(), reason.lines().next().unwrap_or_default())
        };
        let own = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let includes: Vec<&Path> =
            if imports.is_empty() { vec![own] } else { imports.iter().map(PathBuf::as_path).collect() };
        let mut compiler = protox::Compiler::new(includes).map_err(failed)?;
        compiler.include_imports(true).open_file(file).map_err(failed)?;
        Ok(Self { pool: compiler.descriptor_pool() })
    }

    /// Reads `service` and its dependencies from the server.
    pub async fn by_reflection(channel: &Channel, service: &str) -> anyhow::Result<Self> {
        let mut server = reflection::Client::new(channel.clone());
        let Some(files) = server.files_of(service).await? else {
            let names = server.services().await?;
            bail!(no_service(names.iter().map(String::as_str), service));
        };
        let mut pool = DescriptorPool::new();
        pool.add_file_descriptor_protos(files).context("reflection failed: the server's contract is not valid")?;
        Ok(Self { pool })
    }

    /// Finds a method by its names.
    pub fn method(&self, service: &str, method: &str) -> anyhow::Result<MethodDescriptor> {
        let Some(found) = self.pool.get_service_by_name(service) else {
            let services: Vec<ServiceDescriptor> = self.pool.services().collect();
            bail!(no_service(services.iter().map(ServiceDescriptor::full_name), service));
        };
        let methods: Vec<MethodDescriptor> = found.methods().collect();
        methods.iter().find(|candidate| candidate.name() == method).cloned().with_context(|| {
            let names = listed(methods.iter().map(MethodDescriptor::name), method);
            format!("{service} has no method {method}: it has {names}")
        })
    }
}

/// Streaming sides of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The request is a stream of messages.
    pub client_streams: bool,
    /// The answer is a stream of messages.
    pub server_streams: bool,
}

impl Shape {
    /// One message each way.
    pub const UNARY: Self = Self { client_streams: false, server_streams: false };
}

impl From<&MethodDescriptor> for Shape {
    fn from(method: &MethodDescriptor) -> Self {
        Self { client_streams: method.is_client_streaming(), server_streams: method.is_server_streaming() }
    }
}

fn no_service<'a>(names: impl Iterator<Item = &'a str>, service: &str) -> String {
    format!("there is no service {service}: the contract has {}", listed(names, service))
}

/// Maximum names listed in an error.
const LISTED_MAX: usize = 20;

/// Lists the names for an error, those most similar to `wanted` first.
pub(super) fn listed<'a>(names: impl IntoIterator<Item = &'a str>, wanted: &str) -> String {
    let mut names: Vec<&str> = names.into_iter().collect();
    if names.is_empty() {
        return "nothing".to_owned();
    }
    let wanted = wanted.to_lowercase();
    names.sort_by_cached_key(|name| levenshtein(&name.to_lowercase(), &wanted));
    let more = names.len().saturating_sub(LISTED_MAX);
    let list = names[..names.len() - more].join(", ");
    if more == 0 { list } else { format!("{list} and {more} more") }
}

#[cfg(test)]
mod nearest_tests {
    use super::*;

    #[test]
    fn nearest_name_comes_first() {
        assert_eq!(listed(["Search", "Hello", "Buy"], "buyy"), "Buy, Hello, Search");
        assert_eq!(listed([], "x"), "nothing");
    }

    #[test]
    fn long_list_is_cut() {
        let names: Vec<String> = (0..30).map(|n| format!("n{n:02}")).collect();
        let list = listed(names.iter().map(String::as_str), "n");
        assert!(list.ends_with(" and 10 more") && list.matches(", ").count() == LISTED_MAX - 1, "{list}");
    }
}
