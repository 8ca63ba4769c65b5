/** The command line: a command, or those of standard input, or a prompt. */
import { X509Certificate, createPrivateKey } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

import { Command, CommanderError, InvalidArgumentError, Option } from "commander";

import { USUAL_ADDRESS } from "../address.js";
import { ID_MAX } from "../client.js";
import * as quire from "../index.js";

/** Exit codes, from the best to the worst: several commands end with the highest of theirs. */
const EXIT = { done: 0, refused: 1, usage: 2, unreachable: 3, unknown: 4 } as const;
const STATE = process.env["XDG_STATE_HOME"] ?? "";
const HISTORY = join(STATE === "" ? join(homedir(), ".local", "state") : STATE, "quire", "client_history.node");
const ABOUT = `Buys books of a Quire server, and asks what it has.

ADDRESS is HOST:PORT, a host, :PORT, http://… or https://…, or several with commas between; ${USUAL_ADDRESS} if absent.
Without a command: a prompt on a terminal, else commands from standard input, one a line.`;
const CODES = `
Exit codes: 0 done; 1 refused by the store; 2 usage; 3 unreachable, nothing was done; 4 the outcome of a purchase or a
reservation is unknown. Commands from standard input end with the highest of theirs.`;

interface Flags extends Partial<Record<"key" | "token" | "ca" | "certificate" | "keyFile", string>> {
  json?: true;
  timeout?: number;
  retries?: number;
}

/** The server that the commands ask, and how. */
interface Shop {
  readonly client: quire.Client;
  readonly address: string;
  readonly flags: Flags;
}

type Client = quire.Client;
/** What the store says, as JSON has it, and its text. */
type Answer = [answer: { success: boolean; [field: string]: unknown }, text: string];
/** A command's call; `key` is that of what it buys or reserves. */
type Call = (client: Client, key: string, ...words: never[]) => Promise<Answer>;

/** Ends the command under way, as Ctrl-C does. */
let stop = new AbortController();

async function main(): Promise<void> {
  const program = new Command("quire-client").usage("[options] [ADDRESS] <command>").description(ABOUT);
  program.version("quire-client 0.1.0", "--version").argument("[words...]").exitOverride();
  program.option("--json", "print each answer as one line of JSON");
  program.option("--timeout <time>", "longest time for a call, as 500ms, 5s or 2min", milliseconds);
  program.option("--retries <times>", "how often to send again; 3 if absent", (text) => whole(text, 0, 1_000_000));
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
    const [name, ...rest] = words;
    // The flags have been read.
    if (name !== undefined) await commands(shop).parseAsync([name, "--", ...rest], { from: "user" });
    else await talk(shop);
    shop.client.close();
  });
  await understood(program.parseAsync());
}

/** Waits for a command; one that is not understood has been reported. */
async function understood(command: Promise<unknown>): Promise<void> {
  await command.catch((error: unknown) => {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode !== 0) worst(EXIT.usage);
  });
}

function open(program: Command, address: string, flags: Flags): Shop {
  const { timeout: timeoutMs, retries, token, certificate, keyFile } = flags;
  const ca = flags.ca ?? (address.includes("https://") ? process.env["SSL_CERT_FILE"] : undefined);
  try {
    const client = quire.connect(address, {
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
async function talk(shop: Shop): Promise<void> {
  const terminal = process.stdin.isTTY && process.stdout.isTTY;
  const kept = terminal && existsSync(HISTORY) ? readFileSync(HISTORY, "utf8").split("\n") : [];
  const lines = createInterface({
    input: process.stdin,
    ...(terminal && { output: process.stdout, prompt: "quire client> ", history: kept }),
    terminal,
    historySize: 1_000,
    crlfDelay: Infinity,
  });
  lines.on("history", (history: string[]) => {
    mkdirSync(dirname(HISTORY), { recursive: true, mode: 0o700 });
    writeFileSync(HISTORY, history.join("\n"), { mode: 0o600 });
  });
  lines.on("SIGINT", () => {
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

/** The commands of the store; without one, for their names and help. */
function commands(shop: Shop | undefined): Command {
  const inner = new Command("quire-client").usage("<command>").exitOverride();
  type Argument = [name: string, parse: (text: string) => unknown, usual?: unknown];
  const add = (usage: string, does: string, call: Call, ...args: Argument[]): void => {
    const command = inner.command(usage).description(does).exitOverride();
    for (const [name, parse, usual] of args) command.argument(name, "", parse, usual);
    command.action(async (...words: unknown[]) => {
      if (shop) await perform(shop, inner.args, (key) => call(shop.client, key, ...(words as never[])));
    });
  };
  add("ping", "tests the connection", ping);
  add("topics [text...]", "the topics, or those near a text", topics);
  add("search <topic...>", "books of a topic", search);
  const [id, copies, key]: [Argument, Argument, Argument] = [
    ["<id>", idOf],
    ["[quantity]", idOf, 1],
    ["<key>", keyOf],
  ];
  add("lookup", "one book", lookup, id);
  add("buy", "buys one copy, or as many as you say", buy, id, copies);
  add("receipt", "the receipt of a purchase that was made with a key", receipt, ["<number>", numberOf], key);
  add("reserve", "holds copies, for 900 seconds if you name none", reserve, id, copies, ["[seconds]", idOf]);
  add("confirm", "buys what is held under a key", confirm, key);
  add("release", "gives back what is held under a key", release, key);
  inner.helpCommand(false);
  const list = (): void => void process.stdout.write(listed());
  inner.command("help").description("this list").exitOverride().action(list);
  inner.command("exit").description("leaves").exitOverride();
  return inner;
}

const listed = (): string =>
  commands(undefined)
    .helpInformation()
    .replace(/^.*?(?=\nCommands:)/s, "");

/** Makes the call of a command, and prints its answer or why there is none. */
async function perform(shop: Shop, asked: readonly string[], call: (key: string) => Promise<Answer>): Promise<void> {
  const [name = "", subject] = asked;
  const chosen = name === "buy" || name === "reserve" ? (shop.flags.key ?? quire.randomKey()) : undefined;
  const key = name === "confirm" || name === "release" ? subject : chosen;
  try {
    const [answer, text] = await call(key ?? "");
    print(shop, process.stdout, answer, text);
    worst(answer.success ? EXIT.done : EXIT.refused);
  } catch (error) {
    const interrupted = new quire.Unreachable("CANCELLED", "interrupted, and nothing was done", true);
    const fault = error === stop.signal.reason ? interrupted : error;
    if (!(fault instanceof quire.Fault)) throw error;
    const outcome = fault.name.replace("Outcome", "").toLowerCase() as keyof typeof EXIT;
    const answer = { success: false, message: fault.message, key, outcome: outcome.toUpperCase(), status: fault.code };
    worst(EXIT[outcome]);
    if (outcome !== "unknown") {
      print(shop, process.stderr, answer, plain(fault.message));
      return;
    }
    const message = `it is not known whether '${asked.join(" ")}' was done: ${fault.message}`;
    const command = again(shop, chosen, asked);
    const text = `${plain(message)}\nthis asks, and does nothing twice:\n    ${plain(command)}`;
    print(shop, process.stderr, { ...answer, message, command }, text);
  }
}

/** The command line that sends a command again. */
function again({ address, flags }: Shop, key: string | undefined, [name = "", ...words]: readonly string[]): string {
  const { json, ca, certificate, keyFile } = flags;
  const flag = (name: string, value: string | undefined): string[] => (value === undefined ? [] : [name, value]);
  const files = [...flag("--ca", ca), ...flag("--certificate", certificate), ...flag("--key-file", keyFile)];
  const end = words[0]?.startsWith("-") ? ["--"] : [];
  const command = ["quire-client", ...flag("--key", key), ...(json ? ["--json"] : []), ...files, address, name, ...end];
  const quoted = (word: string): string =>
    /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
  return [...command, ...words].map(quoted).join(" ");
}

function print({ flags }: Shop, out: NodeJS.WriteStream, answer: object, text: string): void {
  // Prices, counts and times are below 2^53.
  const exact = (_: string, value: unknown): unknown => (typeof value === "bigint" ? Number(value) : value);
  if (flags.json) process.stdout.write(`${JSON.stringify(answer, exact)}\n`);
  else out.write(`${text}\n`);
}

async function ping(client: Client): Promise<Answer> {
  const began = performance.now();
  const message = await client.ping({ signal: stop.signal });
  const tookMs = performance.now() - began;
  const answer = { success: true, message, microseconds: Math.round(tookMs * 1e3) };
  return [answer, `${plain(message)} (${tookMs.toFixed(2)} ms)`];
}

async function topics(client: Client, _: string, words: string[]): Promise<Answer> {
  const found = [];
  for await (const topic of client.topics({ near: words.join(" "), signal: stop.signal })) found.push(topic);
  const lines = found.map(({ name, books }) => `${books.toString().padStart(8)}  ${plain(name)}`);
  return [{ success: true, topics: found }, lines.join("\n") || "there is no such topic"];
}

async function search(client: Client, _: string, words: string[]): Promise<Answer> {
  const [topic, books, near] = [words.join(" "), [] as quire.Book[], [] as string[]];
  for await (const book of client.search(topic, { signal: stop.signal })) books.push(book);
  if (books.length > 0) return [{ success: true, message: "", books: books.map(wire) }, books.map(line).join("\n")];
  try {
    for await (const { name } of client.topics({ near: topic, signal: stop.signal })) near.push(name);
  } catch {
    // A server that cannot say which topics are near.
  }
  const message = `no book has the topic '${topic}'`;
  const answer = { success: true, message, books, ...(near.length > 0 && { near }) };
  return [answer, plain(near.length > 0 ? `${message}; near it: ${near.join(", ")}` : message)];
}

async function lookup(client: Client, _: string, id: number): Promise<Answer> {
  const book = await client.lookup(id, { signal: stop.signal });
  const message = book ? "" : `there is no book ${String(id)}`;
  return [{ success: book !== undefined, message, book: book ? wire(book) : null }, book ? line(book) : message];
}

async function receipt(client: Client, _: string, number: number, key: string): Promise<Answer> {
  const found = await client.receipt(BigInt(number), key, { signal: stop.signal });
  const message = found ? "" : `there is no purchase ${String(number)} with this key`;
  const answer = {
    success: found !== undefined,
    message,
    receipt: found?.text ?? null,
    log_key: found?.logKey ?? null,
  };
  return [answer, found ? found.text.replace(/\n$/, "").split("\n").map(plain).join("\n") : message];
}

async function buy(client: Client, key: string, id: number, quantity: number): Promise<Answer> {
  const bought = await client.buy(id, { quantity, key, signal: stop.signal });
  if (bought.outcome === "unknown") throw bought.fault;
  const { message, outcome, replayed } = bought;
  const number = outcome === "bought" ? bought.number : 0n;
  const stock_left = bought.stockLeft ?? null;
  const reason = outcome === "not_bought" ? "UNSPECIFIED" : outcome.toUpperCase();
  const state = { outcome: `BUY_OUTCOME_${reason}`, purchase_number: number, replayed, stock_left };
  const again = replayed ? "; the answer to an earlier call" : "";
  const text = plain(message) + (number === 0n ? "" : ` (purchase ${number.toString()})`) + again;
  return [{ success: outcome === "bought", message, key, ...state }, text];
}

async function reserve(client: Client, key: string, id: number, quantity: number, seconds?: number): Promise<Answer> {
  return reserved(await client.reserve(id, { quantity, seconds, key, signal: stop.signal }));
}

async function confirm(client: Client, key: string): Promise<Answer> {
  return reserved(await client.confirm(key, { signal: stop.signal }));
}

async function release(client: Client, key: string): Promise<Answer> {
  return reserved(await client.release(key, { signal: stop.signal }));
}

function reserved(done: quire.Reservation): Answer {
  if (done.outcome === "unknown") throw done.fault;
  const { success, message, key, outcome, id, quantity, number, replayed, stockLeft, untilMs } = done;
  const state = { id, quantity, number, replayed, stock_left: stockLeft ?? null, until_ms: untilMs ?? 0 };
  // The last time that a Date has stands for later ones.
  const until = new Date(Math.min(Number(untilMs), 8.64e15)).toUTCString();
  const bought = outcome === "bought" ? ` (purchase ${number.toString()})` : "";
  const again = replayed && outcome !== "expired" ? "; the answer to an earlier call" : "";
  const held = outcome === "held" ? `\nheld until ${until} under the key ${plain(key)}` : "";
  const answer = { success, message, key, outcome: `RESERVATION_OUTCOME_${outcome.toUpperCase()}`, ...state };
  return [answer, plain(message) + bought + again + held];
}

const worst = (code: number): void => void (process.exitCode = Math.max(Number(process.exitCode ?? 0), code));

/** The text of others, without what acts on a terminal. */
const plain = (text: string): string => text.replace(/\p{C}/gu, "\u{fffd}");

function line({ id, title, topic, stock, priceCents }: quire.Book): string {
  return `${String(id).padStart(10)}  ${quire.decimal(priceCents).padStart(9)}  ${String(stock).padStart(6)} left  ${plain(title)} (${plain(topic)})`;
}

function wire({ id, title, topic, stock, held, priceCents }: quire.Book): object {
  return { id, title, topic, stock, held, price_cents: priceCents };
}

function whole(text: string, least: number, most: number): number {
  const number = /^\d+$/.test(text) ? Number(text) : NaN;
  if (number >= least && number <= most) return number;
  throw new InvalidArgumentError(`It must be a whole number from ${String(least)} to ${String(most)}.`);
}

const idOf = (text: string): number => whole(text, 1, ID_MAX);
const numberOf = (text: string): number => whole(text, 1, Number.MAX_SAFE_INTEGER);

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
// No process.exit: what is written to a pipe may still be on its way.
void main();
