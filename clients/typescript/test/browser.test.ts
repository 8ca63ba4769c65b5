// The client in a page, in Chromium, against the server that the variable QUIRE_SERVER names.
import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface, type Interface } from "node:readline";
import { test } from "node:test";

const TOKEN = "secret-of-the-operator";
const quire = process.env["QUIRE_SERVER"];
const script = join(import.meta.dirname, "page.mjs");

/** Starts a program; gives it and what ends it with its children: they hold its standard error until they end. */
function started(
  command: string,
  args: string[],
): { program: ChildProcess; lines: Interface; end: () => Promise<void> } {
  const program = spawn(command, args, { stdio: ["ignore", "ignore", "pipe"] });
  const closed = once(program, "close");
  const end = async () => {
    program.kill();
    await closed;
  };
  return { program, lines: createInterface({ input: program.stderr }), end };
}

/** Starts a server; gives its address and what ends it. */
async function serving(folder: string, origin: string): Promise<{ address: string; end: () => Promise<void> }> {
  const settings = { "admin.token": TOKEN, "server.cors_origins": origin, "rpcgame.enabled": "false" };
  const set = Object.entries(settings).flatMap(([name, value]) => ["--set", `${name}=${value}`]);
  const places = ["--data", join(folder, "data"), "--listen", "127.0.0.1:0", "--tasks-listen", "127.0.0.1:0"];
  const { program, lines, end } = started(quire ?? "", ["serve", ...places, ...set]);
  const address = await new Promise<string>((resolve, reject) => {
    program.on("error", reject);
    lines
      .on("line", (line) => {
        const [, found] = /quire::serve: listening address=(\S+)/.exec(line) ?? [];
        if (found) resolve(found);
      })
      .on("close", () => {
        reject(new Error("the server ended"));
      });
  });
  return { address, end };
}

const options = { skip: quire ? false : "QUIRE_SERVER names no server", timeout: 60_000 };

test("a page of another origin makes every call", options, async (context) => {
  const folder = mkdtempSync(join(tmpdir(), "quire-page-"));
  const ends: (() => Promise<void>)[] = [];
  context.after(async () => {
    await Promise.all(ends.map((end) => end()));
    rmSync(folder, { recursive: true });
  });
  let places = {};
  const site = createServer();
  const found = new Promise<string>((resolve) => {
    site.on("request", (request, response) => {
      if (request.url === "/found") request.setEncoding("utf8").on("data", resolve);
      const isScript = request.url === "/page.mjs";
      const page = `<!doctype html><link rel="icon" href="data:,"><script type="module" src="page.mjs"></script>`;
      response.setHeader("content-type", isScript ? "text/javascript" : "text/html");
      response.end(isScript ? `const PLACES = ${JSON.stringify(places)};\n${readFileSync(script, "utf8")}` : page);
    });
  });
  site.listen(0, "127.0.0.1");
  await once(site, "listening");
  context.after(() => {
    site.closeAllConnections();
    site.close();
  });
  const origin = `http://127.0.0.1:${String((site.address() as AddressInfo).port)}`;
  const { address, end } = await serving(folder, origin);
  ends.push(end);
  places = { server: `http://${address}`, nowhere: "http://127.0.0.1:1", token: TOKEN };
  const flags = ["--headless=new", "--no-sandbox", "--disable-gpu", `--user-data-dir=${join(folder, "profile")}`];
  ends.push(started("chromium", [...flags, origin]).end);
  assert.deepEqual(JSON.parse(await found), {
    ping: "Hello quire client!",
    ids: [53477, 53573],
    topics: ["college life"],
    price: "59.95",
    none: true,
    bought: ["bought", false, "bought", true],
    events: ["started", "put", "hello"],
    ttl: true,
    entries: ["hello"],
    another: "another_version",
    exists: "exists",
    listed: 4,
    numbers: ["5", "PURCHASE"],
    wrongToken: ["refused", "UNAUTHENTICATED"],
    refused: ["refused", "INVALID_ARGUMENT"],
    aborted: "left",
    unreachable: ["unreachable", "UNAVAILABLE"],
    unknown: "unknown",
  });
});
