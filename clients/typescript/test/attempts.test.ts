import type { MessageInitShape } from "@bufbuild/protobuf";
import { create } from "@bufbuild/protobuf";
import assert from "node:assert/strict";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { test } from "node:test";

import { BookStore, BuyBookReplySchema, BuyOutcome, ReservationReplySchema } from "#proto/bookstore_pb.js";
import { KeyRangeService } from "#proto/kv_pb.js";
import { Caller, type ClientOptions } from "../src/caller.js";
import { type Code, OutcomeUnknown, Refused, Unreachable } from "../src/faults.js";
import { Client } from "../src/client.js";
import { connect } from "../src/index.js";
import { Failure, type Link, type Reach } from "../src/link.js";

type Step = [Reach, Code, string?] | MessageInitShape<typeof BuyBookReplySchema>;

/** A link that answers as it is told; the last answer stands for all that follow. */
function scripted(...steps: Step[]): { link: Link; sent: () => number; keys: Set<string> } {
  let sent = 0;
  const keys = new Set<string>();
  const link = {
    address: "there:1",
    unary(_: unknown, message: { idempotencyKey?: Uint8Array }) {
      const step = steps[Math.min(sent++, steps.length - 1)];
      keys.add(Buffer.from(message.idempotencyKey ?? []).toString());
      if (!Array.isArray(step)) return Promise.resolve(create(BuyBookReplySchema, step));
      return Promise.reject(new Failure(step[1], step[0], "told", step[2]));
    },
    stream: () => assert.fail(),
    close: () => undefined,
  } as unknown as Link;
  return { link, sent: () => sent, keys };
}

const BOUGHT = { success: true, outcome: BuyOutcome.BOUGHT, purchaseNumber: 5n };

async function buy(
  steps: Step[],
  options: ClientOptions = {},
): Promise<{ outcome: string; sent: number; keys: number }> {
  const { link, sent, keys } = scripted(...steps);
  const told = await new Client(new Caller(link, { timeoutMs: 1_000, ...options }))
    .buy(7)
    .catch((fault: unknown) => fault);
  const outcome = told instanceof Error ? told.name : (told as { outcome: string }).outcome;
  return { outcome, sent: sent(), keys: keys.size };
}

test("a purchase in doubt is sent again with its key until the store answers", async () => {
  for (const code of ["UNAVAILABLE", "UNKNOWN", "DEADLINE_EXCEEDED", "CANCELLED"] as const) {
    assert.deepEqual(await buy([["answered", code], BOUGHT]), { outcome: "bought", sent: 2, keys: 1 }, code);
  }
  assert.deepEqual(await buy([["sent", "INTERNAL"], BOUGHT]), { outcome: "bought", sent: 2, keys: 1 });
});

test("a later refusal does not end the doubt", async () => {
  for (const code of ["INVALID_ARGUMENT", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "INTERNAL"] as const) {
    const { outcome, sent } = await buy([
      ["sent", "UNAVAILABLE"],
      ["answered", code],
    ]);
    assert.equal(outcome, "unknown", code);
    assert.ok(sent > 2, code);
  }
});

test("without retries a purchase in doubt is not sent again", async () => {
  assert.deepEqual(await buy([["sent", "UNAVAILABLE"], BOUGHT], { retries: 0 }), {
    outcome: "unknown",
    sent: 1,
    keys: 1,
  });
});

test("what was not sent is sent as often as asked, and nothing is in doubt", async () => {
  assert.deepEqual(await buy([["unsent", "UNAVAILABLE"]], { retries: 1 }), {
    outcome: "Unreachable",
    sent: 2,
    keys: 1,
  });
  assert.deepEqual(await buy([["answered", "RESOURCE_EXHAUSTED"]], { retries: 1 }), {
    outcome: "Refused",
    sent: 2,
    keys: 1,
  });
});

test("a server says when to come back, or that no one shall", async () => {
  const never = await buy([["answered", "RESOURCE_EXHAUSTED", "-1"], BOUGHT]);
  assert.deepEqual(never, { outcome: "Refused", sent: 1, keys: 1 });
  assert.equal((await buy([["answered", "UNAVAILABLE", "soon"], BOUGHT])).outcome, "unknown");
  assert.equal((await buy([["answered", "UNAVAILABLE", "60000"], BOUGHT])).sent, 1);
  assert.equal((await buy([["answered", "UNAVAILABLE", "0"], BOUGHT], { timeoutMs: 50 })).outcome, "bought");
});

test("a write is sent again only if it was not sent; a read if that may help", async () => {
  const ask = async (kind: "read" | "write", ...steps: Step[]): Promise<unknown> => {
    const { link, sent } = scripted(...steps);
    const caller = new Caller(link, { timeoutMs: 1_000, retries: 1 });
    const done =
      kind === "read"
        ? caller.unary(kind, BookStore.method.hello, {})
        : caller.unary(kind, KeyRangeService.method.put, {});
    const told: unknown = await done.catch((fault: unknown) => (fault as Error).constructor);
    return [told, sent()];
  };
  assert.deepEqual(await ask("write", ["sent", "UNAVAILABLE"]), [OutcomeUnknown, 1]);
  assert.deepEqual(await ask("write", ["unsent", "UNAVAILABLE"], ["answered", "UNKNOWN"]), [OutcomeUnknown, 2]);
  assert.deepEqual(await ask("write", ["answered", "ABORTED"]), [Refused, 1]);
  assert.deepEqual(await ask("read", ["answered", "UNAVAILABLE"]), [Unreachable, 2]);
  assert.deepEqual(await ask("read", ["answered", "DEADLINE_EXCEEDED"]), [Unreachable, 1]);
  assert.deepEqual(await ask("read", ["answered", "NOT_FOUND"]), [Refused, 1]);
});

test("a signal ends a purchase: unknown if it may have been done, with the signal's reason if not", async () => {
  for (const [reach, code, wanted] of [
    ["sent", "UNAVAILABLE", "unknown"],
    ["unsent", "UNAVAILABLE", "mine"],
    ["answered", "RESOURCE_EXHAUSTED", "mine"],
  ] as const) {
    const stop = new AbortController();
    const { link } = scripted([reach, code]);
    const told = new Client(new Caller(link, {}))
      .buy(7, { signal: stop.signal })
      .catch((reason: unknown) => ({ outcome: reason }));
    setImmediate(() => {
      stop.abort("mine");
    });
    assert.equal((await told).outcome, wanted);
  }
});

test("a fault says what the server did", async () => {
  for (const [reach, wanted] of [
    ["sent", "there:1 did not answer: told"],
    ["answered", "there:1 answered UNAVAILABLE: told"],
    ["unsent", "there:1 cannot be reached: told"],
  ] as const) {
    const { link } = scripted([reach, "UNAVAILABLE"]);
    await assert.rejects(new Client(new Caller(link, { retries: 0 })).lookup(7), { message: wanted });
  }
});

test("the time of a reservation is kept, also beyond those of a Date", async () => {
  const untilMs = 9_000_000_000_000_000n;
  const link = {
    unary: () => Promise.resolve(create(ReservationReplySchema, { success: true, untilMs })),
  } as unknown as Link;
  const held = await new Client(new Caller(link, {})).confirm("k");
  assert.equal("untilMs" in held && held.untilMs, untilMs);
});

test("a server that speaks TLS, and one that does not, are told from one that is not there", async () => {
  const alert = Buffer.from([0x15, 3, 3, 0, 2, 2, 0x46]);
  const settings = Buffer.from([0, 0, 0, 4, 0, 0, 0, 0, 0]);
  for (const [scheme, bytes, wanted] of [
    ["http", alert, /: the server closed the connection before it spoke; if it speaks TLS, write https:\/\/$/],
    ["https", settings, /: the server does not speak TLS: write http:\/\/$/],
  ] as const) {
    const server = createServer((socket) => {
      socket.on("error", () => undefined).once("data", () => socket.end(bytes));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    using store = connect(`${scheme}://127.0.0.1:${String(port)}`, { retries: 0 });
    await assert.rejects(store.lookup(7), { name: "Unreachable", message: wanted });
    server.close();
  }
});

test("wrong arguments are told before anything is sent", async () => {
  const { link, sent } = scripted(BOUGHT);
  const client = new Client(new Caller(link, {}));
  for (const wrong of [
    client.buy(0),
    client.buy(7, { quantity: 0 }),
    client.buy(7, { key: "" }),
    client.buy(7, { key: "é".repeat(33) }),
    client.buy(7, { timeoutMs: 0 }),
    client.put("key", "value", { ttlMs: -1 }),
  ]) {
    await assert.rejects(wrong, RangeError);
  }
  assert.throws(() => client.operator(""), RangeError);
  assert.throws(() => new Caller(link, { retries: -1 }), RangeError);
  assert.equal(sent(), 0);
});
