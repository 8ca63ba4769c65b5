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
  /** Copies that reservations hold. */
  readonly held: number;
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
  /** `not_bought`: for no known reason; the message may have one. */
  | {
      readonly outcome: "sold_out" | "too_few" | "no_such_book" | "not_bought";
      readonly stockLeft: number | undefined;
    }
  | UnknownOutcome
);

/** The store may have done it: the same call with the same key settles it. `code` has the reason. */
export interface UnknownOutcome {
  readonly outcome: "unknown";
  readonly code: Code;
  readonly fault: OutcomeUnknown;
}

/** A proof that the store's log has a purchase. */
export interface Receipt {
  readonly text: string;
  /** The log's public key; it proves something only if the reader has it from elsewhere as well. */
  readonly logKey: string;
}

/** State of a reservation after a call, or why there is none. */
export type ReservationOutcome =
  | "held"
  | "bought"
  | "released"
  | "expired"
  | "sold_out"
  | "too_few"
  | "no_such_book"
  | "no_such_reservation"
  /** The server has a word that this client does not know. */
  | "unspecified";

/** What came of a reservation. */
export type Reservation = {
  /** The store's words, or the reason of an unknown outcome. */
  readonly message: string;
  /** Names this reservation: each call with it does its part once. */
  readonly key: string;
  /** True if an earlier call with the same key led to this outcome, or the end of the time. */
  readonly replayed: boolean;
} & (
  | {
      readonly outcome: ReservationOutcome;
      /** True if the call did what it is for, now or when it was sent first. */
      readonly success: boolean;
      /** The book and the copies; 0 if there is no reservation with the key. */
      readonly id: number;
      readonly quantity: number;
      /** Number of the log's entry; 0 if there is none. Of what is bought it is the purchase's. */
      readonly number: bigint;
      readonly stockLeft: number | undefined;
      /** When the copies are given back by themselves, in milliseconds since 1970; undefined without a reservation. */
      readonly untilMs: bigint | undefined;
    }
  | UnknownOutcome
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
  /** 1 to 64 bytes that name the purchase or the reservation; random if absent. */
  key?: string | undefined;
}

export interface ReserveOptions extends BuyOptions {
  /** How long the copies are held: 900 if absent. */
  seconds?: number | undefined;
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
