/** The client for Node.js: gRPC over HTTP/2. A web page takes `quire-client/web`. */
import { USUAL_ADDRESS, parseAddresses } from "./address.js";
import { Caller, type ClientOptions } from "./caller.js";
import { Client } from "./client.js";
import { GrpcLink } from "./grpc.js";

export * from "./api.js";

/** Options of a connection. */
export interface ConnectOptions extends ClientOptions {
  /** True for TLS, if the address names no scheme; if absent, TLS is used if there are certificates here. */
  tls?: boolean | undefined;
  /** Certificates in PEM to trust, instead of those that Node trusts. */
  ca?: string | undefined;
  /** A certificate in PEM to show to a server that asks for one, with its private key. */
  certificate?: string | undefined;
  privateKey?: string | undefined;
}

/**
 * A client for the server at `HOST:PORT`, or for several with commas between, which take turns. It connects with its first
 * call and again whenever that is needed.
 */
export function connect(address = USUAL_ADDRESS, options: ConnectOptions = {}): Client {
  return new Client(new Caller(link(address, options), options));
}

/** The carrier of a client's calls. */
export function link(address: string, { tls, ca, certificate, privateKey }: ConnectOptions): GrpcLink {
  if ((certificate === undefined) !== (privateKey === undefined)) {
    throw new TypeError("certificate and privateKey belong together; give both or neither");
  }
  const speaksTls = tls ?? (ca !== undefined || certificate !== undefined);
  const urls = parseAddresses(address).map((one) => `${(one.tls ?? speaksTls) ? "https" : "http"}://${one.authority}`);
  return new GrpcLink(address, urls, {
    ...(ca !== undefined && { ca }),
    ...(certificate !== undefined && { cert: certificate }),
    ...(privateKey !== undefined && { key: privateKey }),
  });
}
