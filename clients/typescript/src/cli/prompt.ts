import { chmodSync, mkdirSync, readFileSync, statSync, writeFileSync, appendFileSync } from "node:fs";
import { homedir } from "node:os";
import { isAbsolute, join } from "node:path";
import { createInterface } from "node:readline";

import type { Seen } from "./answers.js";
import { NAMES } from "./command.js";
import { isPlain } from "./screen.js";

const HISTORY_LINES_MAX = 1_000;
const HISTORY_BYTES_MAX = 4 << 20;
const LINE_BYTES_MAX = 1_000;
const SEEN_MAX = 10_000;
const CANDIDATES_MAX = 100;

/** Ids and topics that answers have shown, for completion; a bounded number of them. */
export class Words implements Seen {
  readonly #ids = new Set<string>();
  readonly #topics = new Set<string>();

  note(ids: readonly number[], topics: readonly string[]): void {
    for (const id of ids) if (this.#ids.size < SEEN_MAX) this.#ids.add(String(id));
    for (const topic of topics) if (this.#topics.size < SEEN_MAX && isPlain(topic)) this.#topics.add(topic);
  }

  /** Completions of the text up to the cursor, and the part of it that they replace. */
  complete(line: string): [string[], string] {
    const [, command, quote = "", typed = ""] = /^(\S+)\s+(["']?)(.*)$/s.exec(line) ?? [];
    if (command === undefined) return [NAMES.filter((name) => name.startsWith(line)), line];
    const known = { search: this.#topics, topics: this.#topics, lookup: this.#ids, buy: this.#ids }[command];
    const found = [...(known ?? [])].filter((word) => word.startsWith(typed)).sort();
    return [found.slice(0, CANDIDATES_MAX).map((word) => quote + word + quote), quote + typed];
  }
}

/** Asks for lines on a terminal until the end; `run` is given a signal that Ctrl-C sets off. */
export async function prompt(
  words: Words,
  run: (line: string, signal: AbortSignal) => Promise<boolean>,
): Promise<void> {
  const file = historyFile();
  const terminal = createInterface({
    input: process.stdin,
    output: process.stdout,
    prompt: "quire client> ",
    completer: (line: string) => words.complete(line),
    history: readHistory(file),
    historySize: HISTORY_LINES_MAX,
  });
  let running: AbortController | undefined;
  terminal.on("SIGINT", () => {
    if (running) running.abort();
    else if (terminal.line === "") terminal.close();
    else {
      // A half-typed line is given up.
      terminal.write(null, { ctrl: true, name: "e" });
      terminal.write(null, { ctrl: true, name: "u" });
    }
  });
  terminal.prompt();
  for await (const line of terminal) {
    if (file !== undefined && line.trim() !== "" && Buffer.byteLength(line) <= LINE_BYTES_MAX) append(file, line);
    running = new AbortController();
    if (!(await run(line, running.signal))) break;
    running = undefined;
    terminal.prompt();
  }
  terminal.close();
}

/** File of the history, as the XDG Base Directory Specification has it; undefined if there is no such folder. */
function historyFile(): string | undefined {
  try {
    const given = process.env["XDG_STATE_HOME"];
    const folder = join(given && isAbsolute(given) ? given : join(homedir(), ".local", "state"), "quire");
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    const file = join(folder, "typescript_client_history");
    appendFileSync(file, "", { mode: 0o600 });
    chmodSync(file, 0o600);
    return file;
  } catch {
    return undefined;
  }
}

/** Earlier lines, the newest first. The file is cut to them. */
function readHistory(file: string | undefined): string[] {
  try {
    if (file === undefined || statSync(file).size > HISTORY_BYTES_MAX) return [];
    const lines = readFileSync(file, "utf8").split("\n").filter(Boolean);
    const last = lines.slice(-HISTORY_LINES_MAX);
    if (last.length < lines.length) writeFileSync(file, `${last.join("\n")}\n`);
    return last.reverse();
  } catch {
    return [];
  }
}

function append(file: string, line: string): void {
  try {
    appendFileSync(file, `${line}\n`);
  } catch {
    // The line is in the history of this session all the same.
  }
}
