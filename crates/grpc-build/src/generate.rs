//! The text of a service: a trait, the server around it, and the client.

use prost_build::{Method, Service};

pub(crate) struct Generator {
    pub(crate) server: bool,
    pub(crate) client: bool,
}

impl prost_build::ServiceGenerator for Generator {
    fn generate(&mut self, service: Service, out: &mut String) {
        if self.server {
            out.push_str(&server(&service));
        }
        if self.client {
            out.push_str(&client(&service));
        }
    }
}

/// A type as a module below the messages' own names it.
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

fn docs(comments: &prost_build::Comments, indent: &str, fallback: &str) -> String {
    if comments.leading.is_empty() {
        return format!("{indent}/// {fallback}\n");
    }
    let mut out = String::new();
    for line in &comments.leading {
        out.extend([format!("{indent}///{line}\n")]);
    }
    out
}

const ALLOW: &str = "#[allow(clippy::all, clippy::pedantic, missing_docs, unused_qualifications, dead_code)]\n";

fn server(service: &Service) -> String {
    let name = &service.name;
    let mut methods = String::new();
    let mut table = String::new();
    for method in &service.methods {
        methods.push_str(&trait_method(method));
        table.push_str(&table_entry(method));
    }
    let full_name = full_name(service);
    let docs = docs(&service.comments, "    ", "A service.");
    format!(
        "/// Server of `{full_name}`.\n{ALLOW}pub mod {module}_server {{
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
        pub const NAME: &'static str = \"{full_name}\";

        /// Serves `service`.
        pub fn new(service: T) -> Self {{
            Self {{ service: ::std::sync::Arc::new(service) }}
        }}

        /// Serves a service that is shared.
        pub fn from_arc(service: ::std::sync::Arc<T>) -> Self {{
            Self {{ service }}
        }}
    }}

    impl<T: {name}> ::grpc::server::Service for {name}Server<T> {{
        fn name(&self) -> &'static str {{
            Self::NAME
        }}

        fn methods(self) -> ::std::vec::Vec<::grpc::server::Method> {{
            ::std::vec![
{table}            ]
        }}
    }}
}}
",
        module = snake(name),
    )
}

/// Request and reply type of a method as its trait has them.
fn types(method: &Method) -> (String, String) {
    let input = outer(&method.input_type);
    let request = if method.client_streaming { format!("::grpc::Streaming<{input}>") } else { input };
    (request, outer(&method.output_type))
}

fn stream_name(method: &Method) -> String {
    format!("{}Stream", method.proto_name)
}

fn trait_method(method: &Method) -> String {
    let (request, output) = types(method);
    let name = &method.name;
    let plain = name.trim_start_matches("r#");
    let docs = docs(&method.comments, "        ", "A method.");
    let mut out = String::new();
    let reply = if method.server_streaming {
        let stream = stream_name(method);
        out.extend([format!(
            "        /// What [`Self::{name}`] answers with.
        type {stream}: ::grpc::Stream<Item = ::std::result::Result<{output}, ::grpc::Status>> + Send + 'static;
"
        )]);
        format!("Self::{stream}")
    } else {
        output.clone()
    };
    out.extend([format!(
        "{docs}        fn {name}(
            &self,
            request: ::grpc::Request<{request}>,
        ) -> impl ::std::future::Future<Output = ::std::result::Result<::grpc::Response<{reply}>, ::grpc::Status>> + Send;
"
    )]);
    if !method.client_streaming && !method.server_streaming {
        out.extend([format!(
            "        /// The door for a request that is read where it lies: gets the encoded message, and answers or declines
        /// with `None`; then it is decoded. Not asked when the message came compressed or in several frames.
        #[inline]
        #[allow(unused_variables)]
        fn {plain}_raw(
            &self,
            message: &[u8],
            answer: ::grpc::server::Answer<'_, '_, {output}>,
        ) -> ::std::option::Option<::grpc::server::Answered> {{
            None
        }}
        /// The door for an answer that is at hand: answers without a future, or declines with `None`.
        #[inline]
        #[allow(unused_variables)]
        fn {plain}_now(
            &self,
            request: &::grpc::Request<{request}>,
            answer: ::grpc::server::Answer<'_, '_, {output}>,
        ) -> ::std::option::Option<::grpc::server::Answered> {{
            None
        }}
"
        )]);
    }
    out
}

fn table_entry(method: &Method) -> String {
    let (request, _) = types(method);
    let (name, proto_name) = (&method.name, &method.proto_name);
    let plain = name.trim_start_matches("r#");
    let shape = shape(method);
    let now = if shape == "unary" {
        format!(
            "
                    |service: &T, message, answer| service.{plain}_raw(message, answer),
                    |service: &T, request, answer| service.{plain}_now(request, answer),"
        )
    } else {
        String::new()
    };
    format!(
        "                ::grpc::server::Method::{shape}(
                    \"{proto_name}\",
                    ::std::sync::Arc::clone(&self.service),{now}
                    |service: ::std::sync::Arc<T>, request: ::grpc::Request<{request}>| async move {{
                        service.{name}(request).await
                    }},
                ),
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
        paths.extend([format!(
            "    static {constant}: ::grpc::client::Path = ::grpc::client::Path::new(\"/{full_name}/{proto_name}\");\n"
        )]);
        methods.push_str(&client_method(method, &constant));
    }
    let docs = docs(&service.comments, "    ", "A service's client.");
    format!(
        "/// Client of `{full_name}`.\n{ALLOW}pub mod {module}_client {{
{paths}
{docs}    #[derive(Clone, Debug)]
    pub struct {name}Client {{
        channel: ::grpc::client::Channel,
    }}

    impl {name}Client {{
        /// Calls through `channel`.
        pub fn new(channel: ::grpc::client::Channel) -> Self {{
            Self {{ channel }}
        }}

        /// The channel, with its settings for calls.
        pub fn channel(&self) -> &::grpc::client::Channel {{
            &self.channel
        }}

{methods}    }}
}}
",
        module = snake(name),
    )
}

fn client_method(method: &Method, constant: &str) -> String {
    let (input, output) = (outer(&method.input_type), outer(&method.output_type));
    let name = &method.name;
    let shape = shape(method);
    let docs = docs(&method.comments, "        ", "A method.");
    let request = if method.client_streaming {
        format!("impl ::grpc::client::IntoStreamingRequest<Message = {input}>")
    } else {
        format!("impl ::std::convert::Into<::grpc::Request<{input}>>")
    };
    let convert = if method.client_streaming { "into_streaming_request" } else { "into" };
    let reply = if method.server_streaming { format!("::grpc::Streaming<{output}>") } else { output };
    format!(
        "{docs}        pub async fn {name}(
            &self,
            request: {request},
        ) -> ::std::result::Result<::grpc::Response<{reply}>, ::grpc::Status> {{
            self.channel.{shape}(&{constant}, request.{convert}()).await
        }}

"
    )
}

#[cfg(test)]
mod tests {
    use super::snake;

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
