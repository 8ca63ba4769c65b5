import {
  type DescMessage,
  type DescMethodServerStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
  create,
} from "@bufbuild/protobuf";

import { type Fault, OutcomeUnknown, Refused, Unreachable } from "./faults.js";
import { Failure, type Link } from "./link.js";
import { type Trace, headersOf } from "./trace.js";

/** Effect of sending a call twice: none; none, because it has a key; or the same change again. */
export type Kind = "read" | "keyed" | "write";

/** Options of one call. */
export interface CallOptions extends Trace {
  /** The deadline of the whole call, retries and pauses included, in milliseconds: 1 to 86,400,000. */
  timeoutMs?: number | undefined;
  /** Ends the call early. A write that was sent is then in doubt. */
  signal?: AbortSignal | undefined;
}

/** Options of all calls of a client. */
export interface ClientOptions {
  /** Shown to the server with each call. */
  token?: string | undefined;
  /** Number of times a call is sent again: 0 to 1,000,000; 3 if absent. */
  retries?: number | undefined;
  /** The deadline of calls that name none; if absent 5 s, for what has a key 30 s, for a watch none. */
  timeoutMs?: number | undefined;
}

export const READ_TIMEOUT_MS = 5_000;
const TIMEOUT_MS = { read: READ_TIMEOUT_MS, keyed: 30_000, write: 5_000 };
const TIMEOUT_MAX_MS = 86_400_000;
const RETRIES = 3;
const PAUSE_FIRST_MS = 100;
const PAUSE_MAX_MS = 2_000;

/** Makes calls, each with its deadline, and retries them as often as is safe. */
export class Caller {
  readonly #token: string | undefined;
  readonly #retries: number;
  readonly #timeoutMs: number | undefined;

  constructor(
    readonly link: Link,
    readonly options: ClientOptions,
  ) {
    this.#token = options.token === undefined ? undefined : checkedToken(options.token);
    this.#retries = checked("retries", options.retries ?? RETRIES, 0, 1_000_000);
    this.#timeoutMs = options.timeoutMs && checkedTimeout(options.timeoutMs);
  }

  async unary<I extends DescMessage, O extends DescMessage>(
    kind: Kind,
    method: DescMethodUnary<I, O>,
    init: MessageInitShape<I>,
    { timeoutMs, signal, ...trace }: CallOptions = {},
  ): Promise<MessageShape<O>> {
    const message = create(method.input, init);
    const attempts = new Attempts(kind, this.#retries, this.timeoutMs(kind, timeoutMs), signal, this.link.address);
    signal?.throwIfAborted();
    for (;;) {
      try {
        const attempt = { limitMs: attempts.limitMs(), token: this.#token, signal, trace: headersOf(trace) };
        return await this.link.unary(method, message, attempt);
      } catch (failure) {
        await attempts.again(failure);
      }
    }
  }

  /**
   * The pages of a list, each a read of its own. `next` has the request of the page after this one, if there is one. The
   * deadline is that of all pages; the time that the caller takes between them does not count.
   */
  async *pages<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    first: MessageInitShape<I>,
    next: (page: MessageShape<O>) => MessageInitShape<I> | undefined,
    options: CallOptions = {},
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    let timeoutMs = this.timeoutMs("read", options.timeoutMs);
    for (let request: MessageInitShape<I> | undefined = first; request !== undefined;) {
      const began = performance.now();
      const page: MessageShape<O> = await this.unary("read", method, request, { ...options, timeoutMs });
      timeoutMs = Math.max(1, timeoutMs - (performance.now() - began));
      yield page;
      request = next(page);
    }
  }

  /** The pages of a list whose requests and answers have the token of a page. */
  list<I extends DescMessage, O extends DescMessage>(
    method: DescMethodUnary<I, O>,
    first: MessageInitShape<I>,
    options: CallOptions,
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const next = (page: MessageShape<O>): MessageInitShape<I> | undefined => {
      const { nextPageToken: pageToken } = page as { nextPageToken?: string };
      return pageToken ? { ...first, pageToken } : undefined;
    };
    return this.pages(method, first, next, options);
  }

  /** The messages of a stream without a deadline unless the caller gives one. It is sent again until it has begun. */
  async *stream<I extends DescMessage, O extends DescMessage>(
    method: DescMethodServerStreaming<I, O>,
    init: MessageInitShape<I>,
    { timeoutMs, signal, ...trace }: CallOptions = {},
  ): AsyncGenerator<MessageShape<O>, void, undefined> {
    const message = create(method.input, init);
    const limitMs = timeoutMs === undefined ? undefined : checkedTimeout(timeoutMs);
    const attempts = new Attempts("read", this.#retries, limitMs, signal, this.link.address);
    signal?.throwIfAborted();
    for (;;) {
      try {
        const left = limitMs && attempts.limitMs();
        const attempt = { limitMs: left, token: this.#token, signal, trace: headersOf(trace) };
        for await (const part of this.link.stream(method, message, attempt)) {
          attempts.begun = true;
          yield part;
        }
        return;
      } catch (failure) {
        if (attempts.begun) throw attempts.fault(failure);
        await attempts.again(failure);
      }
    }
  }

  private timeoutMs(kind: Kind, asked: number | undefined): number {
    return asked === undefined ? (this.#timeoutMs ?? TIMEOUT_MS[kind]) : checkedTimeout(asked);
  }
}

/** Retry state of a call. */
class Attempts {
  readonly #deadline: number;
  readonly #shareMs: number;
  #made = 0;
  #pauseMs = PAUSE_FIRST_MS;
  /** True once a stream has begun. */
  begun = false;
  /** An attempt that was sent and may have been done. */
  #doubt: Failure | undefined;

  constructor(
    readonly kind: Kind,
    readonly retries: number,
    timeoutMs: number | undefined,
    readonly signal: AbortSignal | undefined,
    readonly address: string,
  ) {
    this.#deadline = timeoutMs === undefined ? Infinity : performance.now() + timeoutMs;
    // A purchase without an answer in its share, a quarter or more, is sent again; other calls have all the time.
    this.#shareMs =
      timeoutMs === undefined ? Infinity : kind === "keyed" ? timeoutMs / (Math.min(retries, 3) + 1) : timeoutMs;
  }

  limitMs(): number {
    return this.#made === 0 ? this.#shareMs : Math.min(this.#shareMs, this.#deadline - performance.now());
  }

  /** Returns when the next attempt is due; throws the fault if there is none. */
  async again(failure: unknown): Promise<void> {
    if (!(failure instanceof Failure)) throw failure;
    if (this.kind !== "read" && mayBeDone(failure)) this.#doubt = failure;
    const wanted = failure.pushback == null ? undefined : pushbackMs(failure.pushback);
    const pauseMs = wanted ?? this.#pauseMs * (0.8 + 0.4 * Math.random());
    if (!this.#worthIt(failure) || performance.now() + pauseMs >= this.#deadline) throw this.fault(failure);
    await pause(pauseMs, this.signal);
    if (this.signal?.aborted) throw this.fault(failure);
    this.#pauseMs = Math.min(this.#pauseMs * 2, PAUSE_MAX_MS);
    this.#made++;
  }

  #worthIt({ code, reach }: Failure): boolean {
    if (this.signal?.aborted) return false;
    // While the purchase is in doubt, only the store's own answer counts.
    if (this.#doubt) return this.kind === "keyed" && this.retries > 0;
    const passes = reach === "unsent" || code === "RESOURCE_EXHAUSTED";
    const readPasses = this.kind === "read" && (code === "UNAVAILABLE" || code === "UNKNOWN");
    return this.#made < this.retries && (passes || readPasses);
  }

  /** The error for the caller. */
  fault(failure: unknown): unknown {
    if (!(failure instanceof Failure)) return failure;
    if (this.#doubt) return new OutcomeUnknown(this.#doubt.code, this.#did(this.#doubt), { cause: this.#doubt });
    if (this.signal?.aborted) return this.signal.reason;
    return this.#plain(failure);
  }

  #plain(failure: Failure): Fault {
    const { code, message, reach } = failure;
    const cause = { cause: failure };
    if (reach !== "unsent" && !mayBeDone(failure)) return new Refused(code, message || code, cause);
    return new Unreachable(reach === "unsent" ? "UNAVAILABLE" : code, this.#did(failure), reach !== "unsent", cause);
  }

  /** What the server did instead of the call. */
  #did(failure: Failure): string {
    const { code, message, reach } = failure;
    if (reach === "unsent") return `${this.address} cannot be reached: ${root(failure)}`;
    if (this.begun) return `${this.address} ended the stream: ${message || code}`;
    if (reach === "sent") return `${this.address} did not answer: ${message}`;
    return message === "" ? `${this.address} answered: ${code}` : `${this.address} answered ${code}: ${message}`;
  }
}

/** The first cause of a failure, in words. */
function root(failure: Error): string {
  let at: Error = failure;
  for (;;) {
    const next: unknown = at instanceof AggregateError ? at.errors[0] : at.cause;
    if (!(next instanceof Error)) break;
    at = next;
  }
  const { code } = at as { code?: unknown };
  const name = typeof code === "string" ? code : "";
  if (name === "ERR_SSL_WRONG_VERSION_NUMBER") return "the server does not speak TLS: write http://";
  const words = at.message || name;
  return /CERT|LEAF_SIGNATURE/.test(name) ? `the server's certificate is not trusted: ${words}` : words;
}

/** True if the server may have acted on the request. A proxy on the way may answer with these codes as well. */
function mayBeDone({ code, reach }: Failure): boolean {
  const open = code === "UNAVAILABLE" || code === "UNKNOWN" || code === "DEADLINE_EXCEEDED" || code === "CANCELLED";
  return reach === "sent" || (reach === "answered" && open);
}

/** The pause that the server asks for; `Infinity` if it forbids a retry. */
function pushbackMs(text: string): number {
  return /^\d+$/.test(text) ? Number(text) : Infinity;
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, ms);
    signal?.addEventListener("abort", done);
  });
}

/** The number, if it is a whole one within the bounds. */
export function checked(name: string, value: number, least: number, most: number): number {
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  throw new RangeError(
    `${name} is ${String(value)}; it must be a whole number from ${String(least)} to ${String(most)}`,
  );
}

function checkedTimeout(value: number): number {
  if (value > 0 && value <= TIMEOUT_MAX_MS) return value;
  throw new RangeError(`timeoutMs is ${String(value)}; it must be above 0 and at most ${String(TIMEOUT_MAX_MS)}`);
}

/** A token that can be sent. */
export function checkedToken(token: string): string {
  if (/^[ -~]+$/.test(token)) return token;
  throw new RangeError(token === "" ? "the token is empty" : "the token has characters that no token has");
}
