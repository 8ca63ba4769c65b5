import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";

import { BookStore } from "#proto/bookstore_pb.js";
import { connect, randomKey } from "../src/index.js";

const BOOK = 53477;

export interface Measured {
  calls: number;
  cpu_seconds: number;
  seconds: number;
}

/** Calls for some seconds over one connection, `inFlight` at once: with the library, or with the generated stub alone. */
export async function bench(
  address: string,
  buys: boolean,
  inFlight: number,
  seconds: number,
  bare = false,
): Promise<Measured> {
  const call = bare ? bareCall(address, buys) : libraryCall(address, buys);
  await call();
  let calls = 0;
  const began = performance.now();
  const cpuBefore = process.cpuUsage();
  const until = began + seconds * 1e3;
  const caller = async (): Promise<void> => {
    while (performance.now() < until) {
      await call();
      calls++;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, caller));
  const { user, system } = process.cpuUsage(cpuBefore);
  return { calls, cpu_seconds: (user + system) / 1e6, seconds: (performance.now() - began) / 1e3 };
}

function libraryCall(address: string, buys: boolean): () => Promise<void> {
  const client = connect(address);
  if (!buys) {
    return async () => {
      if (!(await client.lookup(BOOK))) throw new Error("there is no such book");
    };
  }
  return async () => {
    const { outcome } = await client.buy(BOOK);
    if (outcome === "unknown") throw new Error("the outcome is unknown");
  };
}

function bareCall(address: string, buys: boolean): () => Promise<void> {
  const client = createClient(BookStore, createGrpcTransport({ baseUrl: `http://${address}` }));
  if (!buys) {
    return async () => {
      if (!(await client.lookup({ id: BOOK })).book) throw new Error("there is no such book");
    };
  }
  return async () => {
    await client.buy({ id: BOOK, quantity: 1, idempotencyKey: Buffer.from(randomKey()) });
  };
}
