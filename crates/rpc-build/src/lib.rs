//! Code generation for build scripts: messages by prost, services and clients by us, `.proto` files read by protox.
//!
//! Must not know the runtime: generated code names it only by the paths written here.

mod generate;

use std::path::{Path, PathBuf};
use std::{env, fs, io};

use generate::Generator;
use prost::Message;

/// What to generate.
#[derive(Debug)]
#[must_use]
pub struct Builder {
    server: bool,
    client: bool,
    descriptors: Option<String>,
    bytes: Vec<String>,
    messages: prost_build::Config,
}

impl Default for Builder {
    fn default() -> Self {
        Self { server: true, client: true, descriptors: None, bytes: Vec::new(), messages: prost_build::Config::new() }
    }
}

impl Builder {
    /// Whether to generate traits and services; true by default.
    pub fn server(mut self, server: bool) -> Self {
        self.server = server;
        self
    }

    /// Whether to generate clients; true by default.
    pub fn client(mut self, client: bool) -> Self {
        self.client = client;
        self
    }

    /// Writes the encoded file descriptors to this name in `OUT_DIR`, for reflection.
    pub fn descriptors(mut self, file_name: &str) -> Self {
        self.descriptors = Some(file_name.to_owned());
        self
    }

    /// Has the server's trait hand out a method's messages as bytes: `package.Service.Method`. A unary method then takes a
    /// `quire_rpc::server::Call`, which it may answer at once; streams carry `quire_rpc::Encoded`.
    pub fn bytes(mut self, method: &str) -> Self {
        self.bytes.push(method.to_owned());
        self
    }

    /// Settings of prost's own generator, as attributes or `bytes` fields.
    pub fn messages(mut self, change: impl FnOnce(&mut prost_build::Config)) -> Self {
        change(&mut self.messages);
        self
    }

    /// Generates into `OUT_DIR`, a file for each package, and tells cargo what to watch.
    pub fn compile(mut self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> io::Result<()> {
        for proto in protos {
            for include in includes {
                let path = include.as_ref().join(proto.as_ref());
                if path.exists() {
                    println_for_cargo(&path);
                }
            }
        }
        let files = protox::compile(protos, includes).map_err(io::Error::other)?;
        let methods = files.file.iter().flat_map(|file| {
            let services = file.service.iter();
            services.flat_map(|it| it.method.iter().map(|method| full_name(file.package(), it.name(), method.name())))
        });
        let methods: Vec<String> = methods.collect();
        if let Some(unknown) = self.bytes.iter().find(|method| !methods.contains(method)) {
            return Err(io::Error::other(format!(
                "{unknown} is no method of these contracts; write package.Service.Method"
            )));
        }
        if let Some(name) = &self.descriptors {
            let directory = env::var_os("OUT_DIR").map(PathBuf::from).ok_or(io::ErrorKind::NotFound)?;
            fs::write(directory.join(name), files.encode_to_vec())?;
        }
        self.messages.service_generator(Box::new(Generator {
            server: self.server,
            client: self.client,
            bytes: self.bytes,
        }));
        self.messages.compile_fds(files)
    }
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
