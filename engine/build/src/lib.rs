#![doc = include_str!("../README.md")]
//!
//! Must not know the runtime: generated code names it only by the paths written here.

mod generate;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use generate::Generator;
use prost_build::Module;
use prost_types::FileDescriptorSet;

/// Settings of the generator.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    server: bool,
    client: bool,
    bytes: Vec<String>,
    messages: prost_build::Config,
}

impl Default for Builder {
    fn default() -> Self {
        let mut messages = prost_build::Config::new();
        messages.prost_path("::quire_rpc::prost").prost_types_path("::quire_rpc::prost_types");
        Self { server: true, client: true, bytes: Vec::new(), messages }
    }
}

impl Builder {
    /// Sets whether traits and services are generated; true by default.
    pub fn server(mut self, server: bool) -> Self {
        self.server = server;
        self
    }

    /// Sets whether clients are generated; true by default.
    pub fn client(mut self, client: bool) -> Self {
        self.client = client;
        self
    }

    /// Makes the server's trait exchange a method's messages (`package.Service.Method`) as bytes. A unary method then
    /// takes a `quire_rpc::server::Call`, which it may answer at once; streams carry `quire_rpc::Encoded`.
    pub fn bytes(mut self, method: &str) -> Self {
        self.bytes.push(method.to_owned());
        self
    }

    /// Changes settings of prost's own generator, such as attributes or `bytes` fields.
    pub fn messages(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.messages);
        self
    }

    /// Generates into `OUT_DIR` and makes cargo watch the sources. Each package becomes a file named after it, for
    /// `quire_rpc::include_proto!`; the descriptors of all files, imported ones too, become a file named after the
    /// first of `protos`.
    pub fn compile(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> io::Result<()> {
        for proto in protos {
            for include in includes {
                let path = include.as_ref().join(proto.as_ref());
                if path.exists() {
                    println_for_cargo(&path);
                }
            }
        }
        let directory = env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "OUT_DIR is not set: call this from a build script")
        })?;
        let first = protos.first().and_then(|proto| proto.as_ref().file_stem());
        let first =
            first.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "name at least one .proto file"))?;
        let descriptors = format!("{}.descriptors", first.to_string_lossy());
        let mut compiler = protox::Compiler::new(includes).map_err(io::Error::other)?;
        compiler.include_source_info(true).include_imports(true).open_files(protos).map_err(io::Error::other)?;
        fs::write(directory.join(&descriptors), compiler.encode_file_descriptor_set())?;
        let files = compiler.file_descriptor_set();
        self.check_bytes(&files)?;
        let Self { server, client, bytes, mut messages } = self;
        messages.service_generator(Box::new(Generator { server, client, bytes, descriptors }));
        let files = files.file.into_iter().map(|file| (Module::from_protobuf_package_name(file.package()), file));
        for (package, text) in messages.generate(files.collect())? {
            fs::write(directory.join(package.to_file_name_or("_")), without_lints(&text))?;
        }
        Ok(())
    }

    /// Rejects a name given to [`bytes`](Self::bytes) that matches no method.
    fn check_bytes(&self, files: &FileDescriptorSet) -> io::Result<()> {
        let methods = files.file.iter().flat_map(|file| {
            let services = file.service.iter();
            services.flat_map(|it| it.method.iter().map(|method| full_name(file.package(), it.name(), method.name())))
        });
        let methods: Vec<String> = methods.collect();
        match self.bytes.iter().find(|method| !methods.contains(method)) {
            None => Ok(()),
            Some(unknown) => Err(io::Error::other(format!(
                "{unknown} is no method of these contracts; write package.Service.Method"
            ))),
        }
    }
}

/// Generated code is checked by its generator's tests and documented by its contract.
const ALLOW: &str = "#[allow(clippy::all, clippy::pedantic, clippy::nursery, missing_docs, unreachable_pub, \
                     unused_qualifications, dead_code, reason = \"generated\")]\n";

/// Prefixes every item of the generated text with [`ALLOW`]. (An included file cannot begin with `#![allow(…)]`.)
fn without_lints(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for line in text.split_inclusive('\n') {
        if ["pub const ", "pub struct ", "pub enum ", "pub mod ", "impl "].iter().any(|item| line.starts_with(item)) {
            out.push_str(ALLOW);
        }
        out.push_str(line);
    }
    out
}

fn full_name(package: &str, service: &str, method: &str) -> String {
    if package.is_empty() { format!("{service}.{method}") } else { format!("{package}.{service}.{method}") }
}

#[expect(clippy::print_stdout, reason = "a build script talks to cargo that way")]
fn println_for_cargo(path: &Path) {
    println!("cargo:rerun-if-changed={}", path.display());
}

/// Generates servers and clients for `protos`, found in `includes`.
pub fn compile(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> io::Result<()> {
    Builder::default().compile(protos, includes)
}
