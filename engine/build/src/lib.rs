#![doc = include_str!("../README.md")]
//!
//! Must not know the runtime: generated code names it only by the paths written here.

mod generate;
mod names;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use generate::Generator;
use names::Resolver;
use prost_types::FileDescriptorSet;
use protox::Compiler;

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

    /// Generates into `OUT_DIR` and makes cargo watch every file that was read. Each package becomes a file named after
    /// it, for `quire_rpc::include_proto!`. Names of `protos` are looked up in `includes`. A build script may call it
    /// more than once, for different packages.
    pub fn compile(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> io::Result<()> {
        let directory = env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "OUT_DIR is not set: call this from a build script")
        })?;
        for file in self.compile_into(&directory, protos, includes)? {
            println_for_cargo(&file);
        }
        Ok(())
    }

    /// Returns the files that were read.
    fn compile_into(
        self,
        directory: &Path,
        protos: &[impl AsRef<Path>],
        includes: &[impl AsRef<Path>],
    ) -> io::Result<Vec<PathBuf>> {
        let descriptors = descriptors_name(protos)?;
        let compiler = compiled(protos, includes).map_err(io::Error::other)?;
        fs::write(directory.join(&descriptors), compiler.encode_file_descriptor_set())?;
        let files = compiler.file_descriptor_set();
        self.check_bytes(&files)?;
        let Self { server, client, bytes, mut messages } = self;
        // Prost writes all its files there, that of `include_file` too.
        let written = directory.join(format!("{descriptors}.written"));
        fs::create_dir_all(&written)?;
        messages.out_dir(&written).service_generator(Box::new(Generator { server, client, bytes, descriptors }));
        messages.compile_fds(files)?;
        for file in fs::read_dir(&written)? {
            let file = file?;
            fs::write(directory.join(file.file_name()), without_lints(&fs::read_to_string(file.path())?))?;
        }
        fs::remove_dir_all(&written)?;
        let path = |name: &str| includes.iter().map(|it| it.as_ref().join(name)).find(|path| path.exists());
        Ok(compiler.files().filter_map(|file| path(file.name())).collect())
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

/// A name for the descriptors of these files, unlike any other's.
fn descriptors_name(protos: &[impl AsRef<Path>]) -> io::Result<String> {
    let stem = protos.first().and_then(|proto| proto.as_ref().file_stem());
    let stem = stem.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "name at least one .proto file"))?;
    let mut hasher = DefaultHasher::new();
    for proto in protos {
        proto.as_ref().hash(&mut hasher);
    }
    Ok(format!("{}-{:016x}.descriptors", stem.to_string_lossy(), hasher.finish()))
}

/// Reads and links the files.
fn compiled(protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> Result<Compiler, protox::Error> {
    let open = |mut compiler: Compiler| {
        compiler.include_source_info(true).include_imports(true).open_files(protos)?;
        Ok(compiler)
    };
    // Only the first error carries the source that it is about.
    open(Compiler::new(includes)?)
        .or_else(|error| open(Compiler::with_file_resolver(Resolver::new(includes))).map_err(|_: protox::Error| error))
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

#[cfg(test)]
mod tests {
    use prost_types::FileDescriptorSet;
    use protox::prost::Message as _;

    use super::*;

    /// A folder with these files, and one for the generated ones.
    fn folder(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, format!("syntax = \"proto3\";\n{text}")).expect("a file");
        }
        let out = folder.path().join("out");
        fs::create_dir(&out).expect("a folder");
        (folder, out)
    }

    fn read(path: impl AsRef<Path>) -> String {
        fs::read_to_string(path).expect("a file")
    }

    #[test]
    fn files_of_one_name_in_two_folders_keep_their_descriptors() {
        let service = |package| format!("package {package}; message M {{}} service S {{ rpc Call(M) returns (M); }}");
        let (folder, out) = folder(&[("a/v1/s.proto", &service("a.v1")), ("b/v1/s.proto", &service("b.v1"))]);
        for (file, package) in [("a/v1/s.proto", "a.v1"), ("b/v1/s.proto", "b.v1")] {
            Builder::default().compile_into(&out, &[file], &[folder.path()]).expect(file);
            assert!(read(out.join(format!("{package}.rs"))).contains("pub trait S"));
        }
        for package in ["a.v1", "b.v1"] {
            let text = read(out.join(format!("{package}.rs")));
            let name =
                text.split_once("include_bytes!(\"").and_then(|(_, rest)| rest.split_once('"')).expect("a name").0;
            let set = FileDescriptorSet::decode(&*fs::read(out.join(name)).expect("descriptors")).expect("a set");
            assert_eq!(set.file[0].package(), package);
        }
    }

    #[test]
    fn imported_files_are_watched_and_the_file_of_all_modules_is_written() {
        let (folder, out) = folder(&[
            (
                "a.proto",
                "package a; import \"deep/b.proto\"; import \"google/protobuf/any.proto\"; message A { b.B b = 1; }",
            ),
            ("deep/b.proto", "package b; message B {}"),
        ]);
        let builder = Builder::default().messages(|prost| {
            prost.include_file("all.rs");
        });
        let watched = builder.compile_into(&out, &["a.proto"], &[folder.path()]).expect("code");
        assert_eq!(watched, ["deep/b.proto", "a.proto"].map(|name| folder.path().join(name)));
        let all = read(out.join("all.rs"));
        assert!(all.contains("pub mod a {") && all.contains("include!(\"b.rs\")"), "{all}");
    }

    #[test]
    fn names_do_not_depend_on_the_order_of_files() {
        let files = [
            ("config.proto", "package config.core; message C {}"),
            (
                "a.proto",
                "package x.ext.a; import \"config.proto\"; message A { config.core.C c = 1; map<string, config.core.C> d = 2; }",
            ),
            ("other.proto", "package x.ext.config.core; message Other { Other.Inner o = 1; message Inner {} }"),
        ];
        let (folder, out) = folder(&files);
        for order in [["a.proto", "other.proto"], ["other.proto", "a.proto"]] {
            Builder::default().compile_into(&out, &order, &[folder.path()]).expect("code");
            assert!(read(out.join("x.ext.a.rs")).contains("super::super::super::config::core::C"));
        }
        fs::write(folder.path().join("a.proto"), "syntax = \"proto3\"; message A { config.core.C c = 1; }")
            .expect("a file");
        let error =
            Builder::default().compile_into(&out, &["other.proto", "a.proto"], &[folder.path()]).expect_err("no C");
        assert!(error.to_string().contains("config.core.C"), "{error}");
    }

    #[test]
    fn methods_named_as_the_clients_own_functions_get_another_name() {
        let text = "message M {} service S { rpc New(M) returns (M); rpc Channel(M) returns (M); }";
        let (folder, out) = folder(&[("s.proto", text)]);
        Builder::default().compile_into(&out, &["s.proto"], &[folder.path()]).expect("code");
        let code = read(out.join("_.rs"));
        assert!(code.contains("pub async fn new_(") && code.contains("pub async fn channel_("), "{code}");
    }
}
