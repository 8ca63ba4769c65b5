//! Names in `.proto` files, resolved as protoc resolves them: by what a file and its imports declare, whatever else is
//! compiled with it.
//!
//! protox looks up the first part of a dotted name among all files that it has read. A package of another file may then
//! end the search in an inner scope, depending on the order of the files.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::rc::Rc;

use prost_types::uninterpreted_option::NamePart;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto, ServiceDescriptorProto,
    UninterpretedOption,
};
use protox::Error;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver, IncludeFileResolver};

/// Files in which every dotted name is absolute.
pub(crate) struct Resolver {
    files: ChainFileResolver,
    read: RefCell<HashMap<String, Rc<FileDescriptorProto>>>,
}

impl Resolver {
    pub(crate) fn new(includes: &[impl AsRef<Path>]) -> Self {
        let mut files = ChainFileResolver::new();
        for include in includes {
            files.add(IncludeFileResolver::new(include.as_ref().to_owned()));
        }
        files.add(GoogleFileResolver::new());
        Self { files, read: RefCell::default() }
    }

    fn read(&self, name: &str) -> Result<Rc<FileDescriptorProto>, Error> {
        if let Some(known) = self.read.borrow().get(name) {
            return Ok(Rc::clone(known));
        }
        let file: Rc<FileDescriptorProto> = Rc::new(self.files.open_file(name)?.into());
        self.read.borrow_mut().insert(name.to_owned(), Rc::clone(&file));
        Ok(file)
    }

    /// The scopes that a file, its imports and what those import publicly declare.
    fn scopes(&self, file: &FileDescriptorProto) -> Result<Scopes, Error> {
        let (mut scopes, mut seen, mut imports) = (Scopes::default(), HashSet::new(), file.dependency.clone());
        scopes.add_file(file);
        while let Some(name) = imports.pop() {
            if seen.insert(name.clone()) {
                let imported = self.read(&name)?;
                scopes.add_file(&imported);
                let public = |place: &i32| imported.dependency.get(usize::try_from(*place).ok()?).cloned();
                imports.extend(imported.public_dependency.iter().filter_map(public));
            }
        }
        Ok(scopes)
    }
}

impl FileResolver for Resolver {
    fn resolve_path(&self, path: &Path) -> Option<String> {
        self.files.resolve_path(path)
    }

    fn open_file(&self, name: &str) -> Result<File, Error> {
        let file = self.read(name)?;
        let scopes = self.scopes(&file)?;
        let mut resolved = FileDescriptorProto::clone(&file);
        scopes.resolve_file(&mut resolved);
        // An unchanged file keeps its source, for error messages.
        if resolved == *file { self.files.open_file(name) } else { Ok(resolved.into()) }
    }
}

/// Full names of packages, messages, enums and services.
#[derive(Default)]
struct Scopes(HashSet<String>);

fn join(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

impl Scopes {
    fn add_file(&mut self, file: &FileDescriptorProto) {
        let package = file.package();
        self.0.extend(package.match_indices('.').map(|(end, _)| package[..end].to_owned()));
        self.0.insert(package.to_owned());
        file.message_type.iter().for_each(|message| self.add_message(package, message));
        let enums = file.enum_type.iter().map(EnumDescriptorProto::name);
        let services = file.service.iter().map(ServiceDescriptorProto::name);
        self.0.extend(enums.chain(services).map(|name| join(package, name)));
    }

    fn add_message(&mut self, scope: &str, message: &DescriptorProto) {
        let full_name = join(scope, message.name());
        message.nested_type.iter().for_each(|nested| self.add_message(&full_name, nested));
        self.0.extend(message.enum_type.iter().map(|nested| join(&full_name, nested.name())));
        self.0.insert(full_name);
    }

    /// Makes a dotted name absolute: its first part is looked up in each scope, from the innermost.
    fn resolve(&self, mut scope: &str, name: &mut String) {
        let Some((first, _)) = name.split_once('.').filter(|(first, _)| !first.is_empty()) else { return };
        while !self.0.contains(&join(scope, first)) {
            if scope.is_empty() {
                return;
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
        *name = format!(".{}", join(scope, name));
    }

    fn resolve_options(&self, scope: &str, options: Option<&mut Vec<UninterpretedOption>>) {
        let parts = options.into_iter().flatten().flat_map(|option| &mut option.name);
        for NamePart { name_part, .. } in parts.filter(|part| part.is_extension) {
            self.resolve(scope, name_part);
        }
    }

    fn resolve_file(&self, file: &mut FileDescriptorProto) {
        let package = file.package().to_owned();
        self.resolve_options(&package, file.options.as_mut().map(|options| &mut options.uninterpreted_option));
        file.message_type.iter_mut().for_each(|message| self.resolve_message(&package, message));
        file.enum_type.iter_mut().for_each(|it| self.resolve_enum(&package, it));
        file.extension.iter_mut().for_each(|field| self.resolve_field(&package, field));
        file.service.iter_mut().for_each(|service| self.resolve_service(&package, service));
    }

    fn resolve_message(&self, scope: &str, message: &mut DescriptorProto) {
        let scope = &join(scope, message.name());
        self.resolve_options(scope, message.options.as_mut().map(|options| &mut options.uninterpreted_option));
        for field in message.field.iter_mut().chain(&mut message.extension) {
            self.resolve_field(scope, field);
        }
        for oneof in &mut message.oneof_decl {
            self.resolve_options(scope, oneof.options.as_mut().map(|options| &mut options.uninterpreted_option));
        }
        for range in &mut message.extension_range {
            self.resolve_options(scope, range.options.as_mut().map(|options| &mut options.uninterpreted_option));
        }
        message.nested_type.iter_mut().for_each(|nested| self.resolve_message(scope, nested));
        message.enum_type.iter_mut().for_each(|it| self.resolve_enum(scope, it));
    }

    fn resolve_field(&self, scope: &str, field: &mut FieldDescriptorProto) {
        for name in field.type_name.iter_mut().chain(&mut field.extendee) {
            self.resolve(scope, name);
        }
        self.resolve_options(scope, field.options.as_mut().map(|options| &mut options.uninterpreted_option));
    }

    fn resolve_enum(&self, scope: &str, it: &mut EnumDescriptorProto) {
        let scope = &join(scope, it.name());
        self.resolve_options(scope, it.options.as_mut().map(|options| &mut options.uninterpreted_option));
        for value in &mut it.value {
            self.resolve_options(scope, value.options.as_mut().map(|options| &mut options.uninterpreted_option));
        }
    }

    fn resolve_service(&self, scope: &str, service: &mut ServiceDescriptorProto) {
        let scope = &join(scope, service.name());
        self.resolve_options(scope, service.options.as_mut().map(|options| &mut options.uninterpreted_option));
        for method in &mut service.method {
            for name in method.input_type.iter_mut().chain(&mut method.output_type) {
                self.resolve(scope, name);
            }
            self.resolve_options(scope, method.options.as_mut().map(|options| &mut options.uninterpreted_option));
        }
    }
}
