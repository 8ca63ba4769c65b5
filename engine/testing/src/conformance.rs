//! connectrpc's `ConformanceService`: does what each request defines, and returns what it received.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use quire_rpc::prost::Message;
use quire_rpc::prost_types::Any;
use quire_rpc::{Code, Metadata, Request, Response, Status, Stream, Streaming, unfold};
use tokio::time::Instant;

use crate::conformance_proto::conformance_payload::RequestInfo;
use crate::conformance_proto::conformance_service_server::ConformanceService;
use crate::conformance_proto::unary_response_definition::Response as Defined;
use crate::conformance_proto::{
    BidiStreamRequest, ConformancePayload, Error, Header, RpcStatus, ServerStreamRequest, StreamResponse,
    StreamResponseDefinition, UnaryRequest, UnaryResponse, UnaryResponseDefinition, UnimplementedRequest,
    UnimplementedResponse,
};

/// The service.
#[derive(Clone, Copy, Debug, Default)]
pub struct Conformance;

const PREFIX: &str = "type.googleapis.com/connectrpc.conformance.v1.";

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("{PREFIX}{name}"), value: message.encode_to_vec() }
}

fn info<T>(request: &Request<T>, requests: Vec<Any>) -> RequestInfo {
    let mut request_headers: Vec<Header> = Vec::new();
    for (name, value) in request.metadata().iter() {
        match request_headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value.to_owned()),
            None => request_headers.push(Header { name: name.to_owned(), value: vec![value.to_owned()] }),
        }
    }
    let left = request.deadline().map(|deadline| deadline.saturating_duration_since(Instant::now()));
    let timeout_ms = left.map(|left| i64::try_from(left.as_millis()).unwrap_or(i64::MAX));
    RequestInfo { request_headers, timeout_ms, requests, connect_get_info: None }
}

fn fill(metadata: &mut Metadata, headers: &[Header]) {
    for header in headers {
        for value in &header.value {
            let _ = if header.name.ends_with("-bin") {
                let mut wire = Metadata::new();
                wire.append_encoded(&header.name, value).map(|()| metadata.extend(&wire))
            } else {
                metadata.append(&header.name.to_lowercase(), value)
            };
        }
    }
}

fn failure(error: &Error, info: Option<&RequestInfo>, trailers: &[Header]) -> Status {
    let mut details = error.details.clone();
    details.extend(info.map(|info| any("ConformancePayload.RequestInfo", info)));
    let message = error.message.clone().unwrap_or_default();
    let code = Code::from_number(error.code.unsigned_abs());
    let rpc = RpcStatus { code: error.code, message: message.clone(), details };
    let mut status = Status::with_details(code, message, rpc.encode_to_vec().into());
    fill(status.metadata_mut(), trailers);
    status
}

async fn unary(
    definition: Option<UnaryResponseDefinition>,
    info: RequestInfo,
) -> Result<Response<UnaryResponse>, Status> {
    let definition = definition.unwrap_or_default();
    tokio::time::sleep(Duration::from_millis(definition.response_delay_ms.into())).await;
    let data = match &definition.response {
        Some(Defined::Error(error)) => {
            let mut status = failure(error, Some(&info), &definition.response_trailers);
            // A unary failure is trailers only, so its headers go there too.
            fill(status.metadata_mut(), &definition.response_headers);
            return Err(status);
        }
        Some(Defined::ResponseData(data)) => data.clone(),
        None => Vec::new(),
    };
    let payload = Some(ConformancePayload { data, request_info: Some(info) });
    let mut response = Response::new(UnaryResponse { payload });
    fill(response.metadata_mut(), &definition.response_headers);
    fill(response.trailers_mut(), &definition.response_trailers);
    Ok(response)
}

type Responses = Pin<Box<dyn Stream<Item = Result<StreamResponse, Status>> + Send>>;

/// The remaining steps of a defined stream.
struct Script {
    data: VecDeque<Vec<u8>>,
    delay: Duration,
    error: Option<Error>,
    trailers: Vec<Header>,
    /// Sent with the first response, or with the error if there is none.
    info: Option<RequestInfo>,
    failed: bool,
}

impl Script {
    fn new(definition: StreamResponseDefinition, info: RequestInfo) -> Self {
        Self {
            data: definition.response_data.into(),
            delay: Duration::from_millis(definition.response_delay_ms.into()),
            error: definition.error,
            trailers: definition.response_trailers,
            info: Some(info),
            failed: false,
        }
    }

    async fn next(&mut self) -> Option<Result<StreamResponse, Status>> {
        if let Some(data) = self.data.pop_front() {
            tokio::time::sleep(self.delay).await;
            let payload = Some(ConformancePayload { data, request_info: self.info.take() });
            return Some(Ok(StreamResponse { payload }));
        }
        if self.failed {
            return None;
        }
        self.failed = true;
        let error = self.error.take()?;
        Some(Err(failure(&error, self.info.as_ref(), &self.trailers)))
    }
}

fn stream_response(headers: &[Header], trailers: &[Header], stream: Responses) -> Response<Responses> {
    let mut response = Response::new(stream);
    fill(response.metadata_mut(), headers);
    fill(response.trailers_mut(), trailers);
    response
}

impl ConformanceService for Conformance {
    async fn unary(&self, request: Request<UnaryRequest>) -> Result<Response<UnaryResponse>, Status> {
        let info = info(&request, vec![any("UnaryRequest", request.get_ref())]);
        unary(request.into_inner().response_definition, info).await
    }

    async fn idempotent_unary(&self, request: Request<UnaryRequest>) -> Result<Response<UnaryResponse>, Status> {
        let info = info(&request, vec![any("IdempotentUnaryRequest", request.get_ref())]);
        unary(request.into_inner().response_definition, info).await
    }

    async fn unimplemented(&self, _: Request<UnimplementedRequest>) -> Result<Response<UnimplementedResponse>, Status> {
        Err(Status::unimplemented("never implemented"))
    }

    async fn client_stream(
        &self,
        mut request: Request<Streaming<UnaryRequest>>,
    ) -> Result<Response<UnaryResponse>, Status> {
        let (mut definition, mut requests) = (None, Vec::new());
        while let Some(message) = request.get_mut().message().await? {
            requests.push(any("ClientStreamRequest", &message));
            definition = definition.or(message.response_definition);
        }
        unary(definition, info(&request, requests)).await
    }

    type ServerStreamStream = Responses;

    async fn server_stream(&self, request: Request<ServerStreamRequest>) -> Result<Response<Responses>, Status> {
        let info = info(&request, vec![any("ServerStreamRequest", request.get_ref())]);
        let definition = request.into_inner().response_definition.unwrap_or_default();
        let (headers, trailers) = (definition.response_headers.clone(), definition.response_trailers.clone());
        let stream = unfold(Script::new(definition, info), |mut script| async move {
            let next = script.next().await?;
            Some((next, script))
        });
        Ok(stream_response(&headers, &trailers, Box::pin(stream)))
    }

    type BidiStreamStream = Responses;

    async fn bidi_stream(
        &self,
        mut request: Request<Streaming<BidiStreamRequest>>,
    ) -> Result<Response<Responses>, Status> {
        let Some(first) = request.get_mut().message().await? else {
            let empty = unfold((), |()| async { None });
            return Ok(Response::new(Box::pin(empty)));
        };
        let mut requests = vec![any("BidiStreamRequest", &first)];
        let definition = first.response_definition.unwrap_or_default();
        let (headers, trailers) = (definition.response_headers.clone(), definition.response_trailers.clone());
        if !first.full_duplex {
            while let Some(message) = request.get_mut().message().await? {
                requests.push(any("BidiStreamRequest", &message));
            }
        }
        let info = info(&request, requests);
        let state = (Script::new(definition, info), request.into_inner(), first.full_duplex, true);
        let stream = unfold(state, |(mut script, mut requests, duplex, first)| async move {
            if duplex && !first {
                match requests.message().await {
                    Ok(Some(message)) => {
                        let requests = vec![any("BidiStreamRequest", &message)];
                        script.info = Some(RequestInfo { requests, ..RequestInfo::default() });
                    }
                    Ok(None) => {}
                    Err(status) => return Some((Err(status), (script, requests, duplex, false))),
                }
            }
            let next = script.next().await?;
            Some((next, (script, requests, duplex, false)))
        });
        Ok(stream_response(&headers, &trailers, Box::pin(stream)))
    }
}
