/** Calls the library as requests on standard input ask: one of JSON a line. */
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

import { type Client, type Operator, type Reservation, Fault, OutcomeUnknown, Refused, connect } from "../src/index.js";
import { bench } from "./bench.js";

const AT_ONCE_MAX = 64;

interface Request {
  n: number;
  call: string;
  topic: string;
  id: number;
  cents: number;
  events: number;
  entries: number;
  limit: number;
  page_size?: number;
  near?: string;
  quantity?: number;
  seconds?: number;
  number: number;
  key: string;
  value: string;
  prefix: string;
  keys_only?: boolean;
  ttl_ms?: number;
  expected_version?: number;
  amount?: number;
  after?: number;
  timeout_ms?: number;
  traceparent?: string;
  tracestate?: string;
  cause?: boolean;
}

type Fields = Record<string, unknown>;

class Driver {
  readonly #client: Client;
  readonly #operator: () => Operator;

  constructor(client: Client, token: string | undefined) {
    this.#client = client;
    this.#operator = () => client.operator(token ?? "");
  }

  async answer(request: Request): Promise<void> {
    try {
      this.write(request, await this.#call(request));
    } catch (error) {
      this.write(request, { ...faultOf(error), ...(request.cause && { cause: root(error) }) });
    }
  }

  write({ n }: Request, fields: Fields): void {
    const quoted = (_: string, value: unknown): unknown => (typeof value === "bigint" ? `${value.toString()}n` : value);
    // A number of 64 bits goes without its quotes.
    process.stdout.write(`${JSON.stringify({ n, ...fields }, quoted).replace(/"(-?\d+)n"/g, "$1")}\n`);
  }

  async #call(request: Request): Promise<Fields> {
    const { timeout_ms: timeoutMs, traceparent, tracestate } = request;
    const options = { timeoutMs, traceparent, tracestate };
    const client = this.#client;
    switch (request.call) {
      case "ping":
        return { message: await client.ping(options) };
      case "search": {
        const books = client.search(request.topic, { ...options, pageSize: request.page_size });
        return { ids: (await all(books)).map((book) => book.id) };
      }
      case "topics": {
        const near = request.near === undefined ? {} : { near: request.near };
        return { names: (await all(client.topics({ ...options, ...near }))).map((topic) => topic.name) };
      }
      case "lookup": {
        const book = await client.lookup(request.id, options);
        if (!book) return { book: null };
        const { id, title, topic, stock, held, priceCents } = book;
        return { book: { id, title, topic, stock, held, price_cents: priceCents } };
      }
      case "buy": {
        const { quantity, key } = request as Partial<Request>;
        const done = await client.buy(request.id, { ...options, quantity, key });
        const number = done.outcome === "bought" ? done.number : undefined;
        const stockLeft = "stockLeft" in done ? done.stockLeft : undefined;
        return { outcome: done.outcome, key: done.key, replayed: done.replayed, number, stock_left: stockLeft };
      }
      case "receipt": {
        const receipt = await client.receipt(BigInt(request.number), request.key, options);
        return { receipt: receipt?.text ?? null, log_key: receipt?.logKey ?? null };
      }
      case "reserve": {
        const { quantity, seconds, key } = request as Partial<Request>;
        return reserved(await client.reserve(request.id, { ...options, quantity, seconds, key }));
      }
      case "confirm":
        return reserved(await client.confirm(request.key, options));
      case "release":
        return reserved(await client.release(request.key, options));
      case "list":
        return { ids: (await all(this.#operator().list(options))).map((book) => book.id) };
      case "restock":
        return { raised: await this.#operator().restock(request.amount, options) };
      case "update_price": {
        const change = await this.#operator().updatePrice(request.id, BigInt(request.cents), options);
        return { before: change?.beforeCents ?? null, after: change?.afterCents ?? null };
      }
      case "log": {
        const entries = this.#operator().log(options);
        return { numbers: (await all(entries, request.limit)).map((entry) => entry.number) };
      }
      case "tail_log": {
        const after = request.after === undefined ? undefined : BigInt(request.after);
        const entries = this.#operator().tailLog(after, options);
        return { numbers: (await all(entries, request.entries)).map((entry) => entry.number) };
      }
      default:
        return this.#keyValue(request, options);
    }
  }

  async #keyValue(request: Request, timeout: { timeoutMs: number | undefined }): Promise<Fields> {
    const client = this.#client;
    const [key, value] = [bytes(request.key), bytes(request.value)];
    const expected = request.expected_version;
    const expectedVersion = expected === undefined ? undefined : BigInt(expected);
    const options = { ...timeout, ttlMs: request.ttl_ms };
    switch (request.call) {
      case "create": {
        const done = await client.create(key, value, options);
        return done.outcome === "created" ? { version: done.version } : { outcome: done.outcome };
      }
      case "put":
        return { version: await client.put(key, value, options) };
      case "update": {
        const done = await client.update(key, value, { ...options, expectedVersion });
        return done.outcome === "updated" ? { version: done.version } : { outcome: done.outcome };
      }
      case "get": {
        const found = await client.get(key, timeout);
        if (!found) return { outcome: "no_such_key" };
        return { value: base64(found.value), version: found.version, ttl_ms: found.ttlMs };
      }
      case "delete": {
        const { outcome } = await client.delete(key, { ...timeout, expectedVersion });
        return outcome === "another_version" ? { outcome } : { deleted: outcome === "deleted" };
      }
      case "scan": {
        const keysOnly = request.keys_only ?? false;
        const entries = await all(
          client.scan(bytes(request.prefix), { ...timeout, keysOnly, pageSize: request.page_size }),
        );
        const keys = entries.map((entry) => base64(entry.key));
        return keysOnly ? { keys } : { keys, values: entries.map((entry) => base64(entry.value)) };
      }
      case "watch":
        return this.#watch(request, timeout);
      default:
        throw new TypeError(`there is no call '${request.call}'`);
    }
  }

  async #watch(request: Request, timeout: { timeoutMs: number | undefined }): Promise<Fields> {
    const [kinds, keys]: [string[], string[]] = [[], []];
    for await (const event of this.#client.watch(bytes(request.prefix), timeout)) {
      if (event.kind === "started") this.write(request, { started: true });
      else {
        kinds.push(event.kind);
        keys.push(base64(event.key));
      }
      if (kinds.length >= request.events) break;
    }
    return { kinds, keys };
  }
}

function reserved(done: Reservation): Fields {
  const { outcome, key, replayed } = done;
  if (done.outcome === "unknown") return { outcome, key, replayed };
  const { id, quantity, number, stockLeft, untilMs } = done;
  const state = { id: id || undefined, quantity: quantity || undefined, number: number || undefined };
  return { outcome, key, replayed, ...state, stock_left: stockLeft, until_ms: untilMs };
}

function faultOf(error: unknown): Fields {
  if (!(error instanceof Fault)) return { error: "argument", message: String(error) };
  const name =
    error instanceof Refused ? "refused" : error instanceof OutcomeUnknown ? "outcome_unknown" : "unreachable";
  return { error: name, code: error.code, message: error.message };
}

/** The first cause. */
function root(error: unknown): string {
  return error instanceof Error && error.cause !== undefined ? root(error.cause) : String(error);
}

/** All items, or the first ones. */
async function all<T>(items: AsyncIterable<T>, most = Infinity): Promise<T[]> {
  const found: T[] = [];
  if (most <= 0) return found;
  for await (const item of items) if (found.push(item) >= most) break;
  return found;
}

function bytes(text: string | undefined): Uint8Array {
  return Buffer.from(text ?? "", "base64");
}

function base64(value: Uint8Array | undefined): string {
  return Buffer.from(value ?? []).toString("base64");
}

async function main(): Promise<void> {
  const text = { type: "string" } as const;
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      token: text,
      ca: text,
      certificate: text,
      "key-file": text,
      retries: text,
      call: text,
      "in-flight": text,
      seconds: text,
      bare: { type: "boolean" },
    },
  });
  const [first = "", second = ""] = positionals;
  if (first === "bench") {
    const done = await bench(
      second,
      values.call === "buy",
      Number(values["in-flight"]),
      Number(values.seconds),
      values.bare,
    );
    // The bare stub keeps its connection, and the process, for a while.
    process.stdout.write(`${JSON.stringify(done)}\n`, () => process.exit());
    return;
  }
  const read = (file: string | undefined): string | undefined => file && readFileSync(file, "utf8");
  const client = connect(first, {
    token: values.token,
    retries: values.retries === undefined ? undefined : Number(values.retries),
    ca: read(values.ca),
    certificate: read(values.certificate),
    privateKey: read(values["key-file"]),
  });
  const driver = new Driver(client, values.token);
  const running = new Set<Promise<void>>();
  for await (const line of createInterface({ input: process.stdin })) {
    const answer = driver.answer(JSON.parse(line) as Request).finally(() => running.delete(answer));
    running.add(answer);
    if (running.size >= AT_ONCE_MAX) await Promise.race(running);
  }
  await Promise.all(running);
}

void main();
