/** The client for web pages: the Connect protocol over `fetch`. */
import type { DescMessage, DescMethodServerStreaming, DescMethodUnary, MessageShape } from "@bufbuild/protobuf";
import { ConnectError, type Transport } from "@connectrpc/connect";
import { createConnectTransport } from "@connectrpc/connect-web";

import { Caller, type ClientOptions } from "./caller.js";
import { Client } from "./client.js";
import { CODES, type Code } from "./faults.js";
import { type Attempt, Failure, type Link } from "./link.js";

export * from "./api.js";

/** A client for the server at a URL as `https://shop.example`; the page's own origin if absent. */
export function connect(url: string = globalThis.location.origin, options: ClientOptions = {}): Client {
  const transport = createConnectTransport({ baseUrl: url, useBinaryFormat: true });
  return new Client(new Caller(new ConnectLink(url, transport), options));
}

/**
 * Connect's transport. A page cannot learn whether the browser has a connection, so every attempt counts as sent: a purchase
 * that no server took is unknown here, where it is unreachable in Node.js.
 */
class ConnectLink implements Link {
  #closed = false;

  constructor(
    readonly address: string,
    readonly transport: Transport,
  ) {}

  async unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    message: MessageShape<I>,
    attempt: Attempt,
  ): Promise<MessageShape<O>> {
    this.#check();
    try {
      const { signal } = attempt;
      const answer = await this.transport.unary(method, signal, wholeMs(attempt), headers(attempt), message as never);
      return answer.message;
    } catch (error) {
      throw failure(error);
    }
  }

  async *stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    message: MessageShape<I>,
    attempt: Attempt,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    this.#check();
    const left = new AbortController();
    const signal = attempt.signal ? AbortSignal.any([attempt.signal, left.signal]) : left.signal;
    const input = (async function* () {
      yield await Promise.resolve(message as never);
    })();
    try {
      const answer = await this.transport.stream(method, signal, wholeMs(attempt), headers(attempt), input);
      yield* answer.message;
    } catch (error) {
      throw failure(error);
    } finally {
      left.abort();
    }
  }

  close(): void {
    this.#closed = true;
  }

  #check(): void {
    if (this.#closed) throw new TypeError("the client is closed");
  }
}

function headers({ token, trace }: Attempt): HeadersInit {
  return {
    ...(token !== undefined && { authorization: `Bearer ${token}` }),
    ...trace,
  };
}

/** The protocol has whole milliseconds. */
function wholeMs({ limitMs }: Attempt): number | undefined {
  return limitMs === undefined ? undefined : Math.max(1, Math.ceil(limitMs));
}

function failure(error: unknown): Failure {
  const { code, rawMessage, metadata, isWireError } = ConnectError.from(error);
  const pushback = metadata.get("grpc-retry-pushback-ms");
  // What was not read from an answer may be the browser's: the server may have done what was asked.
  const named = (CODES as readonly Code[])[code] ?? "UNKNOWN";
  const local = named === "DEADLINE_EXCEEDED" || named === "CANCELLED" ? named : "UNAVAILABLE";
  const reach = isWireError ? "answered" : "sent";
  return new Failure(isWireError ? named : local, reach, rawMessage, pushback, { cause: error });
}
