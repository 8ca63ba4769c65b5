import { BookStore, BuyOutcomeSchema } from "#proto/bookstore_pb.js";
import { type CallOptions, Caller, READ_TIMEOUT_MS } from "../caller.js";
import { bookOf, buyReply, decimal, randomKey, searchPages, topicPages } from "../client.js";
import { type Fault, OutcomeUnknown, Refused, Unreachable, reason } from "../faults.js";
import { link } from "../index.js";
import type { Book, Topic } from "../types.js";
import type { Arguments } from "./arguments.js";
import type { Command } from "./command.js";
import { type Json, escaped, quoted, table } from "./screen.js";

/** Exit codes of a command, from the best to the worst: a script that did several things ends with its worst. */
export const EXIT = { done: 0, refused: 1, usage: 2, unreachable: 3, unknown: 4 } as const;

/** Outcome of a command. */
export interface Answer {
  readonly exit: number;
  /** Lines for a terminal. */
  readonly text: string;
  readonly json: Record<string, Json>;
  readonly isFault?: boolean;
}

/** Ids and topics noted for completion. */
export interface Seen {
  note(ids: readonly number[], topics: readonly string[]): void;
}

type Call = Exclude<Command, { name: "help" | "exit" }>;

/** The answers of a server to commands. */
export class Answers {
  readonly #caller: Caller;

  constructor(
    readonly line: Arguments,
    readonly seen: Seen,
  ) {
    this.#caller = new Caller(link(line.address, line.connect), line.connect);
  }

  async answer(command: Call, signal: AbortSignal): Promise<Answer> {
    const key = command.name === "buy" ? (this.line.key ?? randomKey()) : undefined;
    try {
      switch (command.name) {
        case "ping":
          return await this.#ping(signal);
        case "topics":
          return await this.#topics(command.text, signal);
        case "search":
          return await this.#search(command.text, signal);
        case "lookup":
          return await this.#lookup(command.id, signal);
        case "buy":
          return await this.#buy(command.id, command.quantity, key ?? "", signal);
      }
    } catch (error: unknown) {
      const fault = error === signal.reason ? new Unreachable(this.line.address, "CANCELLED", true) : error;
      if (fault instanceof OutcomeUnknown && command.name === "buy") return this.#unknown(fault, command, key ?? "");
      if (fault instanceof Refused || fault instanceof Unreachable) return faulty(fault, key);
      throw error;
    }
  }

  async #ping(signal: AbortSignal): Promise<Answer> {
    const began = performance.now();
    const { helloMessage } = await this.#caller.unary(
      "read",
      BookStore.method.hello,
      { name: "quire client" },
      { signal },
    );
    const tookMs = performance.now() - began;
    return {
      exit: EXIT.done,
      text: `${escaped(helloMessage)} (${tookMs.toFixed(2)} ms)`,
      json: { success: true, message: helloMessage, microseconds: Math.round(tookMs * 1e3) },
    };
  }

  async #search(topic: string, signal: AbortSignal): Promise<Answer> {
    const began = performance.now();
    const books: Book[] = [];
    let [success, message] = [true, ""];
    for await (const page of searchPages(this.#caller, topic, { signal })) {
      ({ success, message } = page);
      for (const book of page.books) books.push(bookOf(book));
    }
    this.#note(books);
    const leftMs = (this.line.connect.timeoutMs ?? READ_TIMEOUT_MS) - (performance.now() - began);
    const near = books.length === 0 && leftMs > 0 ? await this.#near(topic, { timeoutMs: leftMs, signal }) : [];
    const nearText = near.length === 0 ? "" : `; near it: ${near.map((name) => `'${escaped(name)}'`).join(", ")}`;
    const json = { success, message, books: books.map(bookJson) };
    return {
      exit: success ? EXIT.done : EXIT.refused,
      text: books.length > 0 ? bookTable(books) : escaped(message) + nearText,
      json: near.length > 0 ? { ...json, near } : json,
    };
  }

  /** Topics near one that has no books; none from a server that cannot say. */
  async #near(topic: string, options: CallOptions): Promise<string[]> {
    try {
      const { topics } = await this.#caller.unary("read", BookStore.method.listTopics, { near: topic }, options);
      return topics.map(({ name }) => name);
    } catch {
      return [];
    }
  }

  async #topics(near: string, signal: AbortSignal): Promise<Answer> {
    const topics: Topic[] = [];
    for await (const page of topicPages(this.#caller, near, { signal })) topics.push(...page.topics);
    this.seen.note(
      [],
      topics.map(({ name }) => name),
    );
    const none = near === "" ? "there are no topics" : `no topic is near '${escaped(near)}'`;
    const columns = [{ head: "topic" }, { head: "books", numbers: true }];
    return {
      exit: EXIT.done,
      text:
        topics.length === 0
          ? none
          : table(
              columns,
              topics.map(({ name, books }) => [name, books.toString()]),
            ),
      json: { success: true, topics: topics.map(({ name, books }) => ({ name, books })) },
    };
  }

  async #lookup(id: number, signal: AbortSignal): Promise<Answer> {
    const { success, message, book } = await this.#caller.unary("read", BookStore.method.lookup, { id }, { signal });
    const books = book ? [bookOf(book)] : [];
    this.#note(books);
    return {
      exit: success ? EXIT.done : EXIT.refused,
      text: book ? bookTable(books) : escaped(message),
      json: { success, message, book: books.map(bookJson)[0] ?? null },
    };
  }

  async #buy(id: number, quantity: number, key: string, signal: AbortSignal): Promise<Answer> {
    const reply = await buyReply(this.#caller, id, quantity, key, { signal });
    const { success, message, purchaseNumber, replayed } = reply;
    const number = success ? ` (purchase ${purchaseNumber.toString()})` : "";
    const again = replayed ? "; this key was sent before, nothing was bought again" : "";
    const outcome = BuyOutcomeSchema.values.find((known) => known.number === (reply.outcome as number));
    return {
      exit: success ? EXIT.done : EXIT.refused,
      text: escaped(message) + number + again,
      json: {
        success,
        message,
        outcome: outcome?.name ?? "BUY_OUTCOME_UNSPECIFIED",
        key,
        purchase_number: purchaseNumber,
        stock_left: reply.stockLeft ?? null,
        replayed,
      },
    };
  }

  #unknown(fault: OutcomeUnknown, { id, quantity }: { id: number; quantity: number }, key: string): Answer {
    const { again, address } = this.line;
    const words = ["quire-client", "--key", key, ...again, address, "buy", String(id)];
    const command = quoted(quantity === 1 ? words : [...words, String(quantity)]);
    const lines = [
      `it is not known whether book ${String(id)} was bought: ${reason(fault.code)}`,
      `the purchase has the key ${key}; this asks for its outcome and buys nothing twice:`,
      `    ${command}`,
    ];
    return {
      exit: EXIT.unknown,
      isFault: true,
      text: lines.map(escaped).join("\n"),
      json: { success: false, outcome: "UNKNOWN", status: fault.code, message: lines.join("\n"), key, command },
    };
  }

  #note(books: readonly Book[]): void {
    this.seen.note(
      books.map(({ id }) => id),
      books.map(({ topic }) => topic),
    );
  }
}

function faulty(fault: Fault, key: string | undefined): Answer {
  const isRefusal = fault instanceof Refused;
  const json = {
    success: false,
    outcome: isRefusal ? "REFUSED" : "UNREACHABLE",
    status: fault.code,
    message: fault.message,
  };
  return {
    exit: isRefusal ? EXIT.refused : EXIT.unreachable,
    isFault: true,
    text: escaped(fault.message),
    json: key === undefined ? json : { ...json, key },
  };
}

function bookTable(books: readonly Book[]): string {
  const columns = [
    { head: "id", numbers: true },
    { head: "title" },
    { head: "topic" },
    { head: "stock", numbers: true },
    { head: "price", numbers: true },
  ];
  const row = ({ id, title, topic, stock, priceCents }: Book): string[] => [
    String(id),
    title,
    topic,
    String(stock),
    decimal(priceCents),
  ];
  return table(columns, books.map(row));
}

function bookJson({ id, title, topic, stock, priceCents }: Book): Json {
  return { id, title, topic, stock, price_cents: priceCents };
}
