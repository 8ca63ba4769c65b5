/** Arguments and results of calls. */
import type { LogEntryKind } from "#proto/bookstore_pb.js";
import type { CallOptions } from "./caller.js";
import type { Code, OutcomeUnknown } from "./faults.js";

/** A book of the store. */
export interface Book {
  readonly id: number;
  readonly title: string;
  readonly topic: string;
  /** Copies that can be bought. */
  readonly stock: number;
  readonly priceCents: bigint;
}

export interface Topic {
  readonly name: string;
  /** Number of its books. */
  readonly books: bigint;
}

/** Outcome of a purchase. */
export type Purchase = {
  /** The store's words, or the reason of an unknown outcome. */
  readonly message: string;
  /** Names this purchase: sending it again with this key buys nothing twice. */
  readonly key: string;
  /** True if this is the stored answer to an earlier request with the same key. */
  readonly replayed: boolean;
} & (
  | { readonly outcome: "bought"; readonly number: bigint; readonly stockLeft: number | undefined }
  | { readonly outcome: "sold_out" | "too_few"; readonly stockLeft: number | undefined }
  | { readonly outcome: "no_such_book" }
  /** The store may have made the purchase: buying again with this key settles it. `code` has the reason. */
  | { readonly outcome: "unknown"; readonly code: Code; readonly fault: OutcomeUnknown }
);

/** Any bytes; a string stands for its UTF-8. */
export type Bytes = Uint8Array | string;

export interface Value {
  readonly value: Uint8Array;
  readonly version: bigint;
  /** The time left; undefined if the entry does not expire. */
  readonly ttlMs: number | undefined;
}

/** An entry of a scan; without its value if keys alone were asked for. */
export interface Entry extends Partial<Value> {
  readonly key: Uint8Array;
  readonly version: bigint;
}

export type Created = { readonly outcome: "created"; readonly version: bigint } | { readonly outcome: "exists" };

export type Updated =
  { readonly outcome: "updated"; readonly version: bigint } | { readonly outcome: "no_such_key" | "another_version" };

export interface Deleted {
  readonly outcome: "deleted" | "no_such_key" | "another_version";
}

export type WatchEvent =
  /** The watch has begun: every later change follows. */
  | { readonly kind: "started" }
  /** `value` is undefined if it is too large for an event; `get` has it. */
  | { readonly kind: "put"; readonly key: Uint8Array; readonly version: bigint; readonly value: Uint8Array | undefined }
  | { readonly kind: "deleted" | "expired"; readonly key: Uint8Array; readonly version: bigint };

export interface BuyOptions extends CallOptions {
  /** Number of copies, all or none: one if absent. */
  quantity?: number | undefined;
  /** 1 to 64 bytes that name the purchase; random if absent. */
  key?: string | undefined;
}

export interface WriteOptions extends CallOptions {
  /** The entry expires after this many milliseconds; never if absent. */
  ttlMs?: number | undefined;
}

export interface ExpectOptions extends CallOptions {
  /** Do nothing if the entry has another version. */
  expectedVersion?: bigint | undefined;
}

export interface PageOptions extends CallOptions {
  /** The most items that one message brings. */
  pageSize?: number | undefined;
}

/** A line of the transaction log. */
export interface LogEntry {
  /** 1, 2, 3 … in the order of commits. */
  readonly number: bigint;
  readonly time: Date;
  readonly kind: keyof typeof LogEntryKind;
  readonly bookId: number;
  /** Copies that a purchase asked for. */
  readonly quantity: number | undefined;
  /** Copies, or cents if the price changed. */
  readonly before: bigint | undefined;
  readonly after: bigint | undefined;
  readonly key: Uint8Array;
}

export interface PriceChange {
  readonly beforeCents: bigint;
  readonly afterCents: bigint;
}
