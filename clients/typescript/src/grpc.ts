import {
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageShape,
  fromBinary,
  toBinary,
} from "@bufbuild/protobuf";
import {
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type SecureClientSessionOptions,
  connect,
  constants,
} from "node:http2";

import { CODES, type Code } from "./faults.js";
import { type Attempt, Failure, type Link } from "./link.js";

const USER_AGENT = "quire-client-typescript/0.1.0";
const KEEPALIVE_MS = 10_000;
/** Least and greatest duration of one attempt to connect. */
const DIAL_MIN_MS = 1_000;
const DIAL_MAX_MS = 10_000;
/** Longest wait for a connection if the call has no deadline. */
const READY_MS = 4_000;
/** Time for which a failed address is skipped while others answer. */
const REST_MS = 1_000;
/** Bytes that a server may send ahead of the caller. */
const STREAM_WINDOW_BYTES = 1 << 20;
const CONNECTION_WINDOW_BYTES = 8 << 20;
/** A value of 1 GiB, the largest that a server can be set to keep, with what is around it. */
const MESSAGE_BYTES_MAX = 2 ** 30 + 2 ** 20;
/** Bytes before each message: whether it is compressed, and its length. */
const PREFIX_BYTES = 5;

/** Codes for answers that are not gRPC's, as gRPC has them. */
const HTTP_CODES: Partial<Record<number, Code>> = {
  400: "INTERNAL",
  401: "UNAUTHENTICATED",
  403: "PERMISSION_DENIED",
  404: "UNIMPLEMENTED",
  429: "UNAVAILABLE",
  502: "UNAVAILABLE",
  503: "UNAVAILABLE",
  504: "UNAVAILABLE",
};

/** One HTTP/2 connection whose server has spoken. */
class Connection {
  /** Counts what came in, so that a caller can tell a slow server from a dead connection. */
  heard = 0;
  #open = 0;
  #pings = false;

  constructor(readonly session: ClientHttp2Session) {
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
  }

  request(headers: OutgoingHttpHeaders): ClientHttp2Stream {
    const stream = this.session.request(headers);
    // Only a call that waits keeps the process alive.
    if (this.#open++ === 0) this.session.ref();
    if (!this.#pings) this.#ping();
    stream.once("close", () => {
      if (--this.#open === 0) this.session.unref();
    });
    return stream;
  }

  /** Asks now and then whether the server is there, as long as a call waits. */
  #ping(): void {
    this.#pings = true;
    setTimeout(() => {
      this.#pings = false;
      if (this.#open === 0 || this.session.destroyed) return;
      const silent = setTimeout(() => {
        this.session.destroy(new Error("the server does not answer pings"));
      }, KEEPALIVE_MS).unref();
      this.session.ping((error) => {
        clearTimeout(silent);
        if (!error) this.heard++;
      });
      this.#ping();
    }, KEEPALIVE_MS).unref();
  }
}

/** One address: a connection, or what is needed to have one. */
class Lane {
  connection: Connection | undefined;
  #dialing: Promise<void> | undefined;
  #session: ClientHttp2Session | undefined;
  #restsUntil = 0;

  constructor(
    readonly url: string,
    readonly options: SecureClientSessionOptions,
  ) {}

  /** Connects, unless that is being done. Rejects if no server speaks in time. */
  dial(limitMs: number): Promise<void> {
    this.#dialing ??= this.#dial(Math.min(Math.max(limitMs, DIAL_MIN_MS), DIAL_MAX_MS)).finally(() => {
      this.#dialing = undefined;
    });
    return this.#dialing;
  }

  /** As {@link dial}, unless the last try has just failed; no one waits for it. */
  dialInBackground(): void {
    if (this.#dialing || performance.now() < this.#restsUntil) return;
    this.dial(DIAL_MAX_MS).catch(() => {
      this.#restsUntil = performance.now() + REST_MS;
    });
  }

  #dial(limitMs: number): Promise<void> {
    return new Promise((resolve, reject) => {
      let cause: unknown;
      const session = connect(this.url, this.options);
      this.#session = session;
      // A call that waits has a timer of its own, which keeps the process alive.
      session.unref();
      const timer = setTimeout(() => {
        session.destroy(new Error("the server says nothing"));
      }, limitMs).unref();
      session.on("error", (error: unknown) => (cause = error));
      session.once("remoteSettings", () => {
        clearTimeout(timer);
        this.connection = new Connection(session);
        resolve();
      });
      session.once("goaway", () => {
        this.retire(session);
      });
      session.once("close", () => {
        clearTimeout(timer);
        this.retire(session);
        // It has no error of its own if the server takes the first bytes for bad TLS.
        const words = "the server closed the connection before it spoke; if it speaks TLS, write https://";
        reject(new Error(words, { cause }));
      });
    });
  }

  /** Sends no more on a connection; what was sent on it may still be answered. */
  retire(session: ClientHttp2Session | undefined): void {
    if (this.connection?.session === session) this.connection = undefined;
    session?.close();
  }

  close(): void {
    this.retire(this.connection?.session);
    if (this.#dialing) this.#session?.destroy();
  }
}

/** gRPC over HTTP/2 connections, one to each address, in turns. */
export class GrpcLink implements Link {
  readonly #lanes: Lane[];
  #turn = 0;
  #closed = false;

  constructor(
    readonly address: string,
    urls: string[],
    options: SecureClientSessionOptions,
  ) {
    const settings = { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES };
    // The bound that Node sets, 10 MB, counts messages that wait to be sent, which the caller has in memory anyway.
    const all = { settings, maxSessionMemory: 1024, ...options };
    this.#lanes = urls.map((url) => new Lane(url, all));
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    message: MessageShape<I>,
    attempt: Attempt,
  ): Promise<MessageShape<O>> {
    const began = attempt.limitMs === undefined ? 0 : performance.now();
    const lane = this.#ready() ?? (await this.#whenReady(attempt));
    const call = new Call(lane, method, toBinary(method.input, message), attempt, began);
    const frames = new Frames();
    return new Promise((resolve, reject) => {
      call.stream.on("data", (chunk: Buffer) => {
        frames.push(chunk);
        if (frames.tooLong()) call.end(tooLong());
        else if (frames.excess()) call.end(new Failure("INTERNAL", "sent", "the server sent more than one message"));
      });
      call.onEnd = (failure) => {
        try {
          const body = failure ? undefined : frames.next();
          if (body) resolve(fromBinary(method.output, body));
          else reject(failure ?? new Failure("INTERNAL", "sent", "the server sent no message"));
        } catch (cause) {
          reject(unreadable(cause));
        }
      };
    });
  }

  async *stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    message: MessageShape<I>,
    attempt: Attempt,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const began = performance.now();
    const lane = this.#ready() ?? (await this.#whenReady(attempt));
    const call = new Call(lane, method, toBinary(method.input, message), attempt, began);
    const ended = new Promise<Failure | undefined>((resolve) => (call.onEnd = resolve));
    const frames = new Frames();
    try {
      for await (const chunk of call.chunks()) {
        frames.push(chunk);
        if (frames.tooLong()) throw tooLong();
        for (let body = frames.next(); body; body = frames.next()) yield decoded(method.output, body);
      }
      const failure = await ended;
      if (failure) throw failure;
    } finally {
      call.end(new Failure("CANCELLED", "sent", "the caller has left"));
    }
  }

  close(): void {
    this.#closed = true;
    for (const lane of this.#lanes) lane.close();
  }

  /** The next address that answers. The others are tried meanwhile. */
  #ready(): Lane | undefined {
    const count = this.#lanes.length;
    for (let step = 0; step < count; step++) {
      const lane = this.#lanes[(this.#turn + step) % count];
      if (!lane?.connection) continue;
      this.#turn = (this.#turn + step + 1) % count;
      for (const other of this.#lanes) if (!other.connection) other.dialInBackground();
      return lane;
    }
    return undefined;
  }

  /** Waits until an address answers, four fifths of the attempt at most. */
  async #whenReady({ limitMs, signal }: Attempt): Promise<Lane> {
    if (this.#closed) throw new TypeError("the client is closed");
    const waitMs = limitMs === undefined ? READY_MS : limitMs * 0.8;
    const unsent = (cause?: unknown): Failure =>
      new Failure("UNAVAILABLE", "unsent", "no server answered in time", null, { cause });
    let stop: (() => void) | undefined;
    const stopped = new Promise<never>((_, reject) => {
      const timer = setTimeout(() => stop?.(), waitMs);
      stop = () => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", stop as () => void);
        reject(unsent());
      };
      signal?.addEventListener("abort", stop);
      if (signal?.aborted) stop();
    });
    try {
      await Promise.race([stopped, Promise.any(this.#lanes.map((lane) => lane.dial(waitMs)))]);
    } catch (error) {
      if (error instanceof Failure) throw error;
      // The cause of one address, or those of all.
      throw unsent(error instanceof AggregateError && error.errors.length === 1 ? error.errors[0] : error);
    } finally {
      stop?.();
    }
    const lane = this.#ready();
    if (!lane) throw unsent();
    return lane;
  }
}

/** One call that was sent. It ends once: with an answer, or a failure. */
class Call {
  readonly stream: ClientHttp2Stream;
  onEnd: (failure: Failure | undefined) => void = () => undefined;
  readonly #connection: Connection;
  readonly #timer: NodeJS.Timeout | undefined;
  #ended = false;
  #headers: IncomingHttpHeaders | undefined;
  #trailers: IncomingHttpHeaders | undefined;

  constructor(
    lane: Lane,
    method: { parent: { typeName: string }; name: string },
    body: Uint8Array,
    { limitMs, token, signal, trace }: Attempt,
    began: number,
  ) {
    // An address is chosen and used in one go, so it is connected.
    const connection = lane.connection;
    if (!connection) throw new Failure("UNAVAILABLE", "unsent", "no connection");
    const headers: OutgoingHttpHeaders = {
      ":method": "POST",
      ":path": `/${method.parent.typeName}/${method.name}`,
      "content-type": "application/grpc+proto",
      te: "trailers",
      "user-agent": USER_AGENT,
      ...trace,
    };
    if (token !== undefined) headers.authorization = `Bearer ${token}`;
    const leftMs = limitMs === undefined ? undefined : Math.max(1, Math.ceil(limitMs - (performance.now() - began)));
    if (leftMs !== undefined) headers["grpc-timeout"] = `${String(leftMs)}m`;
    try {
      this.stream = connection.request(headers);
    } catch (cause) {
      lane.retire(connection.session);
      throw new Failure("UNAVAILABLE", "unsent", "the connection has ended", null, { cause });
    }
    this.#connection = connection;
    const heardBefore = connection.heard;
    if (leftMs !== undefined) {
      this.#timer = setTimeout(() => {
        // A connection on which nothing came may be dead: the next attempt has a new one.
        if (connection.heard === heardBefore) lane.retire(connection.session);
        this.end(new Failure("DEADLINE_EXCEEDED", "sent", "the deadline is over"));
      }, leftMs);
    }
    const abort = (): void => {
      this.end(new Failure("CANCELLED", "sent", "the caller has aborted the call"));
    };
    signal?.addEventListener("abort", abort);
    let cause: unknown;
    this.stream
      .on("response", (fields) => {
        connection.heard++;
        this.#headers = fields;
      })
      .on("trailers", (fields: IncomingHttpHeaders) => (this.#trailers = fields))
      .on("error", (error: unknown) => (cause = error))
      .on("close", () => {
        signal?.removeEventListener("abort", abort);
        // A stream without a number was never sent: the numbers of this connection are used up.
        if (this.stream.id === undefined) lane.retire(connection.session);
        this.end(this.#verdict(cause));
      })
      .end(framed(body));
  }

  end(failure: Failure | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    clearTimeout(this.#timer);
    if (!this.stream.closed) this.stream.close(constants.NGHTTP2_CANCEL);
    this.onEnd(failure);
  }

  /** Messages as the caller wants them; {@link onEnd} gives the reason of their end. */
  async *chunks(): AsyncGenerator<Buffer, void, undefined> {
    const chunks = this.stream.iterator({ destroyOnReturn: false }) as AsyncIterableIterator<Buffer>;
    for (;;) {
      const next = await chunks.next().catch(() => undefined);
      if (!next || next.done) return;
      this.#connection.heard++;
      yield next.value;
    }
  }

  /** The failure in the server's answer, or for the lack of one; undefined after success. */
  #verdict(cause: unknown): Failure | undefined {
    const fields = this.#trailers ?? this.#headers;
    const status = fields?.["grpc-status"];
    const httpStatus = this.#headers?.[":status"] as unknown as number | undefined;
    if (status === "0") return undefined;
    if (status !== undefined) {
      const pushback = fields?.["grpc-retry-pushback-ms"];
      const code = CODES[Number(status)] ?? "UNKNOWN";
      return new Failure(code, "answered", percentDecoded(fields?.["grpc-message"]), pushback?.toString());
    }
    if (httpStatus !== undefined && httpStatus !== 200) {
      return new Failure(
        HTTP_CODES[httpStatus] ?? "UNKNOWN",
        "answered",
        `the server answered with HTTP status ${String(httpStatus)}`,
      );
    }
    const reach = this.stream.id === undefined ? "unsent" : "sent";
    return new Failure("UNAVAILABLE", reach, "the connection broke", null, { cause });
  }
}

/** Messages, from the bytes of a stream. */
class Frames {
  #chunks: Buffer[] = [];
  #bytes = 0;

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#bytes += chunk.length;
  }

  /** True if the message that has begun is too long. */
  tooLong(): boolean {
    return this.#bytes >= PREFIX_BYTES && this.#joined(PREFIX_BYTES).readUInt32BE(1) > MESSAGE_BYTES_MAX;
  }

  /** True if there is more than one message. */
  excess(): boolean {
    return this.#bytes > PREFIX_BYTES && this.#bytes > PREFIX_BYTES + this.#joined(PREFIX_BYTES).readUInt32BE(1);
  }

  /** The next message, if all of it is here. */
  next(): Uint8Array | undefined {
    if (this.#bytes < PREFIX_BYTES) return undefined;
    const prefix = this.#joined(PREFIX_BYTES);
    if (prefix[0] !== 0)
      throw new Failure("INTERNAL", "sent", "the server compressed a message, which no one asked for");
    const end = PREFIX_BYTES + prefix.readUInt32BE(1);
    if (this.#bytes < end) return undefined;
    const whole = this.#joined(end);
    this.#chunks = whole.length === end ? [] : [whole.subarray(end), ...this.#chunks.slice(1)];
    this.#bytes -= end;
    return whole.subarray(PREFIX_BYTES, end);
  }

  /** The first chunk, made of as many as are needed for some bytes. */
  #joined(bytes: number): Buffer {
    const [first] = this.#chunks;
    if (first && first.length >= bytes) return first;
    const whole = Buffer.concat(this.#chunks);
    this.#chunks = [whole];
    return whole;
  }
}

function tooLong(): Failure {
  return new Failure("RESOURCE_EXHAUSTED", "sent", "the server announced a message of more than 1 GiB");
}

function framed(body: Uint8Array): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + body.length);
  frame[0] = 0;
  frame.writeUInt32BE(body.length, 1);
  frame.set(body, PREFIX_BYTES);
  return frame;
}

function decoded<O extends DescMessage>(schema: O, body: Uint8Array): MessageShape<O> {
  try {
    return fromBinary(schema, body);
  } catch (cause) {
    throw unreadable(cause);
  }
}

function unreadable(cause: unknown): Failure {
  if (cause instanceof Failure) return cause;
  return new Failure("INTERNAL", "sent", "the server sent a message that cannot be read", null, { cause });
}

function percentDecoded(text: string | string[] | undefined): string {
  try {
    return decodeURIComponent(text?.toString() ?? "");
  } catch {
    return text?.toString() ?? "";
  }
}
