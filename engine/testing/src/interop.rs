//! gRPC's `TestService`, as its interoperability clients expect it.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use quire_rpc::{Code, Metadata, Request, Response, Status, Stream, Streaming, unfold};

use crate::interop_proto::test_service_server::TestService;
use crate::interop_proto::{
    EchoStatus, Empty, Payload, ResponseParameters, SimpleRequest, SimpleResponse, StreamingInputCallRequest,
    StreamingInputCallResponse, StreamingOutputCallRequest, StreamingOutputCallResponse,
};

/// The service.
#[derive(Clone, Copy, Debug, Default)]
pub struct InteropService;

type Outputs = Pin<Box<dyn Stream<Item = Result<StreamingOutputCallResponse, Status>> + Send>>;

const INITIAL: &str = "x-grpc-test-echo-initial";
const TRAILING: &str = "x-grpc-test-echo-trailing-bin";

fn answer<T>(asked: &Metadata, message: T) -> Response<T> {
    let mut response = Response::new(message);
    for value in asked.get_all(INITIAL) {
        let _ = response.metadata_mut().append(INITIAL, value);
    }
    for value in asked.get_all_bin(TRAILING) {
        let _ = response.trailers_mut().append_bin(TRAILING, &value);
    }
    response
}

fn payload(size: i32) -> Payload {
    Payload { r#type: 0, body: vec![0; usize::try_from(size).unwrap_or(0)] }
}

fn check(status: Option<EchoStatus>) -> Result<(), Status> {
    match status {
        Some(status) if status.code != 0 => {
            Err(Status::new(Code::from_number(status.code.unsigned_abs()), status.message))
        }
        _ => Ok(()),
    }
}

async fn output(parameters: &ResponseParameters) -> StreamingOutputCallResponse {
    if parameters.interval_us > 0 {
        tokio::time::sleep(Duration::from_micros(u64::from(parameters.interval_us.unsigned_abs()))).await;
    }
    StreamingOutputCallResponse { payload: Some(payload(parameters.size)) }
}

impl TestService for InteropService {
    async fn empty_call(&self, request: Request<Empty>) -> Result<Response<Empty>, Status> {
        Ok(answer(request.metadata(), Empty {}))
    }

    async fn unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        let metadata = request.metadata().clone();
        let message = request.into_inner();
        check(message.response_status)?;
        let reply = SimpleResponse { payload: Some(payload(message.response_size)), ..SimpleResponse::default() };
        Ok(answer(&metadata, reply))
    }

    async fn cacheable_unary_call(&self, request: Request<SimpleRequest>) -> Result<Response<SimpleResponse>, Status> {
        self.unary_call(request).await
    }

    type StreamingOutputCallStream = Outputs;

    async fn streaming_output_call(
        &self,
        request: Request<StreamingOutputCallRequest>,
    ) -> Result<Response<Outputs>, Status> {
        let metadata = request.metadata().clone();
        let message = request.into_inner();
        check(message.response_status)?;
        let outputs = unfold(message.response_parameters.into_iter(), |mut parameters| async move {
            let next = output(&parameters.next()?).await;
            Some((Ok(next), parameters))
        });
        Ok(answer(&metadata, Box::pin(outputs)))
    }

    async fn streaming_input_call(
        &self,
        request: Request<Streaming<StreamingInputCallRequest>>,
    ) -> Result<Response<StreamingInputCallResponse>, Status> {
        let mut requests = request.into_inner();
        let mut size = 0;
        while let Some(request) = requests.message().await? {
            size += request.payload.map_or(0, |payload| payload.body.len());
        }
        let aggregated_payload_size = i32::try_from(size).unwrap_or(i32::MAX);
        Ok(Response::new(StreamingInputCallResponse { aggregated_payload_size }))
    }

    type FullDuplexCallStream = Outputs;

    async fn full_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Outputs>, Status> {
        let metadata = request.metadata().clone();
        let state = (request.into_inner(), VecDeque::new());
        let outputs = unfold(state, |(mut requests, mut due): (_, VecDeque<ResponseParameters>)| async move {
            while due.is_empty() {
                match next_parameters(&mut requests).await {
                    Ok(Some(parameters)) => due.extend(parameters),
                    Ok(None) => return None,
                    Err(status) => return Some((Err(status), (requests, due))),
                }
            }
            let next = output(&due.pop_front()?).await;
            Some((Ok(next), (requests, due)))
        });
        Ok(answer(&metadata, Box::pin(outputs)))
    }

    type HalfDuplexCallStream = Outputs;

    async fn half_duplex_call(
        &self,
        request: Request<Streaming<StreamingOutputCallRequest>>,
    ) -> Result<Response<Outputs>, Status> {
        let mut requests = request.into_inner();
        let mut due = VecDeque::new();
        while let Some(parameters) = next_parameters(&mut requests).await? {
            due.extend(parameters);
        }
        let outputs = unfold(due, |mut due: VecDeque<ResponseParameters>| async move {
            let next = output(&due.pop_front()?).await;
            Some((Ok(next), due))
        });
        Ok(Response::new(Box::pin(outputs)))
    }

    async fn unimplemented_call(&self, _: Request<Empty>) -> Result<Response<Empty>, Status> {
        Err(Status::unimplemented("never implemented"))
    }
}

async fn next_parameters(
    requests: &mut Streaming<StreamingOutputCallRequest>,
) -> Result<Option<Vec<ResponseParameters>>, Status> {
    let Some(request) = requests.message().await? else { return Ok(None) };
    check(request.response_status)?;
    Ok(Some(request.response_parameters))
}
