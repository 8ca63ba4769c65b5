import { ID_MAX } from "../client.js";
import { UsageError } from "./lines.js";
import { escaped, table } from "./screen.js";

/** A command that a person can type. */
export type Command =
  | { readonly name: "help" }
  | { readonly name: "exit" }
  | { readonly name: "ping" }
  /** Near a text, or all if it is empty. */
  | { readonly name: "topics" | "search"; readonly text: string }
  | { readonly name: "lookup"; readonly id: number }
  | { readonly name: "buy"; readonly id: number; readonly quantity: number };

/** Names, arguments and what they do, in the order of the help. */
const COMMANDS = [
  ["ping", "", "tests the connection"],
  ["topics", "[text]", "the topics, or those near a text"],
  ["search", "<topic>", "books of a topic"],
  ["lookup", "<id>", "one book"],
  ["buy", "<id> [quantity]", "buys one copy, or as many as you say"],
  ["help", "", "this list; ? as well"],
  ["exit", "", "leaves; quit as well"],
] as const;

export const NAMES = COMMANDS.map(([name]) => name);
const ALIASES: Record<string, string> = { "?": "help", quit: "exit" };

export function isCommand(word: string): boolean {
  return Object.hasOwn(ALIASES, word) || NAMES.some((name) => name === word);
}

export function help(): string {
  const rows = COMMANDS.map(([name, words, does]) => [`${name} ${words}`.trimEnd(), does]);
  return table([{ head: "command" }, { head: "does" }], rows);
}

/** Reads a command of at least one word. */
export function readCommand([first = "", ...rest]: readonly string[]): Command {
  const name = Object.hasOwn(ALIASES, first) ? ALIASES[first] : first;
  const known = COMMANDS.find((command) => command[0] === name);
  if (!known) throw new UsageError(`there is no command '${escaped(first)}'; help lists them`);
  const [one, two] = rest;
  switch (known[0]) {
    case "topics":
      return { name: "topics", text: rest.join(" ") };
    case "search":
      if (one !== undefined) return { name: "search", text: rest.join(" ") };
      break;
    case "lookup":
      if (one !== undefined && rest.length === 1) return { name: "lookup", id: readId(one) };
      break;
    case "buy":
      if (one === undefined || rest.length > 2) break;
      return { name: "buy", id: readId(one), quantity: two === undefined ? 1 : readQuantity(two) };
    default:
      if (one === undefined) return { name: known[0] };
  }
  throw new UsageError(`usage: ${known[0]} ${known[1]}`.trimEnd());
}

function readId(text: string): number {
  const id = wholeNumber(text);
  if (id === undefined)
    throw new UsageError(`id is '${escaped(text)}'; it must be a whole number from 1 to ${String(ID_MAX)}`);
  return id;
}

function readQuantity(text: string): number {
  const quantity = wholeNumber(text);
  if (quantity === undefined) throw new UsageError(`quantity is '${escaped(text)}'; it must be a whole number from 1`);
  return quantity;
}

function wholeNumber(text: string): number | undefined {
  const number = /^\+?[0-9]+$/.test(text) ? Number(text) : 0;
  return number >= 1 && number <= ID_MAX ? number : undefined;
}
