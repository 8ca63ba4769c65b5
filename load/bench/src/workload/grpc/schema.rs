//! Contracts: from a `.proto` file, or from a server by reflection (gRPC's "Server Reflection Protocol"): v1, or v1alpha
//! if that is all it has.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use prost_reflect::{DescriptorPool, MethodDescriptor, ServiceDescriptor};
use proto::ServerReflectionRequest;
use proto::server_reflection_request::MessageRequest;
use proto::server_reflection_response::MessageResponse;
use protox::file::{FileResolver, GoogleFileResolver};
use quire_rpc::client::{self, Channel};
use quire_rpc::{Code, Request, Status, unfold};
use strsim::levenshtein;

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
        let mut server = Client::new(channel.clone());
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

mod proto {
    quire_rpc::include_proto!("grpc.reflection.v1");
}

/// Maximum files of one contract, because a server might always name another one.
pub const DESCRIPTOR_FILES_MAX: usize = 4096;

static V1: client::Path = client::Path::new("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
static V1_ALPHA: client::Path = client::Path::new("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");

/// Reflection client of one server.
pub(super) struct Client {
    channel: Channel,
    path: &'static client::Path,
}

impl Client {
    pub(super) fn new(channel: Channel) -> Self {
        Self { channel, path: &V1 }
    }

    /// Files of a service and its dependencies; `None` if the server has no such service.
    pub(super) async fn files_of(&mut self, service: &str) -> anyhow::Result<Option<Vec<FileDescriptorProto>>> {
        let mut files = BTreeMap::new();
        match self.ask(MessageRequest::FileContainingSymbol(service.to_owned())).await? {
            Some(MessageResponse::FileDescriptorResponse(found)) => add(&mut files, found.file_descriptor_proto)?,
            Some(_) => return Err(unexpected()),
            None => return Ok(None),
        }
        let mut asked = BTreeSet::new();
        while let Some(missing) = missing(&files) {
            if !asked.insert(missing.clone()) || files.len() > DESCRIPTOR_FILES_MAX {
                bail!("reflection failed: the server has no file {missing}, which its contract needs");
            }
            match self.ask(MessageRequest::FileByFilename(missing.clone())).await? {
                Some(MessageResponse::FileDescriptorResponse(found)) => add(&mut files, found.file_descriptor_proto)?,
                Some(_) => return Err(unexpected()),
                // Many servers leave out the files that every compiler includes.
                None => {
                    if let Ok(standard) = GoogleFileResolver::new().open_file(&missing) {
                        files.insert(missing, standard.file_descriptor_proto().clone());
                    }
                }
            }
        }
        Ok(Some(files.into_values().collect()))
    }

    /// Full names of the server's services.
    pub(super) async fn services(&mut self) -> anyhow::Result<Vec<String>> {
        match self.ask(MessageRequest::ListServices(String::new())).await? {
            Some(MessageResponse::ListServicesResponse(list)) => {
                Ok(list.service.into_iter().map(|one| one.name).collect())
            }
            _ => Err(unexpected()),
        }
    }

    /// Sends one question; `None` if the server does not know the name.
    async fn ask(&mut self, question: MessageRequest) -> anyhow::Result<Option<MessageResponse>> {
        let answer = match self.ask_at(self.path, question.clone()).await {
            Err(status) if status.code() == Code::Unimplemented && std::ptr::eq(self.path, &raw const V1) => {
                self.path = &V1_ALPHA;
                self.ask_at(self.path, question).await
            }
            answer => answer,
        };
        match answer {
            Ok(MessageResponse::ErrorResponse(error)) if error.error_code == Code::NotFound as i32 => Ok(None),
            Ok(MessageResponse::ErrorResponse(error)) => bail!("reflection failed: {}", error.error_message),
            Ok(answer) => Ok(Some(answer)),
            Err(status) if status.code() == Code::Unimplemented => {
                bail!("the server does not offer reflection: name its contract with --proto FILE")
            }
            Err(status) => bail!("reflection failed: {status}"),
        }
    }

    async fn ask_at(&self, path: &'static client::Path, question: MessageRequest) -> Result<MessageResponse, Status> {
        let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let questions =
            unfold(Some(question), |question: Option<_>| std::future::ready(question.map(|question| (question, None))));
        let reply = self.channel.bidi_streaming(path, Request::new(questions)).await?;
        let mut replies = reply.into_inner();
        let reply: Option<proto::ServerReflectionResponse> = replies.message().await?;
        reply.and_then(|reply| reply.message_response).ok_or_else(|| Status::internal("the server did not answer"))
    }
}

fn unexpected() -> anyhow::Error {
    anyhow!("reflection failed: the server answered another question than was asked")
}

fn add(files: &mut BTreeMap<String, FileDescriptorProto>, encoded: Vec<Vec<u8>>) -> anyhow::Result<()> {
    for encoded in encoded {
        let file = FileDescriptorProto::decode(&encoded[..])
            .context("reflection failed: what the server sent is not a file descriptor")?;
        files.insert(file.name().to_owned(), file);
    }
    Ok(())
}

/// A missing dependency.
fn missing(files: &BTreeMap<String, FileDescriptorProto>) -> Option<String> {
    files.values().flat_map(|file| &file.dependency).find(|name| !files.contains_key(*name)).cloned()
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
