import type { DescMessage, DescMethodUnary, MessageInitShape, MessageShape } from "@bufbuild/protobuf";

import {
  Admin,
  type Book as WireBook,
  BookStore,
  BuyOutcome,
  type LogEntry as WireLogEntry,
  LogEntryKind,
  type ReservationReplySchema,
  ReservationOutcome as WireOutcome,
} from "#proto/bookstore_pb.js";
import { KeyRangeService, KeyValueService, WatchEventKind } from "#proto/kv_pb.js";
import { type CallOptions, Caller, checked } from "./caller.js";
import { type Code, OutcomeUnknown, Refused } from "./faults.js";
import type {
  Book,
  BuyOptions,
  Bytes,
  Created,
  Deleted,
  Entry,
  ExpectOptions,
  LogEntry,
  PageOptions,
  PriceChange,
  Purchase,
  Receipt,
  Reservation,
  ReservationOutcome,
  ReserveOptions,
  Topic,
  UnknownOutcome,
  Updated,
  Value,
  WatchEvent,
  WriteOptions,
} from "./types.js";

export const ID_MAX = 2_147_483_647;
const KEY_BYTES_MAX = 64;
const PAGE_SIZE = 500;

const NOT_BOUGHT: Partial<Record<BuyOutcome, "sold_out" | "too_few" | "no_such_book">> = {
  [BuyOutcome.SOLD_OUT]: "sold_out",
  [BuyOutcome.TOO_FEW]: "too_few",
  [BuyOutcome.NO_SUCH_BOOK]: "no_such_book",
};

/** The calls of shoppers and the key-value store. Faults are thrown: see {@link Fault}. */
export class Client {
  readonly #caller: Caller;

  /** Takes what carries the calls; `connect` makes it. */
  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** The calls of operators, over the same connections. */
  operator(token: string): Operator {
    return new Operator(new Caller(this.#caller.link, { ...this.#caller.options, token }));
  }

  /** Greets the server; a cheap way to see that it answers. */
  async ping(options?: CallOptions): Promise<string> {
    const reply = await this.#caller.unary("read", BookStore.method.hello, { name: "quire client" }, options);
    return reply.helloMessage;
  }

  /** The books of a topic, matched exactly, in the order of their ids. */
  async *search(topic: string, { pageSize, ...options }: PageOptions = {}): AsyncGenerator<Book, void, undefined> {
    const request = { topic, pageSize: sizeOfPage(pageSize, PAGE_SIZE) };
    const pages = this.#caller.list(BookStore.method.search, request, options);
    for await (const page of pages) yield* page.books.map(bookOf);
  }

  /** All topics in the order of their bytes, or those nearest to a text, best first. */
  async *topics({ near, ...options }: CallOptions & { near?: string } = {}): AsyncGenerator<Topic, void, undefined> {
    for await (const page of this.#caller.list(BookStore.method.listTopics, { near: near ?? "" }, options)) {
      yield* page.topics.map(({ name, books }) => ({ name, books }));
    }
  }

  async lookup(id: number, options?: CallOptions): Promise<Book | undefined> {
    const { book } = await this.#caller.unary("read", BookStore.method.lookup, { id: checkedId(id) }, options);
    return book && bookOf(book);
  }

  /** Buys copies of a book, once however often the request is sent. */
  async buy(id: number, { quantity = 1, key = randomKey(), ...options }: BuyOptions = {}): Promise<Purchase> {
    const request = this.#order(id, quantity, key);
    return this.#once<Purchase>(key, async () => {
      const reply = await this.#caller.unary("keyed", BookStore.method.buy, request, options);
      const { message, replayed, stockLeft, purchaseNumber: number } = reply;
      // Every server says if it was bought; later ones also say why not.
      if (reply.success) return { outcome: "bought", message, key, replayed, number, stockLeft };
      const outcome = NOT_BOUGHT[reply.outcome] ?? "not_bought";
      return { outcome, message, key, replayed, stockLeft };
    });
  }

  /** The receipt of a purchase that was made with the key; undefined if there is no such purchase. */
  async receipt(number: bigint, key: string, options?: CallOptions): Promise<Receipt | undefined> {
    if (number < 1n) throw new RangeError(`number is ${number.toString()}; it must be a whole number from 1`);
    const request = { number, idempotencyKey: checkedKey(key) };
    const { success, receipt, logKey } = await this.#caller.unary("read", BookStore.method.receipt, request, options);
    return success ? { text: receipt, logKey } : undefined;
  }

  /** Holds copies of a book until they are confirmed or released, or the time is over. */
  async reserve(
    id: number,
    { quantity = 1, seconds, key = randomKey(), ...options }: ReserveOptions = {},
  ): Promise<Reservation> {
    const time = seconds === undefined ? {} : { seconds: checked("seconds", seconds, 1, ID_MAX) };
    const request = { ...this.#order(id, quantity, key), ...time };
    return this.#reservation(key, BookStore.method.reserve, request, options);
  }

  /** Buys what a reservation holds, at the price of now. */
  async confirm(key: string, options?: CallOptions): Promise<Reservation> {
    return this.#reservation(key, BookStore.method.confirm, { idempotencyKey: checkedKey(key) }, options);
  }

  /** Gives back what a reservation holds. */
  async release(key: string, options?: CallOptions): Promise<Reservation> {
    return this.#reservation(key, BookStore.method.release, { idempotencyKey: checkedKey(key) }, options);
  }

  /** Creates an entry, if the key has none. */
  async create(key: Bytes, value: Bytes, { ttlMs, ...options }: WriteOptions = {}): Promise<Created> {
    const request = { key: bytes(key), value: bytes(value), timeToLiveMs: ttl(ttlMs), wantDetails: true };
    return this.#settle<Created>(
      async () => {
        const { version } = await this.#caller.unary("write", KeyValueService.method.create, request, options);
        return { outcome: "created", version };
      },
      { ALREADY_EXISTS: { outcome: "exists" } },
    );
  }

  /** Creates an entry or replaces its value; gives its version. */
  async put(key: Bytes, value: Bytes, { ttlMs, ...options }: WriteOptions = {}): Promise<bigint> {
    const request = { key: bytes(key), value: bytes(value), timeToLiveMs: ttl(ttlMs) };
    return (await this.#caller.unary("write", KeyRangeService.method.put, request, options)).version;
  }

  /** The other name of {@link Client.get}. */
  async retrieve(key: Bytes, options?: CallOptions): Promise<Value | undefined> {
    return this.get(key, options);
  }

  async get(key: Bytes, options?: CallOptions): Promise<Value | undefined> {
    const request = { key: bytes(key), wantDetails: true };
    return this.#settle<Value | undefined>(
      async () => {
        const reply = await this.#caller.unary("read", KeyValueService.method.retrieve, request, options);
        return { value: reply.value, version: reply.version, ttlMs: milliseconds(reply.timeToLiveMs) };
      },
      { NOT_FOUND: undefined },
    );
  }

  /** Replaces the value of an entry. */
  async update(key: Bytes, value: Bytes, options: WriteOptions & ExpectOptions = {}): Promise<Updated> {
    const { ttlMs, expectedVersion, ...rest } = options;
    const entry = { key: bytes(key), value: bytes(value), timeToLiveMs: ttl(ttlMs), wantDetails: true };
    const request = expectedVersion === undefined ? entry : { ...entry, expectedVersion };
    return this.#settle<Updated>(
      async () => {
        const { version } = await this.#caller.unary("write", KeyValueService.method.update, request, rest);
        return { outcome: "updated", version };
      },
      { NOT_FOUND: { outcome: "no_such_key" }, ABORTED: { outcome: "another_version" } },
    );
  }

  /** Removes an entry. */
  async delete(key: Bytes, { expectedVersion, ...options }: ExpectOptions = {}): Promise<Deleted> {
    const entry = { key: bytes(key), wantDetails: true };
    const request = expectedVersion === undefined ? entry : { ...entry, expectedVersion };
    return this.#settle<Deleted>(
      async () => {
        const { deleted } = await this.#caller.unary("write", KeyValueService.method.delete, request, options);
        return { outcome: deleted ? "deleted" : "no_such_key" };
      },
      { ABORTED: { outcome: "another_version" } },
    );
  }

  /** The entries whose keys begin with a prefix, in the order of their keys. Each is as it was when it was read. */
  async *scan(
    prefix: Bytes,
    { keysOnly = false, pageSize, ...options }: PageOptions & { keysOnly?: boolean } = {},
  ): AsyncGenerator<Entry, void, undefined> {
    const { scan } = KeyRangeService.method;
    const first = { prefix: bytes(prefix), pageSize: sizeOfPage(pageSize), keysOnly };
    const next = ({
      nextStartAfter: startAfter,
    }: MessageShape<typeof scan.output>): MessageInitShape<typeof scan.input> | undefined =>
      startAfter && { ...first, startAfter };
    for await (const page of this.#caller.pages(scan, first, next, options)) {
      for (const { key, value, version, timeToLiveMs, valueLeftOut } of page.entries) {
        if (keysOnly) yield { key, version, ttlMs: milliseconds(timeToLiveMs) };
        else if (!valueLeftOut) yield { key, value, version, ttlMs: milliseconds(timeToLiveMs) };
        else {
          // The value was too large for the page. If the entry has gone since, the scan is as right without it.
          const found = await this.get(key, options);
          if (found) yield { key, ...found };
        }
      }
    }
  }

  /** Changes of keys that begin with a prefix, until the caller leaves the loop. The first event is `started`. */
  async *watch(prefix: Bytes, options?: CallOptions): AsyncGenerator<WatchEvent, void, undefined> {
    const events = this.#caller.stream(KeyRangeService.method.watch, { prefix: bytes(prefix) }, options);
    for await (const { kind, key, version, value, valueLeftOut } of events) {
      if (kind === WatchEventKind.STARTED) yield { kind: "started" };
      if (kind === WatchEventKind.PUT) yield { kind: "put", key, version, value: valueLeftOut ? undefined : value };
      if (kind === WatchEventKind.DELETED) yield { kind: "deleted", key, version };
      if (kind === WatchEventKind.EXPIRED) yield { kind: "expired", key, version };
    }
  }

  /** Takes no further calls; those under way come to their end. */
  close(): void {
    this.#caller.link.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  #order(id: number, quantity: number, key: string): { id: number; quantity: number; idempotencyKey: Uint8Array } {
    return { id: checkedId(id), quantity: checked("quantity", quantity, 1, ID_MAX), idempotencyKey: checkedKey(key) };
  }

  async #reservation<I extends DescMessage>(
    key: string,
    method: DescMethodUnary<I, typeof ReservationReplySchema>,
    request: MessageInitShape<I>,
    options: CallOptions | undefined,
  ): Promise<Reservation> {
    return this.#once<Reservation>(key, async () => {
      const reply = await this.#caller.unary("keyed", method, request, options);
      const { success, message, replayed, id, quantity, number, stockLeft, untilMs } = reply;
      const name = (WireOutcome[reply.outcome] as string | undefined) ?? "UNSPECIFIED";
      const outcome = name.toLowerCase() as ReservationOutcome;
      const until = untilMs === 0n ? undefined : untilMs;
      return { outcome, success, message, key, replayed, id, quantity, number, stockLeft, untilMs: until };
    });
  }

  /** A call that has a key. */
  async #once<T>(
    key: string,
    call: () => Promise<T>,
  ): Promise<T | (UnknownOutcome & { message: string; key: string; replayed: false })> {
    try {
      return await call();
    } catch (fault) {
      if (!(fault instanceof OutcomeUnknown)) throw fault;
      return { outcome: "unknown", message: fault.message, key, replayed: false, code: fault.code, fault };
    }
  }

  /** Refusals that are outcomes of this call. */
  async #settle<T>(call: () => Promise<T>, outcomes: Partial<Record<Code, T>>): Promise<T> {
    try {
      return await call();
    } catch (fault) {
      if (fault instanceof Refused && fault.code in outcomes) return outcomes[fault.code] as T;
      throw fault;
    }
  }
}

/** The calls of operators; `Client.operator` makes it, with a token. */
export class Operator {
  readonly #caller: Caller;

  constructor(caller: Caller) {
    this.#caller = caller;
  }

  /** Every book, in the order of ids. */
  async *list({ pageSize, ...options }: PageOptions = {}): AsyncGenerator<Book, void, undefined> {
    const pages = this.#caller.list(Admin.method.list, { pageSize: sizeOfPage(pageSize) }, options);
    for await (const page of pages) yield* page.books.map(bookOf);
  }

  /** Raises every book that has fewer copies to `amount`, 20 if absent; gives how many those were. */
  async restock(amount?: number, options?: CallOptions): Promise<bigint> {
    const request = amount === undefined ? {} : { amount: checked("amount", amount, 0, ID_MAX) };
    return (await this.#caller.unary("write", Admin.method.restock, request, options)).booksRaised;
  }

  /** Sets a price; undefined if there is no such book. */
  async updatePrice(id: number, cents: bigint, options?: CallOptions): Promise<PriceChange | undefined> {
    const request = { id: checkedId(id), priceCents: cents };
    const reply = await this.#caller.unary("write", Admin.method.updatePrice, request, options);
    return reply.success ? { beforeCents: reply.priceCentsBefore, afterCents: reply.priceCentsAfter } : undefined;
  }

  /** The transaction log, newest first. */
  async *log({ pageSize, ...options }: PageOptions = {}): AsyncGenerator<LogEntry, void, undefined> {
    const pages = this.#caller.list(Admin.method.log, { pageSize: sizeOfPage(pageSize) }, options);
    for await (const page of pages) yield* page.entries.map(entryOf);
  }

  /** The transaction log as it grows, oldest first: what is behind the number `after`, or from now on. */
  async *tailLog(after?: bigint, options?: CallOptions): AsyncGenerator<LogEntry, void, undefined> {
    const request = after === undefined ? {} : { afterNumber: after };
    for await (const entry of this.#caller.stream(Admin.method.tailLog, request, options)) yield entryOf(entry);
  }
}

/** A key that no other purchase has: 128 random bits. */
export function randomKey(): string {
  let key = "";
  for (const byte of crypto.getRandomValues(new Uint8Array(16))) key += byte.toString(16).padStart(2, "0");
  return key;
}

function bookOf({ id, title, topic, stock, held, price, priceCents }: WireBook): Book {
  // A server that knows no cents sends the fraction alone.
  const cents = priceCents === 0n && Number.isFinite(price) ? BigInt(Math.round(price * 100)) : priceCents;
  return { id, title, topic, stock, held, priceCents: cents };
}

function entryOf({ number, timeMs, kind, bookId, quantity, before, after, idempotencyKey }: WireLogEntry): LogEntry {
  const name = LogEntryKind[kind] as keyof typeof LogEntryKind;
  return { number, time: new Date(Number(timeMs)), kind: name, bookId, quantity, before, after, key: idempotencyKey };
}

/** A price with two decimals. */
export function decimal(cents: bigint): string {
  const digits = (cents < 0n ? -cents : cents).toString().padStart(3, "0");
  return `${cents < 0n ? "-" : ""}${digits.slice(0, -2)}.${digits.slice(-2)}`;
}

function checkedKey(key: string): Uint8Array {
  const name = bytes(key);
  if (name.length >= 1 && name.length <= KEY_BYTES_MAX) return name;
  const has = `${String(name.length)} bytes`;
  throw new RangeError(`the idempotency key has ${has}; it must have 1 to ${String(KEY_BYTES_MAX)}`);
}

function checkedId(id: number): number {
  return checked("id", id, 1, ID_MAX);
}

const encoder = new TextEncoder();

function bytes(text: Bytes): Uint8Array {
  return typeof text === "string" ? encoder.encode(text) : text;
}

function ttl(ms: number | undefined): bigint {
  return ms === undefined ? 0n : BigInt(checked("ttlMs", ms, 1, Number.MAX_SAFE_INTEGER));
}

function milliseconds(ms: bigint | undefined): number | undefined {
  return ms === undefined ? undefined : Number(ms);
}

/** 0 asks for as many as the server likes. */
function sizeOfPage(size: number | undefined, usual = 0): number {
  return size === undefined ? usual : checked("pageSize", size, 1, ID_MAX);
}
