// The clients of a web page: connect-web with each of its transports, and grpc-web. A test calls `call` below.

import { create, createFileRegistry, fromBinary, toBinary, toJson } from "@bufbuild/protobuf";
import { base64Decode } from "@bufbuild/protobuf/wire";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-web";
import * as grpcWeb from "grpc-web";

const asJson = (type, message) => toJson(type, message, { alwaysEmitImplicit: true });

function connectClient(transport, service) {
  const client = createClient(service, transport);
  return {
    unary: (method, request) => client[method.localName](request),
    async stream(method, request) {
      const messages = [];
      for await (const message of client[method.localName](request)) messages.push(message);
      return messages;
    },
    told: error => {
      const { code, rawMessage, details } = ConnectError.from(error);
      return { code: Code[code], message: rawMessage, details: details.length };
    },
  };
}

function grpcWebClient(base, format) {
  const client = new grpcWeb.GrpcWebClientBase({ format });
  const path = method => `${base}/${method.parent.typeName}/${method.name}`;
  const described = (method, kind) => new grpcWeb.MethodDescriptor(path(method), kind, Object, Object,
    request => toBinary(method.input, create(method.input, request)), bytes => fromBinary(method.output, bytes));
  return {
    unary: (method, request) => client.unaryCall(path(method), request, {}, described(method, grpcWeb.MethodType.UNARY)),
    stream: (method, request) => new Promise((resolve, reject) => {
      const messages = [];
      const kind = described(method, grpcWeb.MethodType.SERVER_STREAMING);
      const answers = client.serverStreaming(path(method), request, {}, kind);
      answers.on("data", message => messages.push(message));
      answers.on("error", reject);
      answers.on("end", () => resolve(messages));
    }),
    told: ({ code, message }) => ({ code: Code[code], message, details: 0 }),
  };
}

function client(kind, baseUrl, service) {
  switch (kind) {
    case "connect-json": return connectClient(createConnectTransport({ baseUrl }), service);
    case "connect-proto": return connectClient(createConnectTransport({ baseUrl, useBinaryFormat: true }), service);
    case "connect-get": return connectClient(createConnectTransport({ baseUrl, useHttpGet: true }), service);
    case "connect-web-grpc-web": return connectClient(createGrpcWebTransport({ baseUrl }), service);
    case "grpc-web-text": return grpcWebClient(baseUrl, "text");
    case "grpc-web-binary": return grpcWebClient(baseUrl, "binary");
    default: throw new Error(`no client ${kind}`);
  }
}

/** Calls a method; `{ answer }`, or `{ error }` as the client tells it. */
globalThis.call = async (kind, base, contract, serviceName, name, request) => {
  const service = createFileRegistry(fromBinary(FileDescriptorSetSchema, base64Decode(contract))).getService(serviceName);
  const method = service.methods.find(method => method.name === name);
  const { unary, stream, told } = client(kind, base, service);
  try {
    const answer = method.methodKind === "unary"
      ? asJson(method.output, await unary(method, request))
      : (await stream(method, request)).map(message => asJson(method.output, message));
    return { answer };
  } catch (error) {
    return { error: told(error) };
  }
};
