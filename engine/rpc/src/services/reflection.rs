//! The reflection service (gRPC's "Server Reflection Protocol"), v1 and v1alpha, over the contracts of a server's
//! services.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_core::Stream;
use prost::{DecodeError, Message};
use prost_types::{DescriptorProto, EnumDescriptorProto, FileDescriptorProto};

use super::proto::reflection::server_reflection_request::MessageRequest;
use super::proto::reflection::server_reflection_response::MessageResponse;
use super::proto::reflection::server_reflection_server::{ServerReflection, ServerReflectionServer};
use super::proto::reflection::{
    ErrorResponse, ExtensionNumberResponse, FileDescriptorResponse, ListServiceResponse, ServerReflectionRequest,
    ServerReflectionResponse, ServiceResponse,
};
use crate::envelope::{Request, Response};
use crate::message::streaming::Streaming;
use crate::server::{Builder, Contracts, Method, Service};
use crate::status::{Code, Status};
use crate::unfold::unfold;

/// A `FileDescriptorSet` whose files stay encoded, to preserve unknown options.
#[derive(Clone, PartialEq, Message)]
struct EncodedFiles {
    #[prost(bytes = "bytes", repeated, tag = "1")]
    file: Vec<Bytes>,
}

struct File {
    encoded: Bytes,
    dependencies: Vec<String>,
}

/// Serves the contracts of one server.
struct Reflection {
    contracts: Contracts,
    /// Built at the first request, when all services have been added.
    tables: OnceLock<Result<Tables, Status>>,
}

impl Builder {
    /// Adds the reflection service in both versions, v1 and v1alpha. It serves the contracts of all services of this
    /// server, added before or after it.
    pub fn reflection(self) -> Self {
        let reflection = Reflection { contracts: self.contracts(), tables: OnceLock::new() };
        let server = ServerReflectionServer::new(Arc::new(reflection));
        let versions = ["grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"];
        versions.into_iter().fold(self, |builder, name| builder.add_service(Version { name, server: server.clone() }))
    }
}

/// The service under one of its names. It has no contract, so it does not list itself.
struct Version {
    name: &'static str,
    server: ServerReflectionServer<Arc<Reflection>>,
}

impl Service for Version {
    fn name(&self) -> &'static str {
        self.name
    }

    fn methods(self) -> Vec<Method> {
        self.server.methods()
    }
}

#[derive(Default)]
struct Tables {
    files: HashMap<String, File>,
    /// File of each fully qualified name.
    symbols: HashMap<String, String>,
    /// File of each extension, by extended type and number.
    extensions: HashMap<(String, i32), String>,
    services: BTreeSet<String>,
}

impl Tables {
    fn read(sets: &[&'static [u8]]) -> Result<Self, DecodeError> {
        let mut tables = Self::default();
        for set in sets {
            for encoded in EncodedFiles::decode(Bytes::from_static(set))?.file {
                let file = FileDescriptorProto::decode(&encoded[..])?;
                tables.add(&file, encoded);
            }
        }
        Ok(tables)
    }

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

    /// A file and its transitive imports, itself first.
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

impl Reflection {
    fn answer(&self, request: Option<&MessageRequest>) -> Result<MessageResponse, Status> {
        let tables = self.tables.get_or_init(|| {
            let damaged = |error| Status::internal(format!("a service's descriptors cannot be read: {error}"));
            Tables::read(&self.contracts.sets()).map_err(damaged)
        });
        let request = request.ok_or_else(|| Status::new(Code::InvalidArgument, "an empty request"))?;
        tables.as_ref().map_err(Status::clone)?.answer(request)
    }

    fn respond(&self, request: ServerReflectionRequest) -> ServerReflectionResponse {
        let message_response = self.answer(request.message_request.as_ref()).unwrap_or_else(|status| {
            let (error_code, error_message) = (status.code() as i32, status.message().to_owned());
            MessageResponse::ErrorResponse(ErrorResponse { error_code, error_message })
        });
        ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(message_response),
        }
    }
}

type Answers = Pin<Box<dyn Stream<Item = Result<ServerReflectionResponse, Status>> + Send>>;

impl ServerReflection for Arc<Reflection> {
    type ServerReflectionInfoStream = Answers;

    async fn server_reflection_info(
        &self,
        request: Request<Streaming<ServerReflectionRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let reflection = Arc::clone(self);
        let stream = unfold((request.into_inner(), reflection), |(mut requests, reflection)| async move {
            match requests.message().await {
                Ok(None) => None,
                Ok(Some(request)) => Some((Ok(reflection.respond(request)), (requests, reflection))),
                Err(status) => Some((Err(status), (requests, reflection))),
            }
        });
        Ok(Response::new(Box::pin(stream)))
    }
}
