/** The command line: a command, or those of standard input, or a prompt. */
import { X509Certificate, createPrivateKey } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

import { Command, CommanderError, InvalidArgumentError, Option } from "commander";

import { USUAL_ADDRESS } from "../address.js";
import { ID_MAX } from "../client.js";
import {
  type Book,
  type Client,
  type Code,
  Fault,
  OutcomeUnknown,
  Refused,
  type Reservation,
  connect,
  decimal,
  randomKey,
} from "../index.js";
import { Unreachable, reason } from "../faults.js";

/** Exit codes, from the best to the worst: several commands end with the highest of theirs. */
const EXIT = { done: 0, refused: 1, usage: 2, unreachable: 3, unknown: 4 } as const;
const DONE: Partial<Record<string, string>> = {
  buy: "bought",
  reserve: "reserved",
  confirm: "confirmed",
  release: "released",
};
const RETRIES_MAX = 1_000_000;
const HISTORY = join(
  process.env["XDG_STATE_HOME"] ?? join(homedir(), ".local", "state"),
  "quire",
  "client_history.node",
);
const HISTORY_LINES = 1_000;
const ABOUT = `Buys books of a Quire server, and asks what it has.

ADDRESS is HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between; ${USUAL_ADDRESS} if absent.
Without a command: a prompt on a terminal, else commands from standard input, one a line.`;
const CODES = `
Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome of a purchase or a
reservation is unknown. Commands from standard input end with the highest of theirs.`;

interface Flags {
  json?: true;
  timeout?: number;
  retries?: number;
  key?: string;
  token?: string;
  ca?: string;
  certificate?: string;
  keyFile?: string;
}

/** The server that the commands ask, and how. */
interface Shop {
  readonly client: Client;
  readonly address: string;
  readonly flags: Flags;
}

/** Ends the command under way, as Ctrl-C does. */
let stop = new AbortController();
let exit: number = EXIT.done;

async function main(): Promise<void> {
  const program = new Command("quire-client").usage("[options] [ADDRESS] <command>").description(ABOUT);
  program.version("quire-client 0.1.0", "--version").argument("[words...]").exitOverride();
  program.option("--json", "print each answer as one line of JSON");
  program.option("--timeout <time>", "longest time for a call, as 500ms, 5s or 2min", milliseconds);
  program.option("--retries <times>", "how often to send again; 3 if absent", (text) => whole(text, 0, RETRIES_MAX));
  program.option("--key <text>", "makes a purchase or a reservation happen once; random if absent", keyOf);
  program.addOption(new Option("--token <token>", "for a server that asks for one").env("QUIRE_TOKEN"));
  program.option("--ca <file>", "certificates in PEM to trust, instead of the system's");
  program.option("--certificate <file>", "certificate in PEM to show to the server");
  program.option("--key-file <file>", "private key of --certificate");
  program.addHelpText("after", () => listed() + CODES);
  program.action(async (words: string[], flags: Flags) => {
    const names = commands(undefined).commands.map((command) => command.name());
    const [first = "", second] = words;
    const isAddress = !names.includes(first) && (second !== undefined || /[:.]|^localhost$/.test(first));
    const address = (isAddress ? words.shift() : undefined) ?? USUAL_ADDRESS;
    const shop = open(program, address, flags);
    process.on("SIGINT", () => {
      stop.abort();
    });
    if (words.length === 0) await talk(shop, names);
    else await commands(shop).parseAsync(words, { from: "user" });
    shop.client.close();
  });
  await understood(program.parseAsync());
}

/** Waits for a command; one that is not understood has been reported. */
async function understood(command: Promise<unknown>): Promise<void> {
  try {
    await command;
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode !== 0) worst(EXIT.usage);
  }
}

function open(program: Command, address: string, flags: Flags): Shop {
  const { timeout: timeoutMs, retries, token, certificate, keyFile } = flags;
  const ca = flags.ca ?? (address.includes("https://") ? process.env["SSL_CERT_FILE"] : undefined);
  try {
    const client = connect(address, {
      timeoutMs,
      retries,
      token: token === "" ? undefined : token,
      tls: false,
      ca: pem(ca, (text) => new X509Certificate(text)),
      certificate: pem(certificate, (text) => new X509Certificate(text)),
      privateKey: pem(keyFile, createPrivateKey),
    });
    return { client, address, flags };
  } catch (error) {
    return program.error(plain((error as Error).message), { exitCode: EXIT.usage });
  }
}

/** The text of a file that holds what `parse` can read. */
function pem(file: string | undefined, parse: (text: string) => unknown): string | undefined {
  if (file === undefined) return undefined;
  const text = readFileSync(file, "utf8");
  parse(text);
  return text;
}

/** Runs the lines of a pipe or a prompt. */
async function talk(shop: Shop, names: readonly string[]): Promise<void> {
  const terminal = process.stdin.isTTY && process.stdout.isTTY;
  const complete = (line: string): [string[], string] => [names.filter((name) => name.startsWith(line)), line];
  const lines = createInterface({
    input: process.stdin,
    ...(terminal && { output: process.stdout, prompt: "quire client> ", completer: complete, history: kept() }),
    terminal,
    historySize: HISTORY_LINES,
    crlfDelay: Infinity,
  });
  lines.on("history", keep).on("SIGINT", () => {
    stop.abort();
    lines.write(null, { ctrl: true, name: "u" });
  });
  if (terminal) lines.prompt();
  for await (const line of lines) {
    stop = new AbortController();
    const words = line.split(/\s+/).filter(Boolean);
    if (words[0] === "exit" && words.length === 1) break;
    if (words.length > 0) await understood(commands(shop).parseAsync(words, { from: "user" }));
    if (stop.signal.aborted && !terminal) break;
    if (terminal) lines.prompt();
  }
  lines.close();
}

/** Earlier lines of the prompt, the latest first. */
function kept(): string[] {
  return existsSync(HISTORY) ? readFileSync(HISTORY, "utf8").split("\n") : [];
}

function keep(history: string[]): void {
  mkdirSync(dirname(HISTORY), { recursive: true, mode: 0o700 });
  writeFileSync(HISTORY, history.join("\n"), { mode: 0o600 });
}

/** The commands of the store; without one, for their names and help. */
function commands(shop: Shop | undefined): Command {
  const inner = new Command("quire-client")
    .usage("<command>")
    .exitOverride()
    .configureHelp({ showGlobalOptions: false });
  const add = (usage: string, does: string, run: (shop: Shop, ...words: never[]) => Promise<number>): Command =>
    inner
      .command(usage)
      .description(does)
      .exitOverride()
      .action(async (...words: unknown[]) => {
        if (shop) worst(await run(shop, ...(words as never[])).catch((error: unknown) => failed(shop, error)));
      });
  add("ping", "tests the connection", ping);
  add("topics [text...]", "the topics, or those near a text", topics);
  add("search <topic...>", "books of a topic", search);
  add("lookup", "one book", lookup).argument("<id>", "", idOf);
  add("buy", "buys one copy, or as many as you say", buy)
    .argument("<id>", "", idOf)
    .argument("[quantity]", "", idOf, 1);
  add("receipt", "the receipt of a purchase that was made with a key", receipt)
    .argument("<number>", "", (text) => whole(text, 1, Number.MAX_SAFE_INTEGER))
    .argument("<key>", "", keyOf);
  add("reserve", "holds copies, for 900 seconds if you name none", reserve)
    .argument("<id>", "", idOf)
    .argument("[quantity]", "", idOf, 1)
    .argument("[seconds]", "", idOf);
  add("confirm", "buys what is held under a key", confirm).argument("<key>", "", keyOf);
  add("release", "gives back what is held under a key", release).argument("<key>", "", keyOf);
  inner.helpCommand(false);
  add("help", "this list", () => {
    process.stdout.write(listed());
    return Promise.resolve(EXIT.done);
  });
  add("exit", "leaves", () => Promise.resolve(EXIT.done));
  return inner;
}

function listed(): string {
  const text = commands(undefined).helpInformation();
  return `\n${text.slice(text.indexOf("Commands:"))}`;
}

async function ping(shop: Shop): Promise<number> {
  const began = performance.now();
  const message = await shop.client.ping({ signal: stop.signal });
  const tookMs = performance.now() - began;
  const answer = { success: true, message, microseconds: Math.round(tookMs * 1e3) };
  return show(shop, answer, `${plain(message)} (${tookMs.toFixed(2)} ms)`);
}

async function topics(shop: Shop, words: string[]): Promise<number> {
  const found = [];
  for await (const topic of shop.client.topics({ near: words.join(" "), signal: stop.signal })) found.push(topic);
  const lines = found.map(({ name, books }) => `${books.toString().padStart(8)}  ${plain(name)}`);
  return show(shop, { success: true, topics: found }, lines.join("\n") || "there is no such topic");
}

async function search(shop: Shop, words: string[]): Promise<number> {
  const [topic, books, near] = [words.join(" "), [] as Book[], [] as string[]];
  for await (const book of shop.client.search(topic, { signal: stop.signal })) books.push(book);
  if (books.length > 0) {
    return show(shop, { success: true, message: "", books: books.map(wire) }, books.map(line).join("\n"));
  }
  try {
    for await (const { name } of shop.client.topics({ near: topic, signal: stop.signal })) near.push(name);
  } catch {
    // A server that cannot say which topics are near.
  }
  const message = `no book has the topic '${topic}'`;
  const answer = { success: true, message, books, ...(near.length > 0 && { near }) };
  return show(shop, answer, plain([message, ...near].join("; near it: ")));
}

async function lookup(shop: Shop, id: number): Promise<number> {
  const book = await shop.client.lookup(id, { signal: stop.signal });
  if (book) return show(shop, { success: true, message: "", book: wire(book) }, line(book));
  const message = `there is no book ${String(id)}`;
  return show(shop, { success: false, message, book: null }, message, EXIT.refused);
}

async function buy(shop: Shop, id: number, quantity: number): Promise<number> {
  const key = shop.flags.key ?? randomKey();
  try {
    const bought = await shop.client.buy(id, { quantity, key, signal: stop.signal });
    if (bought.outcome === "unknown") return unknown(shop, bought.code, key, ["buy", ...copies(id, quantity)]);
    const { message, outcome, replayed } = bought;
    const success = outcome === "bought";
    const answer = {
      success,
      message,
      key,
      outcome: `BUY_OUTCOME_${outcome.toUpperCase()}`,
      purchase_number: success ? bought.number : 0,
      replayed,
      stock_left: ("stockLeft" in bought ? bought.stockLeft : undefined) ?? null,
    };
    const number = success ? ` (purchase ${bought.number.toString()})` : "";
    const again = replayed ? "; this key was sent before, nothing was bought again" : "";
    return show(shop, answer, plain(message) + number + again, success ? EXIT.done : EXIT.refused);
  } catch (error) {
    return failed(shop, error, { key });
  }
}

async function receipt(shop: Shop, number: number, key: string): Promise<number> {
  const found = await shop.client.receipt(BigInt(number), key, { signal: stop.signal });
  if (found) {
    const answer = { success: true, message: "", receipt: found.text, log_key: found.logKey };
    return show(shop, answer, found.text.replace(/\n$/, "").split("\n").map(plain).join("\n"));
  }
  const message = `there is no purchase ${String(number)} with this key`;
  return show(shop, { success: false, message, receipt: null, log_key: null }, message, EXIT.refused);
}

async function reserve(shop: Shop, id: number, quantity: number, seconds?: number): Promise<number> {
  const key = shop.flags.key ?? randomKey();
  const call = shop.client.reserve(id, { quantity, seconds, key, signal: stop.signal });
  return reserved(shop, key, ["reserve", ...copies(id, quantity, seconds)], call);
}

async function confirm(shop: Shop, key: string): Promise<number> {
  return reserved(shop, key, ["confirm", key], shop.client.confirm(key, { signal: stop.signal }));
}

async function release(shop: Shop, key: string): Promise<number> {
  return reserved(shop, key, ["release", key], shop.client.release(key, { signal: stop.signal }));
}

async function reserved(shop: Shop, key: string, words: string[], call: Promise<Reservation>): Promise<number> {
  try {
    const done = await call;
    if (done.outcome === "unknown") return unknown(shop, done.code, key, words);
    const { success, message, outcome, id, quantity, number, replayed, stockLeft, until } = done;
    const state = { id, quantity, number, replayed, stock_left: stockLeft ?? null, until_ms: until?.getTime() ?? 0 };
    const answer = { success, message, key, outcome: `RESERVATION_OUTCOME_${outcome.toUpperCase()}`, ...state };
    const bought = outcome === "bought" ? ` (purchase ${number.toString()})` : "";
    const again = replayed && outcome !== "expired" ? "; an earlier call did it" : "";
    const held = outcome === "held" ? `\nheld until ${until?.toUTCString() ?? "?"} under the key ${plain(key)}` : "";
    return show(shop, answer, plain(message) + bought + again + held, success ? EXIT.done : EXIT.refused);
  } catch (error) {
    return failed(shop, error, { key });
  }
}

/** The arguments of a purchase or a reservation, without what is usual. */
function copies(id: number, quantity: number, seconds?: number): string[] {
  if (seconds !== undefined) return [id, quantity, seconds].map(String);
  return (quantity === 1 ? [id] : [id, quantity]).map(String);
}

/** Says how to ask for the outcome of a command. */
function unknown(shop: Shop, status: Code, key: string, asked: readonly string[]): number {
  const { json, ca, certificate, keyFile } = shop.flags;
  const files = Object.entries({ "--ca": ca, "--certificate": certificate, "--key-file": keyFile });
  const again = [
    ...(json ? ["--json"] : []),
    ...files.flatMap(([flag, file]) => (file === undefined ? [] : [flag, file])),
  ];
  const [name = "", subject = ""] = asked;
  const named = name === "buy" || name === "reserve" ? ["--key", key] : [];
  const command = ["quire-client", ...named, ...again, shop.address, ...asked].map(quoted).join(" ");
  const what = `${named.length > 0 ? "book" : "the reservation"} ${plain(subject)} was ${DONE[name] ?? "done"}`;
  const message = `it is not known whether ${what}: ${reason(status)}`;
  const text = `${message}\nthis asks for its outcome and does nothing twice:\n    ${plain(command)}`;
  return show(shop, { success: false, message, key, command, outcome: "UNKNOWN", status }, text, EXIT.unknown, true);
}

/** Shows why a call has no outcome. */
function failed(shop: Shop, error: unknown, more: { key?: string } = {}): number {
  const fault =
    error === stop.signal.reason ? new Unreachable(shop.address, "CANCELLED", true, reason("CANCELLED")) : error;
  if (!(fault instanceof Fault) || fault instanceof OutcomeUnknown) throw fault;
  const { code: status, message } = fault;
  const [code, outcome] = fault instanceof Refused ? [EXIT.refused, "REFUSED"] : [EXIT.unreachable, "UNREACHABLE"];
  return show(shop, { success: false, message, outcome, status, ...more }, plain(message), code, true);
}

function show({ flags }: Shop, answer: object, text: string, code: number = EXIT.done, isFault = false): number {
  // Prices and counts are far below 2^53.
  const exact = (_: string, value: unknown): unknown => (typeof value === "bigint" ? Number(value) : value);
  (isFault && !flags.json ? process.stderr : process.stdout).write(
    `${flags.json ? JSON.stringify(answer, exact) : text}\n`,
  );
  return code;
}

function worst(code: number): void {
  exit = Math.max(exit, code);
}

/** The text of others, without what acts on a terminal. */
const plain = (text: string): string => text.replace(/\p{C}/gu, "\u{fffd}");

function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

function line({ id, title, topic, stock, priceCents }: Book): string {
  return `${String(id).padStart(10)}  ${decimal(priceCents).padStart(9)}  ${String(stock).padStart(6)} left  ${plain(title)} (${plain(topic)})`;
}

function wire({ id, title, topic, stock, held, priceCents }: Book): object {
  return { id, title, topic, stock, held, price_cents: priceCents };
}

function whole(text: string, least: number, most: number): number {
  const number = /^\d+$/.test(text) ? Number(text) : NaN;
  if (number >= least && number <= most) return number;
  throw new InvalidArgumentError(`It must be a whole number from ${String(least)} to ${String(most)}.`);
}

function idOf(text: string): number {
  return whole(text, 1, ID_MAX);
}

function keyOf(text: string): string {
  const bytes = Buffer.byteLength(text);
  if (bytes >= 1 && bytes <= 64) return text;
  throw new InvalidArgumentError("It must have 1 to 64 bytes.");
}

function milliseconds(text: string): number {
  const [, number, unit = "s"] = /^(\d+(?:\.\d+)?)(ms|s|min)?$/.exec(text) ?? [];
  const timeMs = Number(number) * ({ ms: 1, s: 1_000, min: 60_000 }[unit] ?? NaN);
  if (timeMs >= 1 && timeMs <= 86_400_000) return timeMs;
  throw new InvalidArgumentError("It must be a time from 1ms to 24h, as 500ms, 5s or 2min.");
}

// A reader that has gone, as `head`, wants no more.
process.stdout.on("error", () => process.exit());
// No process.exit here: what is written to a pipe may still be on its way.
void main().then(() => (process.exitCode = exit));
