//! Client under test for connectconformance: reads cases on standard input, makes their calls and writes the results.

use std::collections::VecDeque;
use std::future::{Future, pending};
use std::io::Cursor;
use std::sync::Arc;
use std::time::Duration;

use quire_rpc::client::{Channel, Codec, HttpVersion, Path, Protocol, Settings};
use quire_rpc::prost::Message;
use quire_rpc::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use quire_rpc::rustls::{ClientConfig, RootCertStore};
use quire_rpc::{Encoded, Encoding, Metadata, Request, Response, Status, Stream, Streaming, unfold};
use rpc_testing::conformance_proto::client_compat_request::cancel::CancelTiming;
use rpc_testing::conformance_proto::client_compat_response::Result as Outcome;
use rpc_testing::conformance_proto::conformance_service_client as paths;
use rpc_testing::conformance_proto::{
    self as wire, ClientCompatRequest, ClientCompatResponse, ClientErrorResult, ClientResponseResult, Error, Header,
    RpcStatus, StreamResponse, StreamType, UnaryResponse, UnimplementedResponse,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt, stdin, stdout};
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Limit of calls in flight, and of results waiting to be written.
const CALLS_MAX: usize = 8;
/// Enough for any message of the suite.
const GET_BYTES_MAX: usize = 64 * 1024;

fn tls(request: &ClientCompatRequest) -> Result<ClientConfig, Failure> {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_reader_iter(Cursor::new(&request.server_tls_cert)) {
        roots.add(root?)?;
    }
    let builder = ClientConfig::builder().with_root_certificates(roots);
    let Some(credentials) = &request.client_tls_creds else { return Ok(builder.with_no_client_auth()) };
    let chain = CertificateDer::pem_reader_iter(Cursor::new(&credentials.cert)).collect::<Result<_, _>>()?;
    Ok(builder.with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(&credentials.key)?)?)
}

fn channel(request: &ClientCompatRequest) -> Result<Channel, Failure> {
    let encoding = match request.compression() {
        wire::Compression::Gzip => Some(Encoding::Gzip),
        wire::Compression::Zstd => Some(Encoding::Zstd),
        wire::Compression::Br => Some(Encoding::Brotli),
        wire::Compression::Deflate => Some(Encoding::Deflate),
        wire::Compression::Snappy => Some(Encoding::Snappy),
        _ => None,
    };
    let mut settings = Settings {
        protocol: match request.protocol() {
            wire::Protocol::Grpc => Protocol::Grpc,
            wire::Protocol::GrpcWeb => Protocol::GrpcWeb,
            _ => Protocol::Connect,
        },
        codec: if request.codec() == wire::Codec::Json { Codec::Json } else { Codec::Proto },
        http: if request.http_version() == wire::HttpVersion::HttpVersion1 {
            HttpVersion::Http1
        } else {
            HttpVersion::Http2
        },
        compression: encoding.map(|encoding| (encoding, 0)),
        accepts: encoding.into_iter().collect(),
        get_bytes_max: request.use_get_http_method.then_some(GET_BYTES_MAX),
        ..Settings::default()
    };
    if request.message_receive_limit > 0 {
        settings.message_bytes_max = request.message_receive_limit as usize;
    }
    let is_plain = request.server_tls_cert.is_empty();
    let scheme = if is_plain { "http" } else { "https" };
    let mut builder = Channel::builder(&format!("{scheme}://{}:{}", request.host, request.port))?.settings(settings);
    if !is_plain {
        builder = builder.tls(Arc::new(tls(request)?))?;
    }
    Ok(builder.connect_lazy()?)
}

fn headers(metadata: &Metadata) -> Vec<Header> {
    let mut headers: Vec<Header> = Vec::new();
    for (name, value) in metadata.iter() {
        match headers.iter_mut().find(|header| header.name == name) {
            Some(header) => header.value.push(value.to_owned()),
            None => headers.push(Header { name: name.to_owned(), value: vec![value.to_owned()] }),
        }
    }
    headers
}

/// A request with the metadata and timeout of the case.
fn request<T>(case: &ClientCompatRequest, message: T) -> Result<Request<T>, Failure> {
    let mut request = Request::new(message);
    for header in &case.request_headers {
        let name = header.name.to_lowercase();
        for value in &header.value {
            if name.ends_with("-bin") {
                request.metadata_mut().append_encoded(&name, value)?;
            } else {
                request.metadata_mut().append(&name, value)?;
            }
        }
    }
    if let Some(timeout_ms) = case.timeout_ms {
        request.set_timeout(Duration::from_millis(timeout_ms.into()));
    }
    Ok(request)
}

/// Result of a case so far.
#[derive(Default)]
struct CallResult(ClientResponseResult);

impl CallResult {
    fn failed(&mut self, status: &Status) {
        let details = RpcStatus::decode(status.details()).unwrap_or_default().details;
        let code = i32::try_from(status.code() as u32).unwrap_or_default();
        self.0.error = Some(Error { code, message: Some(status.message().to_owned()), details });
        self.0.response_trailers = headers(status.metadata());
    }

    fn cancelled(&mut self) {
        self.failed(&Status::cancelled("the case says so"));
    }

    /// Reads a stream to its end, or up to `most` responses; returns true at the end.
    async fn read(&mut self, stream: &mut Streaming<StreamResponse>, most: Option<usize>) -> bool {
        while most.is_none_or(|most| self.0.payloads.len() < most) {
            match stream.message().await {
                Ok(Some(message)) => self.0.payloads.push(message.payload.unwrap_or_default()),
                Ok(None) => {
                    self.0.response_trailers = headers(&stream.trailers().unwrap_or_default());
                    return true;
                }
                Err(status) => {
                    self.failed(&status);
                    return true;
                }
            }
        }
        false
    }

    fn one<T>(&mut self, answer: Result<Response<T>, Status>, payload: impl Fn(T) -> Option<wire::ConformancePayload>) {
        match answer {
            Ok(response) => {
                self.0.response_headers = headers(response.metadata());
                self.0.response_trailers = headers(response.trailers());
                self.0.payloads = vec![payload(response.into_inner()).unwrap_or_default()];
            }
            Err(status) => self.failed(&status),
        }
    }
}

/// Point at which a case cancels its call.
#[derive(Clone, Copy)]
enum Cancel {
    Never,
    InsteadOfClosing,
    AfterClosing(Duration),
    AfterAnswers(usize),
}

impl Cancel {
    fn of(case: &ClientCompatRequest) -> Self {
        match case.cancel.as_ref().map(|cancel| cancel.cancel_timing) {
            None => Self::Never,
            Some(None) => Self::AfterClosing(Duration::ZERO),
            Some(Some(CancelTiming::BeforeCloseSend(()))) => Self::InsteadOfClosing,
            Some(Some(CancelTiming::AfterCloseSendMs(ms))) => Self::AfterClosing(Duration::from_millis(ms.into())),
            Some(Some(CancelTiming::AfterNumResponses(count))) => Self::AfterAnswers(count as usize),
        }
    }

    fn answers_max(self) -> Option<usize> {
        if let Self::AfterAnswers(count) = self { Some(count) } else { None }
    }

    /// Completes when a timed cancellation is due.
    async fn due(self, all_sent: impl Future<Output = ()>) {
        match self {
            Self::Never | Self::AfterAnswers(_) => pending().await,
            Self::InsteadOfClosing => all_sent.await,
            Self::AfterClosing(delay) => {
                all_sent.await;
                sleep(delay).await;
            }
        }
    }
}

/// A test case.
struct Case {
    request: ClientCompatRequest,
    channel: Channel,
    cancel: Cancel,
    delay: Duration,
}

impl Case {
    fn messages(&self) -> VecDeque<Encoded> {
        self.request.request_messages.iter().map(|any| any.value.clone().into()).collect()
    }

    async fn unary<T: quire_rpc::Decode>(
        &self,
        path: &'static Path,
        payload: impl Fn(T) -> Option<wire::ConformancePayload>,
    ) -> Result<CallResult, Failure> {
        let message = self.messages().pop_front().ok_or("a unary call needs a message")?;
        let request = request(&self.request, message)?;
        let mut result = CallResult::default();
        sleep(self.delay).await;
        tokio::select! {
            answer = self.channel.unary(path, request) => result.one(answer, payload),
            () = self.cancel.due(async {}) => result.cancelled(),
        }
        Ok(result)
    }

    /// Stream of the case's messages, and a notification once all were sent.
    fn stream(&self) -> (impl Stream<Item = Encoded> + Send + 'static, Arc<Notify>) {
        let all_sent = Arc::new(Notify::new());
        let stays_open = matches!(self.cancel, Cancel::InsteadOfClosing);
        let state = (self.messages(), Arc::clone(&all_sent));
        let delay = self.delay;
        let stream = unfold(state, move |(mut messages, all_sent)| async move {
            let Some(message) = messages.pop_front() else {
                all_sent.notify_one();
                if stays_open {
                    pending::<()>().await;
                }
                return None;
            };
            sleep(delay).await;
            Some((message, (messages, all_sent)))
        });
        (stream, all_sent)
    }

    async fn client_stream(&self) -> Result<CallResult, Failure> {
        let mut result = CallResult::default();
        let (stream, all_sent) = self.stream();
        let request = request(&self.request, stream)?;
        tokio::select! {
            answer = self.channel.client_streaming(&paths::CLIENT_STREAM, request) => {
                result.one(answer, |response: UnaryResponse| response.payload);
            }
            () = self.cancel.due(all_sent.notified()) => result.cancelled(),
        }
        Ok(result)
    }

    async fn server_stream(&self) -> Result<CallResult, Failure> {
        let message = self.messages().pop_front().ok_or("a server stream needs a message")?;
        let request = request(&self.request, message)?;
        sleep(self.delay).await;
        let call = self.channel.server_streaming(&paths::SERVER_STREAM, request);
        Ok(self.read_all(call, async {}).await)
    }

    async fn half_duplex(&self) -> Result<CallResult, Failure> {
        let (stream, all_sent) = self.stream();
        let call = self.channel.bidi_streaming(&paths::BIDI_STREAM, request(&self.request, stream)?);
        Ok(self.read_all(call, async move { all_sent.notified().await }).await)
    }

    async fn read_all(
        &self,
        call: impl Future<Output = Result<Response<Streaming<StreamResponse>>, Status>>,
        all_sent: impl Future<Output = ()>,
    ) -> CallResult {
        let mut result = CallResult::default();
        let reading = async {
            match call.await {
                Err(status) => {
                    result.failed(&status);
                    true
                }
                Ok(response) => {
                    result.0.response_headers = headers(response.metadata());
                    result.read(&mut response.into_inner(), self.cancel.answers_max()).await
                }
            }
        };
        let has_ended = tokio::select! {
            has_ended = reading => has_ended,
            () = self.cancel.due(all_sent) => false,
        };
        if !has_ended {
            result.cancelled();
        }
        result
    }

    /// Reads a response after each message.
    async fn full_duplex(&self) -> Result<CallResult, Failure> {
        let mut result = CallResult::default();
        let (sender, receiver) = mpsc::channel(1);
        let outgoing = unfold(receiver, |mut receiver| async move { Some((receiver.recv().await?, receiver)) });
        let mut call = Some(self.channel.bidi_streaming(&paths::BIDI_STREAM, request(&self.request, outgoing)?));
        let mut stream: Option<Streaming<StreamResponse>> = None;
        let mut messages = self.messages();
        let most = self.cancel.answers_max();
        let mut sender = Some(sender);
        loop {
            match messages.pop_front() {
                Some(message) => {
                    sleep(self.delay).await;
                    if let Some(sender) = &sender {
                        // It fails if the call has ended, which the reader notices.
                        let _ = sender.send(message).await;
                    }
                }
                None => match self.cancel {
                    Cancel::InsteadOfClosing => break,
                    Cancel::AfterClosing(delay) => {
                        drop(sender.take());
                        sleep(delay).await;
                        break;
                    }
                    _ => sender = None,
                },
            }
            if let Some(call) = call.take() {
                match call.await {
                    Err(status) => {
                        result.failed(&status);
                        return Ok(result);
                    }
                    Ok(response) => {
                        result.0.response_headers = headers(response.metadata());
                        stream = Some(response.into_inner());
                    }
                }
            }
            let Some(stream) = &mut stream else { break };
            let next = if sender.is_some() { Some(result.0.payloads.len() + 1) } else { most };
            if result.read(stream, next).await {
                result.0.num_unsent_requests = i32::try_from(messages.len())?;
                return Ok(result);
            }
            if most.is_some_and(|most| result.0.payloads.len() >= most) {
                break;
            }
        }
        result.cancelled();
        Ok(result)
    }

    async fn run(&self) -> Result<CallResult, Failure> {
        match self.request.stream_type() {
            StreamType::Unary => match self.request.method() {
                "IdempotentUnary" => {
                    self.unary(&paths::IDEMPOTENT_UNARY, |response: UnaryResponse| response.payload).await
                }
                "Unimplemented" => self.unary(&paths::UNIMPLEMENTED, |_: UnimplementedResponse| None).await,
                _ => self.unary(&paths::UNARY, |response: UnaryResponse| response.payload).await,
            },
            StreamType::ClientStream => self.client_stream().await,
            StreamType::ServerStream => self.server_stream().await,
            StreamType::HalfDuplexBidiStream => self.half_duplex().await,
            StreamType::FullDuplexBidiStream => self.full_duplex().await,
            StreamType::Unspecified => Err("a stream type that is not known".into()),
        }
    }
}

async fn answer(request: ClientCompatRequest) -> ClientCompatResponse {
    let test_name = request.test_name.clone();
    let result = async {
        let delay = Duration::from_millis(request.request_delay_ms.into());
        let case = Case { channel: channel(&request)?, cancel: Cancel::of(&request), delay, request };
        case.run().await
    };
    let result = match result.await {
        Ok(result) => Outcome::Response(result.0),
        Err(error) => Outcome::Error(ClientErrorResult { message: error.to_string() }),
    };
    ClientCompatResponse { test_name, result: Some(result) }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failure> {
    let (answers, mut written) = mpsc::channel::<ClientCompatResponse>(CALLS_MAX);
    let writer = tokio::spawn(async move {
        let mut output = stdout();
        while let Some(answer) = written.recv().await {
            let encoded = answer.encode_to_vec();
            output.write_u32(u32::try_from(encoded.len())?).await?;
            output.write_all(&encoded).await?;
            output.flush().await?;
        }
        Ok::<_, Failure>(())
    });
    let permits = Arc::new(tokio::sync::Semaphore::new(CALLS_MAX));
    let mut input = stdin();
    // The end of the input is the end of the cases.
    while let Ok(length) = input.read_u32().await {
        let mut encoded = vec![0; length as usize];
        input.read_exact(&mut encoded).await?;
        let request = ClientCompatRequest::decode(&encoded[..])?;
        let permit = Arc::clone(&permits).acquire_owned().await?;
        let answers = answers.clone();
        tokio::spawn(async move {
            let _ = answers.send(answer(request).await).await;
            drop(permit);
        });
    }
    drop(answers);
    writer.await?
}
