//! Contracts by the names of their messages, enums and services, each with its comments.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use quire_rpc::prost::{DecodeError, Message as _};
use quire_rpc::prost_types::{
    DescriptorProto, EnumDescriptorProto, FileDescriptorProto, FileDescriptorSet, ServiceDescriptorProto,
    SourceCodeInfo,
};

/// Field numbers in descriptors, which form the paths of comments.
mod place {
    pub(super) const FILE_MESSAGE: i32 = 4;
    pub(super) const FILE_ENUM: i32 = 5;
    pub(super) const FILE_SERVICE: i32 = 6;
    pub(super) const MESSAGE_MESSAGE: i32 = 3;
    pub(super) const MESSAGE_ENUM: i32 = 4;
    pub(super) const ITEM: i32 = 2;
}

type Comments = HashMap<Vec<i32>, String>;

/// An element of a contract.
pub(crate) struct Item<T> {
    /// Fully qualified.
    pub(crate) name: String,
    pub(crate) descriptor: T,
    comments: Rc<Comments>,
    path: Vec<i32>,
}

pub(crate) type Message = Item<DescriptorProto>;
pub(crate) type Enum = Item<EnumDescriptorProto>;
pub(crate) type Service = Item<ServiceDescriptorProto>;

impl<T> Item<T> {
    /// The comment; empty if there is none.
    pub(crate) fn comment(&self) -> &str {
        self.comments.get(&self.path).map_or("", String::as_str)
    }

    /// Comment of a field, a value or a method, by its index in the element.
    pub(crate) fn comment_of(&self, place: usize) -> &str {
        let path = at(&self.path, place::ITEM, place);
        self.comments.get(&path).map_or("", String::as_str)
    }
}

fn at(path: &[i32], field: i32, place: usize) -> Vec<i32> {
    [path, &[field, i32::try_from(place).unwrap_or(i32::MAX)]].concat()
}

/// All contracts of a server.
#[derive(Default)]
pub(crate) struct Contracts {
    pub(crate) messages: BTreeMap<String, Message>,
    pub(crate) enums: BTreeMap<String, Enum>,
    services: BTreeMap<String, Service>,
}

impl Contracts {
    pub(crate) fn read(sets: &[&[u8]]) -> Result<Self, DecodeError> {
        let mut contracts = Self::default();
        for set in sets {
            for file in FileDescriptorSet::decode(*set)?.file {
                contracts.add_file(file);
            }
        }
        Ok(contracts)
    }

    pub(crate) fn service(&self, name: &str) -> Option<&Service> {
        self.services.get(name)
    }

    fn add_file(&mut self, file: FileDescriptorProto) {
        let package = file.package.unwrap_or_default();
        let comments = Rc::new(comments(file.source_code_info.unwrap_or_default()));
        for (place, message) in file.message_type.into_iter().enumerate() {
            self.add_message(&package, message, &comments, at(&[], place::FILE_MESSAGE, place));
        }
        for (place, descriptor) in file.enum_type.into_iter().enumerate() {
            self.add_enum(&package, descriptor, &comments, at(&[], place::FILE_ENUM, place));
        }
        for (place, descriptor) in file.service.into_iter().enumerate() {
            let name = within(&package, descriptor.name());
            let path = at(&[], place::FILE_SERVICE, place);
            let service = Item { name: name.clone(), descriptor, comments: Rc::clone(&comments), path };
            self.services.insert(name, service);
        }
    }

    fn add_message(&mut self, scope: &str, mut descriptor: DescriptorProto, comments: &Rc<Comments>, path: Vec<i32>) {
        let name = within(scope, descriptor.name());
        for (place, inner) in std::mem::take(&mut descriptor.nested_type).into_iter().enumerate() {
            self.add_message(&name, inner, comments, at(&path, place::MESSAGE_MESSAGE, place));
        }
        for (place, inner) in std::mem::take(&mut descriptor.enum_type).into_iter().enumerate() {
            self.add_enum(&name, inner, comments, at(&path, place::MESSAGE_ENUM, place));
        }
        let comments = Rc::clone(comments);
        self.messages.insert(name.clone(), Item { name, descriptor, comments, path });
    }

    fn add_enum(&mut self, scope: &str, descriptor: EnumDescriptorProto, comments: &Rc<Comments>, path: Vec<i32>) {
        let name = within(scope, descriptor.name());
        let comments = Rc::clone(comments);
        self.enums.insert(name.clone(), Item { name, descriptor, comments, path });
    }
}

fn within(scope: &str, name: &str) -> String {
    if scope.is_empty() { name.to_owned() } else { format!("{scope}.{name}") }
}

fn comments(info: SourceCodeInfo) -> Comments {
    let mut comments = Comments::new();
    for location in info.location {
        let comment = location.leading_comments.or(location.trailing_comments).unwrap_or_default();
        if !comment.trim().is_empty() {
            comments.insert(location.path, paragraphs(&comment));
        }
    }
    comments
}

/// Joins a comment's lines, keeping blank lines.
fn paragraphs(comment: &str) -> String {
    let lines: Vec<&str> = comment.trim().lines().map(str::trim).collect();
    lines.split(|line| line.is_empty()).map(|paragraph| paragraph.join(" ")).collect::<Vec<_>>().join("\n\n")
}
