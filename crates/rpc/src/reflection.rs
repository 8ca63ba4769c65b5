//! The reflection service (gRPC's "Server Reflection Protocol"), v1 and v1alpha, from encoded file descriptors.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::Stream;
use prost::Message;
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

use crate::envelope::{Request, Response};
use crate::proto::reflection::server_reflection_request::MessageRequest;
use crate::proto::reflection::server_reflection_response::MessageResponse;
use crate::proto::reflection::server_reflection_server::{ServerReflection, ServerReflectionServer};
use crate::proto::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use crate::server::{Method, Service};
use crate::status::{Code, Status};
use crate::streaming::Streaming;
use crate::unfold::unfold;

/// A `FileDescriptorSet` whose files stay encoded, so that options we do not know survive.
#[derive(Clone, PartialEq, Message)]
struct EncodedFiles {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

#[derive(Clone)]
struct File {
    encoded: Bytes,
    dependencies: Vec<String>,
}

/// What a server knows of its contracts.
#[derive(Clone, Debug, Default)]
pub struct Reflection {
    tables: Arc<Tables>,
}

#[derive(Clone, Default)]
struct Tables {
    files: HashMap<String, File>,
    /// File of each full name.
    symbols: HashMap<String, String>,
    /// File of each extension, by extended type and number.
    extensions: HashMap<(String, i32), String>,
    services: BTreeSet<String>,
}

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.services)
    }
}

impl Reflection {
    /// Knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an encoded `FileDescriptorSet`, as `quire_rpc_build::Builder::descriptors` writes it.
    pub fn descriptors(mut self, encoded: &[u8]) -> Result<Self, prost::DecodeError> {
        for encoded in EncodedFiles::decode(encoded)?.file {
            let file = FileDescriptorProto::decode(&encoded[..])?;
            Arc::make_mut(&mut self.tables).add(&file, encoded);
        }
        Ok(self)
    }

    /// The two services to add to the server: v1 and v1alpha.
    pub fn services(self) -> (impl Service, impl Service) {
        let service = Arc::new(self);
        let v1 = ServerReflectionServer::from_arc(Arc::clone(&service));
        (v1, Alpha(ServerReflectionServer::from_arc(service)))
    }
}

impl Tables {
    fn add(&mut self, file: &FileDescriptorProto, encoded: Bytes) {
        let name = file.name();
        let scope = file.package();
        for message in &file.message_type {
            self.add_message(name, scope, message);
        }
        for kind in &file.enum_type {
            self.add_enum(name, scope, kind);
        }
        for service in &file.service {
            let full = join(scope, service.name());
            for method in &service.method {
                self.symbols.insert(join(&full, method.name()), name.to_owned());
            }
            self.symbols.insert(full.clone(), name.to_owned());
            self.services.insert(full);
        }
        for extension in &file.extension {
            self.symbols.insert(join(scope, extension.name()), name.to_owned());
            let extended = extension.extendee().trim_start_matches('.').to_owned();
            self.extensions.insert((extended, extension.number()), name.to_owned());
        }
        self.files.insert(name.to_owned(), File { encoded, dependencies: file.dependency.clone() });
    }

    fn add_message(&mut self, file: &str, scope: &str, message: &DescriptorProto) {
        let full = join(scope, message.name());
        for inner in &message.nested_type {
            self.add_message(file, &full, inner);
        }
        for kind in &message.enum_type {
            self.add_enum(file, &full, kind);
        }
        for field in &message.field {
            self.symbols.insert(join(&full, field.name()), file.to_owned());
        }
        self.symbols.insert(full, file.to_owned());
    }

    fn add_enum(&mut self, file: &str, scope: &str, kind: &EnumDescriptorProto) {
        for value in &kind.value {
            self.symbols.insert(join(scope, value.name()), file.to_owned());
        }
        self.symbols.insert(join(scope, kind.name()), file.to_owned());
    }

    fn answer(&self, request: &MessageRequest) -> Result<MessageResponse, Status> {
        match request {
            MessageRequest::ListServices(_) => {
                let service = self.services.iter().map(|name| ServiceResponse { name: name.clone() }).collect();
                Ok(MessageResponse::ListServicesResponse(ListServiceResponse { service }))
            }
            MessageRequest::FileByFilename(name) => self.file(name),
            MessageRequest::FileContainingSymbol(symbol) => {
                self.file(self.symbols.get(symbol).ok_or_else(|| unknown("symbol", symbol))?)
            }
            MessageRequest::FileContainingExtension(wanted) => {
                let key = (wanted.containing_type.clone(), wanted.extension_number);
                self.file(self.extensions.get(&key).ok_or_else(|| unknown("extension of", &key.0))?)
            }
            MessageRequest::AllExtensionNumbersOfType(name) => {
                if !self.symbols.contains_key(name) {
                    return Err(unknown("type", name));
                }
                let numbers =
                    self.extensions.keys().filter(|(extended, _)| extended == name).map(|(_, number)| *number);
                Ok(MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
                    base_type_name: name.clone(),
                    extension_number: numbers.collect(),
                }))
            }
        }
    }

    /// A file and everything it needs, itself first.
    fn file(&self, name: &str) -> Result<MessageResponse, Status> {
        let mut wanted = vec![name];
        let mut seen = BTreeSet::from([name]);
        let mut files = Vec::new();
        while let Some(name) = wanted.pop() {
            let file = self.files.get(name).ok_or_else(|| unknown("file", name))?;
            files.push(file.encoded.to_vec());
            wanted.extend(file.dependencies.iter().map(String::as_str).filter(|dependency| seen.insert(dependency)));
        }
        Ok(MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto: files }))
    }
}

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

fn unknown(what: &str, name: &str) -> Status {
    Status::not_found(format!("unknown {what} {name}"))
}

fn respond(reflection: &Tables, request: ServerReflectionRequest) -> ServerReflectionResponse {
    let answer = match &request.message_request {
        Some(asked) => reflection.answer(asked),
        None => Err(Status::new(Code::InvalidArgument, "an empty request")),
    };
    let message_response = answer.unwrap_or_else(|status| {
        let (error_code, error_message) = (status.code() as i32, status.message().to_owned());
        MessageResponse::ErrorResponse(ErrorResponse { error_code, error_message })
    });
    ServerReflectionResponse {
        valid_host: request.host.clone(),
        original_request: Some(request),
        message_response: Some(message_response),
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<ServerReflectionResponse, Status>> + Send>>;

/// One handle for both versions.
impl ServerReflection for Reflection {
    type ServerReflectionInfoStream = Answers;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let reflection = Arc::clone(&self.tables);
        let stream = unfold((request.into_inner(), reflection), |(mut requests, reflection)| async move {
            match requests.message().await {
                Ok(None) => None,
                Ok(Some(request)) => Some((Ok(respond(&reflection, request)), (requests, reflection))),
                Err(status) => Some((Err(status), (requests, reflection))),
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

/// The older name of the same service.
struct Alpha(ServerReflectionServer<Reflection>);

impl Service for Alpha {
    fn name(&self) -> &'static str {
        "grpc.reflection.v1alpha.ServerReflection"
    }

    fn methods(self) -> Vec<Method> {
        self.0.methods()
    }
}
