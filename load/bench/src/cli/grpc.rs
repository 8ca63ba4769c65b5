//! `quire-bench grpc`: builds the workload from flags and reports all wrong input before a load runs.

use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use prost_reflect::MethodDescriptor;
use quire_rpc::client::{Codec, Protocol, Settings};
use quire_rpc::{Encoding, Metadata};

use super::exit::Exit;
use super::load::{LoadArgs, Multiplexing, block_on, read_input, sources};
use super::measure::measure;
use crate::measurement::Load;
use crate::report::units::micros;
use crate::template::Sources;
use crate::tls::TlsArgs;
use crate::workload::grpc::{
    DATA_BYTES_MAX, Endings, GrpcWorkload, OutcomeField, Payload, Requests, Schema, Shape, Target, Traces, example,
    split_method,
};

/// Timeout of finding the method.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(10);

/// Calls one method of a service, in gRPC, gRPC-Web or Connect.
#[derive(Clone, Debug, Args)]
pub struct GrpcArgs {
    /// host:port, :port on this machine, http://host:port or https://host:port
    pub address: String,
    /// package.Service/Method; found by reflection unless --proto is given
    pub method: String,
    /// The request as JSON, @FILE or - for standard input; for a method that takes a stream, a list or several.
    /// Placeholders: {{number}}, {{client}}, {{worker}}, {{random 1 100}}, {{hex 16}}, {{row.COLUMN}}
    #[arg(long, value_name = "JSON|@FILE|-", help_heading = "Request")]
    pub data: Option<String>,
    /// CSV file with a header row, for {{row.COLUMN}}; rows are used in turn
    #[arg(long, value_name = "FILE", help_heading = "Request")]
    pub rows: Option<PathBuf>,
    /// Times that a call sends the messages of --data, for a method that takes a stream
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Request")]
    pub messages: usize,
    /// Metadata of every call, as NAME:VALUE (of a -bin name, VALUE is base64); may be repeated
    #[arg(long, value_name = "NAME:VALUE", help_heading = "Request")]
    pub metadata: Vec<String>,
    /// Deadline of a call, sent to the server [default: none; --timeout ends calls on the client alone]
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration, help_heading = "Request")]
    pub deadline: Option<Duration>,
    /// Send a traceparent with each call, sampled for this share, and print the trace ids of the slowest of those
    #[arg(long, value_name = "SHARE", help_heading = "Request", value_parser = share)]
    pub trace: Option<f64>,
    /// Compress requests
    #[arg(long, help_heading = "Request", value_parser = one_of(&ENCODINGS))]
    pub compression: Option<Encoding>,
    /// Protocol, over HTTP/2
    #[arg(long, default_value = "grpc", help_heading = "Request", value_parser = one_of(&PROTOCOLS))]
    pub protocol: Protocol,
    /// Encoding of messages
    #[arg(long, default_value = "proto", help_heading = "Request", value_parser = one_of(&CODECS))]
    pub codec: Codec,
    /// Count answers by the value of this field (of a stream's last message), as in success or order.state
    #[arg(long, value_name = "FIELD", help_heading = "Request")]
    pub outcome: Option<String>,
    /// Name of the server in every call [default: the address]
    #[arg(long, value_name = "HOST", help_heading = "Request")]
    pub authority: Option<String>,
    /// A .proto file to use instead of reflection
    #[arg(long, value_name = "FILE", help_heading = "Contract")]
    pub proto: Option<PathBuf>,
    /// Folder of --proto and its imports [default: the folder of --proto]; may be repeated
    #[arg(long, value_name = "DIR", requires = "proto", help_heading = "Contract")]
    pub import_path: Vec<PathBuf>,
    /// Print the method and an example message, then stop
    #[arg(long, help_heading = "Contract")]
    pub describe: bool,
    #[command(flatten)]
    pub tls: TlsArgs,
    #[command(flatten)]
    pub load: LoadArgs,
}

const ENCODINGS: [(&str, Encoding); 2] = [("gzip", Encoding::Gzip), ("zstd", Encoding::Zstd)];
const PROTOCOLS: [(&str, Protocol); 3] =
    [("grpc", Protocol::Grpc), ("grpc-web", Protocol::GrpcWeb), ("connect", Protocol::Connect)];
const CODECS: [(&str, Codec); 2] = [("proto", Codec::Proto), ("json", Codec::Json)];

fn one_of<T: Copy + Send + Sync + 'static>(
    known: &'static [(&'static str, T)],
) -> impl TypedValueParser<Value = T> + use<T> {
    let names = PossibleValuesParser::new(known.iter().map(|(name, _)| *name));
    names.map(|given| known.iter().find(|(name, _)| *name == given).unwrap_or(&known[0]).1)
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "it must be a number from 0 to 1".to_owned())
}

fn name_of<T: PartialEq>(known: &[(&'static str, T)], wanted: &T) -> &'static str {
    known.iter().find(|(_, value)| value == wanted).map_or("", |(name, _)| name)
}

/// Finds the method and checks all input; needs a tokio runtime around it. An error is one line. Sets protocol, target,
/// method and settings of the [`Load`].
pub async fn prepare(args: &GrpcArgs) -> anyhow::Result<(GrpcWorkload, Load)> {
    let metadata = metadata(&args.metadata)?;
    let sources = sources(args.load.seed, args.rows.as_deref())?;
    let data = args.data.as_deref().map(read_data).transpose()?;
    if args.messages == 0 {
        bail!("--messages 0: it must be at least 1");
    }
    let (target, method) = find(args).await?;
    let shape = Shape::from(&method);
    if args.messages > 1 && !shape.client_streams {
        bail!("--messages: {} takes one message", name(&method));
    }
    let requests = requests(args, data.as_deref(), &sources, &method)?;
    let endings = match &args.outcome {
        None => Endings::default(),
        Some(path) => {
            let field = OutcomeField::find(path, &method.output()).map_err(|reason| anyhow!("--outcome {reason}"))?;
            Endings::Field(field)
        }
    };
    let path = format!("/{}", name(&method));
    let mut workload = GrpcWorkload::new(target.clone(), &path, shape, requests);
    (workload.metadata, workload.deadline, workload.endings) = (metadata, args.deadline, endings);
    workload.traces = args.trace.map(Traces::new);
    let settings = &mut workload.settings;
    (settings.protocol, settings.codec) = (args.protocol, args.codec);
    // Requests of any size are compressed, if that makes them shorter.
    settings.compression = args.compression.map(|encoding| (encoding, 0));
    if let Some(in_flight) = args.load.in_flight {
        settings.calls_per_connection_max = in_flight.max(1);
    }
    Ok((workload, load(args, &target, &method)))
}

/// Describes the method with an example message, for `--describe`.
pub async fn describe(args: &GrpcArgs) -> anyhow::Result<String> {
    let (_, method) = find(args).await?;
    let stream = |streams: bool| if streams { "stream " } else { "" };
    let shape = Shape::from(&method);
    let (input, output) = (method.input(), method.output());
    Ok(format!(
        "{} ({}{}) returns ({}{})\n--data '{}'\nan answer is like {}\n",
        name(&method),
        stream(shape.client_streams),
        input.full_name(),
        stream(shape.server_streams),
        output.full_name(),
        example(&input),
        example(&output),
    ))
}

fn name(method: &MethodDescriptor) -> String {
    format!("{}/{}", method.parent_service().full_name(), method.name())
}

fn load(args: &GrpcArgs, target: &Target, method: &MethodDescriptor) -> Load {
    let protocol = name_of(&PROTOCOLS, &args.protocol).to_owned();
    let mut load = Load { protocol, target: target.to_string(), what: name(method), ..Load::default() };
    load.set("codec", (args.codec != Codec::Proto).then(|| name_of(&CODECS, &args.codec)));
    load.set("data", args.data.as_ref());
    load.set("rows", args.rows.as_ref().map(|path| path.display()));
    load.set("messages", (args.messages > 1).then_some(args.messages));
    // Names only: values may be secrets, and reports are shown to others.
    let names: Vec<&str> = args.metadata.iter().filter_map(|entry| Some(entry.split_once(':')?.0)).collect();
    load.set("metadata", (!names.is_empty()).then(|| names.join(",")));
    load.set("deadline", args.deadline.map(humantime::format_duration));
    load.set("trace", args.trace);
    load.set("compression", args.compression.map(Encoding::name));
    load.set("outcome", args.outcome.as_ref());
    load.set("authority", args.authority.as_ref());
    load.set("insecure", args.tls.insecure.then_some(true));
    load
}

/// Connects first, so that an unreachable server is reported before anything else, and finds the method.
async fn find(args: &GrpcArgs) -> anyhow::Result<(Target, MethodDescriptor)> {
    let (service, method) = split_method(&args.method)?;
    let target = Target::parse(&args.address, &args.tls)?.authority(args.authority.clone());
    let schema = args.proto.as_deref().map(|proto| Schema::from_proto(proto, &args.import_path)).transpose()?;
    let settings = Settings { connect_timeout: PREPARE_TIMEOUT, timeout: Some(PREPARE_TIMEOUT), ..Settings::default() };
    let channel = target.connect(settings).await?;
    let schema = match schema {
        Some(schema) => schema,
        None => Schema::by_reflection(&channel, service).await.map_err(|error| anyhow!("{target}: {error:#}"))?,
    };
    Ok((target, schema.method(service, method)?))
}

fn requests(
    args: &GrpcArgs,
    data: Option<&str>,
    sources: &Sources,
    method: &MethodDescriptor,
) -> anyhow::Result<Requests> {
    let input = method.input();
    let data = match data {
        Some(data) => data,
        None if input.fields().len() == 0 => "{}",
        None => bail!("{} wants a message: --data '{}'", name(method), example(&input)),
    };
    Payload::read(data, sources, &input, args.codec, method.is_client_streaming(), args.messages)
}

fn read_data(data: &str) -> anyhow::Result<String> {
    let bytes = read_input(data, DATA_BYTES_MAX)?;
    String::from_utf8(bytes).with_context(|| format!("--data {data} is not text in UTF-8"))
}

fn metadata(entries: &[String]) -> anyhow::Result<Metadata> {
    let mut metadata = Metadata::new();
    for entry in entries {
        let (name, value) = entry
            .split_once(':')
            .with_context(|| format!("--metadata {entry:?}: write NAME:VALUE, as authorization:Bearer abc"))?;
        let (name, value) = (name.trim().to_lowercase(), value.trim());
        let added =
            if name.ends_with("-bin") { metadata.append_encoded(&name, value) } else { metadata.append(&name, value) };
        added.with_context(|| format!("--metadata {entry:?}"))?;
    }
    Ok(metadata)
}

/// Limit of concurrent calls on a connection.
const MULTIPLEXING: Multiplexing = (65_536, "a connection would be busy keeping count of them");

pub fn command(args: &GrpcArgs) -> anyhow::Result<Exit> {
    if args.describe {
        std::io::stdout().write_all(block_on(describe(args))?.as_bytes())?;
        return Ok(Exit::Done);
    }
    let (workload, load) = block_on(prepare(args))?;
    let probe = workload.target.probe();
    let exit = measure(&args.load, MULTIPLEXING, load, &workload, probe)?;
    for (time, id) in workload.traces.iter().flat_map(Traces::slowest) {
        eprintln!("a slow call took {}: trace {id}", micros(time.as_secs_f64() * 1e6));
    }
    Ok(exit)
}
