import { Admin, type LogEntry as WireEntry, LogEntryKind } from "#proto/bookstore_pb.js";
import { type CallOptions, type Caller, checked } from "./caller.js";
import { ID_MAX, bookOf, checkedId, sizeOfPage } from "./client.js";
import type { Book, LogEntry, PageOptions, PriceChange } from "./types.js";

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
    return (await this.#caller.ask("write", Admin.method.restock, request, options)).booksRaised;
  }

  /** Sets a price; undefined if there is no such book. */
  async updatePrice(id: number, cents: bigint, options?: CallOptions): Promise<PriceChange | undefined> {
    const request = { id: checkedId(id), priceCents: cents };
    const reply = await this.#caller.ask("write", Admin.method.updatePrice, request, options);
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

function entryOf({ number, timeMs, kind, bookId, quantity, before, after, idempotencyKey }: WireEntry): LogEntry {
  const name = LogEntryKind[kind] as keyof typeof LogEntryKind;
  return { number, time: new Date(Number(timeMs)), kind: name, bookId, quantity, before, after, key: idempotencyKey };
}
