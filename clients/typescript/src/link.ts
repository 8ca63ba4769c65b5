import type { DescMessage, DescMethodServerStreaming, DescMethodUnary, MessageShape } from "@bufbuild/protobuf";

import type { Code } from "./faults.js";

/** What carries calls to a server. An attempt that fails throws a {@link Failure}. Must not send anything twice. */
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

/** How one attempt is made. */
export interface Attempt {
  /** Its longest time, that for the connection included; a stream may have none. */
  readonly limitMs: number | undefined;
  readonly token: string | undefined;
  readonly signal: AbortSignal | undefined;
}

/** How far an attempt came: a refusal by the server is an answer. */
export type Reach = "unsent" | "sent" | "answered";

/** How an attempt failed. */
export class Failure extends Error {
  override readonly name = "Failure";

  constructor(
    readonly code: Code,
    readonly reach: Reach,
    message: string,
    /** When the server wants to be asked again, in its words. */
    readonly pushback?: string | null,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}
