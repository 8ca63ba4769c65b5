//! Generates the text of a service: a trait, its server, and its client.

use prost_build::{Method, Service};

pub(crate) struct Generator {
    pub(crate) server: bool,
    pub(crate) client: bool,
    /// Methods whose messages stay bytes on the server, as `package.Service.Method`.
    pub(crate) bytes: Vec<String>,
    /// File with the encoded descriptors, beside the generated ones.
    pub(crate) descriptors: String,
}

impl prost_build::ServiceGenerator for Generator {
    fn generate(&mut self, service: Service, out: &mut String) {
        if self.server {
            out.push_str(&server(&service, &self.bytes));
        }
        if self.client {
            out.push_str(&client(&service));
        }
    }

    fn finalize_package(&mut self, _package: &str, out: &mut String) {
        let docs = "/// The contracts and all files they import: an encoded `FileDescriptorSet`, with the comments.";
        let name = &self.descriptors;
        out.extend([format!("{docs}\npub const DESCRIPTORS: &[u8] = include_bytes!({name:?});\n")]);
    }
}

/// Path of a type as seen from a module inside the messages' own.
fn outer(path: &str) -> String {
    let absolute = path.starts_with("::") || path.starts_with("crate::") || path.starts_with('(');
    if absolute { path.to_owned() } else { format!("super::{path}") }
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    let letters: Vec<char> = name.chars().collect();
    for (position, letter) in letters.iter().enumerate() {
        let after_lower = position > 0 && !letters[position - 1].is_uppercase();
        let before_lower = position > 0 && letters.get(position + 1).is_some_and(|next| next.is_lowercase());
        if letter.is_uppercase() && (after_lower || before_lower) && !out.ends_with('_') {
            out.push('_');
        }
        out.extend(letter.to_lowercase());
    }
    out
}

fn full_name(service: &Service) -> String {
    if service.package.is_empty() {
        service.proto_name.clone()
    } else {
        format!("{}.{}", service.package, service.proto_name)
    }
}

/// Doc comment: the contract's comment, followed by the generator's `fact`.
fn docs(comments: &prost_build::Comments, depth: u8, fact: &str) -> String {
    let mut out = String::new();
    comments.append_with_indent(depth, &mut out);
    let indent = "    ".repeat(depth.into());
    if !out.is_empty() {
        out.extend([format!("{indent}///\n")]);
    }
    out + &format!("{indent}/// {fact}\n")
}

/// Kind and path of a method, for its documentation.
fn fact(service: &str, method: &Method) -> String {
    let kind = match (method.client_streaming, method.server_streaming) {
        (false, false) => "Unary",
        (false, true) => "Server streaming",
        (true, false) => "Client streaming",
        (true, true) => "Bidirectional streaming",
    };
    let changes = if has_side_effects(method) { "" } else { "; without side effects" };
    format!("{kind}: `/{service}/{}`{changes}.", method.proto_name)
}

fn has_side_effects(method: &Method) -> bool {
    method.options.idempotency_level().as_str_name() != "NO_SIDE_EFFECTS"
}

/// Builder call that marks a generated method as free of side effects.
fn mark(method: &Method) -> &'static str {
    if has_side_effects(method) { "" } else { ".without_side_effects()" }
}

fn server(service: &Service, bytes: &[String]) -> String {
    let name = &service.name;
    let full_name = full_name(service);
    let (mut methods, mut table, mut paths) = (String::new(), String::new(), String::new());
    for method in &service.methods {
        let is_bytes = bytes.contains(&format!("{full_name}.{}", method.proto_name));
        methods.push_str(&trait_method(&full_name, method, is_bytes));
        table.push_str(&table_entry(method, is_bytes));
        paths.extend([format!("\"/{full_name}/{}\", ", method.proto_name)]);
    }
    let fact = format!("Implement this and serve it by [`{name}Server`].");
    let docs = docs(&service.comments, 1, &fact);
    format!(
        "/// Server of `{full_name}`.\npub mod {module}_server {{
    /// The service's full name.
    pub const NAME: &str = \"{full_name}\";

    /// The paths of its methods, in the order of the contract.
    pub const METHODS: [&str; {count}] = [{paths}];

{docs}    pub trait {name}: Send + Sync + Sized + 'static {{
{methods}    }}

    /// Serves an implementation of [`{name}`].
    #[derive(Debug)]
    pub struct {name}Server<T> {{
        service: ::std::sync::Arc<T>,
    }}

    impl<T> Clone for {name}Server<T> {{
        fn clone(&self) -> Self {{
            Self {{ service: ::std::sync::Arc::clone(&self.service) }}
        }}
    }}

    impl<T: {name}> {name}Server<T> {{
        /// The service's full name.
        pub const NAME: &'static str = NAME;

        /// Serves `service`.
        pub fn new(service: T) -> Self {{
            Self {{ service: ::std::sync::Arc::new(service) }}
        }}

        /// Serves a service that is shared.
        pub fn from_arc(service: ::std::sync::Arc<T>) -> Self {{
            Self {{ service }}
        }}
    }}

    impl<T: {name}> ::quire_rpc::server::Service for {name}Server<T> {{
        fn name(&self) -> &'static str {{
            Self::NAME
        }}

        fn methods(self) -> ::std::vec::Vec<::quire_rpc::server::Method> {{
            ::std::vec![
{table}            ]
        }}

        fn descriptors(&self) -> &'static [u8] {{
            super::DESCRIPTORS
        }}
    }}
}}
",
        module = snake(name),
        count = service.methods.len(),
    )
}

/// Request and reply type of a method in its trait.
fn types(method: &Method, is_bytes: bool) -> (String, String) {
    let (input, output) = (outer(&method.input_type), outer(&method.output_type));
    let encoded = || String::from("::quire_rpc::Encoded");
    let request = match (method.client_streaming, is_bytes) {
        (false, _) => input,
        (true, false) => format!("::quire_rpc::Streaming<{input}>"),
        (true, true) => format!("::quire_rpc::Streaming<{}>", encoded()),
    };
    (request, if is_bytes { encoded() } else { output })
}

fn stream_name(method: &Method) -> String {
    format!("{}Stream", method.proto_name)
}

/// True for unary methods of bytes, whose own form may answer at once.
fn is_call(method: &Method, is_bytes: bool) -> bool {
    is_bytes && shape(method) == "unary"
}

fn trait_method(service: &str, method: &Method, is_bytes: bool) -> String {
    let (request, output) = types(method, is_bytes);
    let name = &method.name;
    let docs = docs(&method.comments, 2, &fact(service, method));
    if is_call(method, is_bytes) {
        return format!(
            "{docs}        fn {name}(
            &self,
            call: ::quire_rpc::server::Call<'_, {request}>,
        ) -> ::quire_rpc::server::Answer<impl ::quire_rpc::server::Later + use<Self>>;
"
        );
    }
    let mut out = String::new();
    let reply = if method.server_streaming {
        let stream = stream_name(method);
        let (items, bound) = if is_bytes {
            ("items that are `Encode`, such as `Encoded`".to_owned(), "::quire_rpc::server::AnswerStream".to_owned())
        } else {
            let item = format!("::std::result::Result<{output}, ::quire_rpc::Status>");
            ("these items".to_owned(), format!("::quire_rpc::Stream<Item = {item}> + Send + 'static"))
        };
        out.extend([format!(
            "        /// What [`Self::{name}`] answers with: any `Stream` of {items}; for one made by `quire_rpc::unfold`,
        /// `Pin<Box<dyn Stream<Item = Result<…, Status>> + Send>>`.
        type {stream}: {bound};
"
        )]);
        format!("Self::{stream}")
    } else {
        output
    };
    out.extend([format!(
        "{docs}        fn {name}(
            &self,
            request: ::quire_rpc::Request<{request}>,
        ) -> impl ::std::future::Future<Output = ::std::result::Result<::quire_rpc::Response<{reply}>, ::quire_rpc::Status>> + Send;
"
    )]);
    out
}

fn table_entry(method: &Method, is_bytes: bool) -> String {
    let (request, _) = types(method, is_bytes);
    let (name, proto_name) = (&method.name, &method.proto_name);
    let (shape, call) = if is_call(method, is_bytes) {
        (
            "bytes",
            format!(
                "|service: &::std::sync::Arc<T>, call: ::quire_rpc::server::Call<'_, {request}>| service.{name}(call)"
            ),
        )
    } else {
        let call = format!(
            "|service: ::quire_rpc::server::LocalArc<T>, request: ::quire_rpc::Request<{request}>| async move {{
                        service.{name}(request).await
                    }}"
        );
        (shape(method), call)
    };
    let mark = mark(method);
    format!(
        "                ::quire_rpc::server::Method::{shape}(
                    \"{proto_name}\",
                    ::std::sync::Arc::clone(&self.service),
                    {call},
                ){mark},
"
    )
}

fn shape(method: &Method) -> &'static str {
    match (method.client_streaming, method.server_streaming) {
        (false, false) => "unary",
        (false, true) => "server_streaming",
        (true, false) => "client_streaming",
        (true, true) => "bidi_streaming",
    }
}

fn client(service: &Service) -> String {
    let name = &service.name;
    let full_name = full_name(service);
    let (mut methods, mut paths) = (String::new(), String::new());
    for method in &service.methods {
        let constant = method.name.trim_start_matches("r#").to_uppercase();
        let proto_name = &method.proto_name;
        let mark = mark(method);
        paths.extend([format!(
            "    /// The path of `{proto_name}`, for calls with other types than the contract's.
    pub static {constant}: ::quire_rpc::client::Path =
        ::quire_rpc::client::Path::new(\"/{full_name}/{proto_name}\").of_contract(super::DESCRIPTORS){mark};\n"
        )]);
        methods.push_str(&client_method(&full_name, method, &constant));
    }
    let docs = docs(&service.comments, 1, "Calls the service through a channel; clones share it.");
    format!(
        "/// Client of `{full_name}`.\npub mod {module}_client {{
{paths}
{docs}    #[derive(Clone, Debug)]
    pub struct {name}Client {{
        channel: ::quire_rpc::client::Channel,
    }}

    impl {name}Client {{
        /// Calls through `channel`.
        pub fn new(channel: ::quire_rpc::client::Channel) -> Self {{
            Self {{ channel }}
        }}

        /// The channel, with its settings for calls.
        pub fn channel(&self) -> &::quire_rpc::client::Channel {{
            &self.channel
        }}

{methods}    }}
}}
",
        module = snake(name),
    )
}

fn client_method(service: &str, method: &Method, constant: &str) -> String {
    let (input, output) = (outer(&method.input_type), outer(&method.output_type));
    // The client has functions of these names.
    let own = if ["new", "channel"].contains(&&*method.name) { "_" } else { "" };
    let name = format!("{}{own}", method.name);
    let shape = shape(method);
    let docs = docs(&method.comments, 2, &fact(service, method));
    let request = if method.client_streaming {
        format!("impl ::quire_rpc::client::IntoStreamingRequest<Message = {input}>")
    } else {
        format!("impl ::std::convert::Into<::quire_rpc::Request<{input}>>")
    };
    let convert = if method.client_streaming { "into_streaming_request" } else { "into" };
    let reply = if method.server_streaming { format!("::quire_rpc::Streaming<{output}>") } else { output };
    format!(
        "{docs}        pub async fn {name}(
            &self,
            request: {request},
        ) -> ::std::result::Result<::quire_rpc::Response<{reply}>, ::quire_rpc::Status> {{
            self.channel.{shape}(&{constant}, request.{convert}()).await
        }}

"
    )
}

#[cfg(test)]
mod tests {
    use prost_build::{Comments, Method};

    use super::{docs, fact, snake};

    #[test]
    fn a_methods_docs_have_the_contracts_comment_its_kind_and_its_path() {
        let comments = Comments {
            leading_detached: Vec::new(),
            leading: vec![" Tells [news], see https://example.com".to_owned()],
            trailing: Vec::new(),
        };
        let mut method = Method {
            name: "watch".to_owned(),
            proto_name: "Watch".to_owned(),
            comments,
            input_type: String::new(),
            output_type: String::new(),
            input_proto_type: String::new(),
            output_proto_type: String::new(),
            options: prost_types::MethodOptions::default(),
            client_streaming: false,
            server_streaming: true,
        };
        let shown = docs(&method.comments, 1, &fact("a.News", &method));
        let comment = "    /// Tells \\[news\\], see <https://example.com>\n    ///\n";
        assert_eq!(shown, format!("{comment}    /// Server streaming: `/a.News/Watch`.\n"));
        method.options.idempotency_level = Some(1);
        assert_eq!(fact("a.News", &method), "Server streaming: `/a.News/Watch`; without side effects.");
    }

    #[test]
    fn names_become_modules_as_rust_writes_them() {
        for (name, expected) in [
            ("BookStore", "book_store"),
            ("KeyValueService", "key_value_service"),
            ("RPCGame", "rpc_game"),
            ("V1", "v1"),
        ] {
            assert_eq!(snake(name), expected);
        }
    }
}
