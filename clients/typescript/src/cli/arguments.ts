import { X509Certificate, createPrivateKey } from "node:crypto";
import { readFileSync } from "node:fs";

import { USUAL_ADDRESS, parseAddresses } from "../address.js";
import { checkedToken } from "../caller.js";
import type { ConnectOptions } from "../index.js";
import { isCommand } from "./command.js";
import { UsageError } from "./lines.js";
import { escaped } from "./screen.js";

/** A command line that was understood. */
export interface Arguments {
  readonly json: boolean;
  readonly key: string | undefined;
  readonly address: string;
  readonly words: readonly string[];
  readonly connect: ConnectOptions;
  /** Flags that reach the same server again. */
  readonly again: readonly string[];
}

const VALUED = ["timeout", "retries", "key", "token", "ca", "certificate", "key-file"] as const;
const BARE = ["json", "help", "version"] as const;

type Valued = (typeof VALUED)[number];
type Bare = (typeof BARE)[number];

/** Reads the command line; gives "help" or "version" if it asks for that. */
export function readArguments(line: readonly string[], variables: NodeJS.ProcessEnv): Arguments | "help" | "version" {
  const { words, bare, values } = split(line);
  for (const asked of ["help", "version"] as const) if (bare.has(asked)) return asked;
  const timeoutMs = readTimeout(values.get("timeout"));
  const retries = readRetries(values.get("retries"));
  const key = values.get("key");
  const keyBytes = key === undefined ? 1 : Buffer.byteLength(key);
  if (keyBytes < 1 || keyBytes > 64) {
    throw new UsageError(`the idempotency key has ${String(keyBytes)} bytes; it must have 1 to 64`);
  }
  const [ca, certificate, keyFile] = [values.get("ca"), values.get("certificate"), values.get("key-file")];
  if ((certificate === undefined) !== (keyFile === undefined)) {
    throw new UsageError("--certificate and --key-file belong together; give both or neither");
  }
  const [address, ...command] = isAddress(words) ? words : [USUAL_ADDRESS, ...words];
  const speaksTls = readAddress(address ?? "");
  const trusted = ca ?? (speaksTls ? variables["SSL_CERT_FILE"] : undefined);
  const connect: ConnectOptions = {
    timeoutMs,
    retries,
    token: readToken(values.get("token") ?? variables["QUIRE_TOKEN"]),
    tls: false,
    ca: readPem(trusted, (pem) => new X509Certificate(pem)),
    certificate: readPem(certificate, (pem) => new X509Certificate(pem)),
    privateKey: readPem(keyFile, createPrivateKey),
  };
  const again = bare.has("json") ? ["--json"] : [];
  for (const [flag, file] of Object.entries({ "--ca": ca, "--certificate": certificate, "--key-file": keyFile })) {
    if (file !== undefined) again.push(flag, file);
  }
  return { json: bare.has("json"), key, address: address ?? "", words: command, connect, again };
}

/** Takes flags from among the words. */
function split(line: readonly string[]): { words: string[]; bare: Set<Bare>; values: Map<Valued, string> } {
  const [words, bare, values] = [[] as string[], new Set<Bare>(), new Map<Valued, string>()];
  for (let at = 0; at < line.length; at++) {
    const word = line[at] ?? "";
    if (word === "--") {
      words.push(...line.slice(at + 1));
      break;
    }
    if (!/^-[^0-9]/.test(word)) {
      words.push(word);
      continue;
    }
    const [flag = ""] = word.split("=", 1);
    const value = flag === word ? undefined : word.slice(flag.length + 1);
    const wantsNone = BARE.find((name) => `--${name}` === flag);
    const wantsOne = VALUED.find((name) => `--${name}` === flag);
    if (wantsNone) {
      if (value !== undefined) throw new UsageError(`${flag} takes no value`);
      bare.add(wantsNone);
    } else if (wantsOne) {
      const given = value ?? line[++at];
      if (given === undefined) throw new UsageError(`${flag} wants a value`);
      values.set(wantsOne, given);
    } else throw new UsageError(`there is no flag '${escaped(flag)}'; --help lists them`);
  }
  return { words, bare, values };
}

/** True if the first word is an address. A word that could be a host is one if a command follows. */
function isAddress([first, second]: readonly string[]): boolean {
  if (first === undefined || isCommand(first)) return false;
  return first === "localhost" || /[:.[]/.test(first) || (second !== undefined && isCommand(second));
}

/** True if a server at the address speaks TLS. */
function readAddress(text: string): boolean {
  try {
    return parseAddresses(text).some((address) => address.tls);
  } catch (error) {
    throw new UsageError(escaped((error as Error).message));
  }
}

function readTimeout(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const [, number, unit = "s"] = /^(\d+(?:\.\d*)?|\.\d+)(ms|s|min)?$/.exec(text) ?? [];
  const timeMs = Number(number) * ({ ms: 1, s: 1_000, min: 60_000 }[unit] ?? NaN);
  if (timeMs >= 1 && timeMs <= 86_400_000) return timeMs;
  throw new UsageError(`--timeout is '${escaped(text)}'; it must be a time from 1ms to 24h, as 500ms, 5s or 2min`);
}

function readRetries(text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  if (/^\+?\d+$/.test(text) && Number(text) <= 1_000_000) return Number(text);
  throw new UsageError(`--retries is '${escaped(text)}'; it must be a whole number from 0 to 1000000`);
}

function readToken(token: string | undefined): string | undefined {
  if (!token) return undefined;
  try {
    return checkedToken(token);
  } catch {
    throw new UsageError("--token has characters that no token has");
  }
}

/** The text of a file that holds what `parse` can read. */
function readPem(file: string | undefined, parse: (pem: string) => unknown): string | undefined {
  if (file === undefined) return undefined;
  try {
    const pem = readFileSync(file, "utf8");
    parse(pem);
    return pem;
  } catch {
    throw new UsageError(`cannot read ${escaped(file)}`);
  }
}
