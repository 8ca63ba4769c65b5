// What a page does with the client; the test reads what it found.
import { Refused, Unreachable, connect, decimal } from "quire-client/web";

declare const PLACES: { server: string; nowhere: string; token: string };

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

async function faultOf(done: Promise<unknown>): Promise<unknown> {
  const fault = await done.catch((error: unknown) => error);
  const name = fault instanceof Refused ? "refused" : fault instanceof Unreachable ? "unreachable" : String(fault);
  return [name, fault instanceof Refused || fault instanceof Unreachable ? fault.code : undefined];
}

async function found(): Promise<Record<string, unknown>> {
  const store = connect(PLACES.server);
  const operator = store.operator(PLACES.token);
  const text = new TextDecoder();
  const [first, again] = [await store.buy(53477, { key: "page" }), await store.buy(53477, { key: "page" })];
  const events: string[] = [];
  for await (const event of store.watch("gr")) {
    events.push(event.kind);
    if (event.kind === "started") await store.put("greeting", "hello", { ttlMs: 60_000 });
    if (event.kind === "put") events.push(text.decode(event.value));
    if (event.kind === "put") break;
  }
  const stop = new AbortController();
  const watching = all(store.watch("never", { signal: stop.signal }));
  stop.abort("left");
  return {
    ping: await store.ping(),
    ids: (await all(store.search("distributed systems", { pageSize: 1 }))).map((book) => book.id),
    topics: (await all(store.topics({ near: "college" }))).map((topic) => topic.name),
    price: decimal((await store.lookup(53477))?.priceCents ?? 0n),
    none: (await store.lookup(1)) === undefined,
    bought: [first.outcome, first.replayed, again.outcome, again.replayed],
    events,
    ttl: ((await store.get("greeting"))?.ttlMs ?? 0) > 0,
    entries: (await all(store.scan("gr"))).map((entry) => text.decode(entry.value)),
    another: (await store.update("greeting", "bye", { expectedVersion: 1n << 60n })).outcome,
    exists: (await store.create("greeting", "again")).outcome,
    listed: (await all(operator.list({ pageSize: 3 }))).length,
    numbers: (await all(operator.log())).map((entry) => [String(entry.number), entry.kind])[0],
    wrongToken: await faultOf(store.operator("wrong").restock()),
    refused: await faultOf(store.buy(53477, { quantity: 1001 })),
    aborted: await watching.catch((reason: unknown) => reason),
    unreachable: await faultOf(connect(PLACES.nowhere, { retries: 0 }).ping()),
    // A page cannot know that nothing was sent.
    unknown: (await connect(PLACES.nowhere, { retries: 0 }).buy(53477)).outcome,
  };
}

void found()
  .catch((error: unknown) => ({ error: error instanceof Error ? error.stack : String(error) }))
  .then((value) => fetch("/found", { method: "POST", body: JSON.stringify(value) }));
