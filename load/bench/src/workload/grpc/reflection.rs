//! Reads contracts from a server (gRPC's "Server Reflection Protocol"): v1, or v1alpha if that is all it has.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::task::{Context, Poll};

use anyhow::{Context as _, anyhow, bail};
use prost_reflect::prost::Message as _;
use prost_reflect::prost_types::FileDescriptorProto;
use protox::file::{FileResolver, GoogleFileResolver};
use quire_rpc::client::{Channel, Path};
use quire_rpc::{Code, Request, Status, Stream};

use proto::ServerReflectionRequest;
use proto::server_reflection_request::MessageRequest;
use proto::server_reflection_response::MessageResponse;

mod proto {
    quire_rpc::include_proto!("grpc.reflection.v1");
}

/// Maximum files of one contract, because a server might always name another one.
pub const DESCRIPTOR_FILES_MAX: usize = 4096;

static V1: Path = Path::new("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo");
static V1_ALPHA: Path = Path::new("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");

/// Reflection client of one server.
pub(super) struct Client {
    channel: Channel,
    path: &'static Path,
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

    async fn ask_at(&self, path: &'static Path, question: MessageRequest) -> Result<MessageResponse, Status> {
        let question = ServerReflectionRequest { host: String::new(), message_request: Some(question) };
        let reply = self.channel.bidi_streaming(path, Request::new(Once(Some(question)))).await?;
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

/// A stream of one message.
struct Once(Option<ServerReflectionRequest>);

impl Stream for Once {
    type Item = ServerReflectionRequest;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take())
    }
}
