#![doc = include_str!("../README.md")]
//!
//! Must not know the runtime: generated code names it only by the paths written here.

mod generate;
mod names;

use std::fmt::Display;
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
    out_dir: Option<PathBuf>,
    messages: prost_build::Config,
}

impl Default for Builder {
    fn default() -> Self {
        let mut messages = prost_build::Config::new();
        messages.prost_path("::quire_rpc::prost").prost_types_path("::quire_rpc::prost_types");
        Self { server: true, client: true, bytes: Vec::new(), out_dir: None, messages }
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

    /// Sets the folder for generated files, made if it is missing; `OUT_DIR` by default. Include the files of another
    /// folder by their paths, not by `quire_rpc::include_proto!`.
    pub fn out_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.out_dir = Some(folder.into());
        self
    }

    /// Generates code and makes cargo watch every file that was read. Each package becomes a file named after it, for
    /// `quire_rpc::include_proto!`. Names of `protos` are looked up in `includes`. A build script may call it more than
    /// once, for different packages.
    pub fn compile(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> io::Result<()> {
        for file in self.compile_files(protos, includes)? {
            println_for_cargo(&file);
        }
        Ok(())
    }

    /// Like [`compile`](Self::compile), from a file with an encoded `google.protobuf.FileDescriptorSet`, as
    /// `protoc --include_imports --descriptor_set_out=FILE` and `buf build -o FILE` write it. It must hold what its files
    /// import; of Bazel, whose `proto_library` writes a set a target, concatenate the transitive ones.
    pub fn compile_descriptors(self, set: impl AsRef<Path>) -> io::Result<()> {
        let set = set.as_ref();
        let named = |what: &dyn Display| io::Error::other(format!("{}: {what}", set.display()));
        let encoded = fs::read(set).map_err(|error| io::Error::new(error.kind(), named(&error)))?;
        let files = quire_json::descriptors(&encoded).map_err(|error| named(&error))?;
        let has = |name: &String| files.file.iter().any(|file| file.name() == name);
        let missing =
            files.file.iter().find_map(|file| Some((file.name(), file.dependency.iter().find(|name| !has(name))?)));
        if let Some((file, import)) = missing {
            return Err(named(&format_args!(
                "it lacks {import}, which {file} imports; have protoc write it with --include_imports"
            )));
        }
        self.generate(&descriptors_name(&[set])?, &encoded, files)?;
        println_for_cargo(set);
        Ok(())
    }

    /// Returns the files that were read.
    fn compile_files(self, protos: &[impl AsRef<Path>], includes: &[impl AsRef<Path>]) -> io::Result<Vec<PathBuf>> {
        let compiler = compiled(protos, includes).map_err(|error| match error.file() {
            Some(file) if error.to_string().ends_with("found 'edition'") => io::Error::other(format!(
                "{file} has an edition: have protoc or buf write its descriptors, for Builder::compile_descriptors"
            )),
            _ => io::Error::other(error),
        })?;
        let encoded = compiler.encode_file_descriptor_set();
        self.generate(&descriptors_name(protos)?, &encoded, compiler.file_descriptor_set())?;
        let path = |name: &str| includes.iter().map(|it| it.as_ref().join(name)).find(|path| path.exists());
        Ok(compiler.files().filter_map(|file| path(file.name())).collect())
    }

    /// Writes the code, and the set as a file of this name.
    fn generate(self, descriptors: &str, encoded: &[u8], files: FileDescriptorSet) -> io::Result<()> {
        self.check_bytes(&files)?;
        let Self { server, client, bytes, out_dir, mut messages } = self;
        let directory = out_dir.or_else(|| env::var_os("OUT_DIR").map(PathBuf::from)).ok_or_else(|| {
            io::Error::new(io::ErrorKind::NotFound, "OUT_DIR is not set: call this from a build script, or set out_dir")
        })?;
        // Prost writes all its files there, that of `include_file` too.
        let written = directory.join(format!("{descriptors}.written"));
        fs::create_dir_all(&written)?;
        fs::write(directory.join(descriptors), encoded)?;
        let descriptors = descriptors.to_owned();
        messages.out_dir(&written).service_generator(Box::new(Generator { server, client, bytes, descriptors }));
        messages.compile_fds(files)?;
        for file in fs::read_dir(&written)? {
            let file = file?;
            fs::write(directory.join(file.file_name()), without_lints(&fs::read_to_string(file.path())?))?;
        }
        fs::remove_dir_all(&written)
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
            Builder::default().out_dir(&out).compile_files(&[file], &[folder.path()]).expect(file);
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
    fn a_set_of_descriptors_makes_the_code_that_its_files_make() {
        let (folder, out) = folder(&[
            (
                "a.proto",
                "package a; import \"b.proto\"; import \"google/protobuf/any.proto\"; /* Of a. */ message A { b.B b = 1; google.protobuf.Any c = 2; } service S { rpc Call(A) returns (b.B); }",
            ),
            ("b.proto", "package b; message B {}"),
        ]);
        Builder::default().out_dir(&out).compile_files(&["a.proto"], &[folder.path()]).expect("code");
        let mut compiler = Compiler::new([folder.path()]).expect("a compiler");
        compiler.include_source_info(true).include_imports(true).open_file("a.proto").expect("a file");
        let (set, again) = (folder.path().join("set.bin"), folder.path().join("made/again"));
        fs::write(&set, compiler.encode_file_descriptor_set()).expect("a file");
        Builder::default().out_dir(&again).compile_descriptors(&set).expect("code");
        // The file of the descriptors is named after what was given.
        let code = |folder: &Path| {
            let code = read(folder.join("a.rs"));
            let (_, rest) = code.split_once("include_bytes!(\"").expect("descriptors");
            let (name, _) = rest.split_once('"').expect("a name");
            assert_eq!(fs::read(folder.join(name)).expect("descriptors"), fs::read(&set).expect("a file"));
            code.replace(name, "")
        };
        assert_eq!(code(&out), code(&again));
        assert_eq!(read(out.join("b.rs")), read(again.join("b.rs")));
    }

    #[test]
    fn a_set_without_its_imports_or_of_other_bytes_is_refused_by_name() {
        let (folder, out) =
            folder(&[("a.proto", "import \"b.proto\"; message A { B b = 1; }"), ("b.proto", "message B {}")]);
        let set = folder.path().join("set.bin");
        let refused = |bytes: &[u8]| {
            fs::write(&set, bytes).expect("a file");
            Builder::default().out_dir(&out).compile_descriptors(&set).expect_err("refused").to_string()
        };
        let mut compiler = Compiler::new([folder.path()]).expect("a compiler");
        compiler.open_file("a.proto").expect("a file");
        let said = refused(&compiler.encode_file_descriptor_set());
        assert!(said.contains("set.bin: it lacks b.proto, which a.proto imports"), "{said}");
        assert!(refused(b"no descriptors").contains("set.bin: "));
        fs::remove_file(&set).expect("it is there");
        let said = Builder::default().out_dir(&out).compile_descriptors(&set).expect_err("no file").to_string();
        assert!(said.contains("set.bin: "), "{said}");
    }

    #[test]
    fn a_file_with_an_edition_is_read_from_descriptors_only() {
        let (folder, out) = folder(&[("a.proto", "package a; message A { int32 number = 1; }")]);
        let mut compiler = Compiler::new([folder.path()]).expect("a compiler");
        let mut set = compiler.open_file("a.proto").expect("a file").file_descriptor_set();
        set.file[0].syntax = Some("editions".to_owned());
        let path = folder.path().join("set.bin");
        fs::write(&path, set.encode_to_vec()).expect("a file");
        Builder::default().out_dir(&out).compile_descriptors(&path).expect("code");
        assert!(read(out.join("a.rs")).contains("pub number: ::core::option::Option<i32>"));
        fs::write(folder.path().join("b.proto"), "edition = \"2023\";\npackage b;\nmessage B {}\n").expect("a file");
        let said = Builder::default().out_dir(&out).compile_files(&["b.proto"], &[folder.path()]).expect_err("refused");
        assert!(said.to_string().contains("b.proto has an edition"), "{said}");
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
        let watched = builder.out_dir(&out).compile_files(&["a.proto"], &[folder.path()]).expect("code");
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
            Builder::default().out_dir(&out).compile_files(&order, &[folder.path()]).expect("code");
            assert!(read(out.join("x.ext.a.rs")).contains("super::super::super::config::core::C"));
        }
        fs::write(folder.path().join("a.proto"), "syntax = \"proto3\"; message A { config.core.C c = 1; }")
            .expect("a file");
        let error = Builder::default()
            .out_dir(&out)
            .compile_files(&["other.proto", "a.proto"], &[folder.path()])
            .expect_err("no C");
        assert!(error.to_string().contains("config.core.C"), "{error}");
    }

    #[test]
    fn methods_named_as_the_clients_own_functions_get_another_name() {
        let text = "message M {} service S { rpc New(M) returns (M); rpc Channel(M) returns (M); }";
        let (folder, out) = folder(&[("s.proto", text)]);
        Builder::default().out_dir(&out).compile_files(&["s.proto"], &[folder.path()]).expect("code");
        let code = read(out.join("_.rs"));
        assert!(code.contains("pub async fn new_(") && code.contains("pub async fn channel_("), "{code}");
    }
}
