import type { DescMessage, DescMethodServerStreaming, DescMethodUnary, MessageShape } from "@bufbuild/protobuf";

import type { Code } from "./faults.js";

/** Carrier of calls to a server: sends each attempt once, and throws a {@link Failure} if it fails. */
export interface Link {
  /** The address, as it was given. */
  readonly address: string;
  unary<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    message: MessageShape<I>,
    attempt: Attempt,
  ): Promise<MessageShape<O>>;
  stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    message: MessageShape<I>,
    attempt: Attempt,
  ): AsyncGenerator<MessageShape<O>, void, undefined>;
  close(): void;
}

/** Options of one attempt. */
export interface Attempt {
  /** Its longest time, that for the connection included; a stream may have none. */
  readonly limitMs: number | undefined;
  readonly token: string | undefined;
  readonly signal: AbortSignal | undefined;
  /** Headers of the caller's trace. */
  readonly trace: Record<string, string>;
}

/** Progress of an attempt; a refusal by the server is an answer. */
export type Reach = "unsent" | "sent" | "answered";

/** Failure of an attempt. */
export class Failure extends Error {
  override readonly name = "Failure";

  constructor(
    readonly code: Code,
    readonly reach: Reach,
    message: string,
    /** The server's `grpc-retry-pushback-ms`. */
    readonly pushback?: string | null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
