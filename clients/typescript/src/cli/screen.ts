import { eastAsianWidth } from "get-east-asian-width";

/** Characters that act on a terminal instead of being shown, or that are not seen. */
const ACTS =
  /[\p{Cc}\u{61c}\u{200b}\u{200e}\u{200f}\u{2028}-\u{202e}\u{2060}-\u{206f}\u{feff}\u{fff9}-\u{fffb}\u{e0000}-\u{e007f}]/gu;
const NAMED: Record<string, string> = { "\t": "\\t", "\r": "\\r", "\n": "\\n" };

/** True if a terminal shows the text as it is. */
export function isPlain(text: string): boolean {
  return text.search(ACTS) < 0;
}

/** The text of others in one line that a terminal shows and does not obey. */
export function escaped(text: string): string {
  return text.replace(ACTS, (one) => NAMED[one] ?? `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`);
}

/** Undefined fields are left out of an object. */
export type Json = string | number | bigint | boolean | null | undefined | Json[] | { [name: string]: Json };

/** One line of JSON with names in alphabetical order, which a terminal does not obey either. */
export function json(value: Json): string {
  return rawJson(value).replace(ACTS, (one) => {
    let units = "";
    for (let at = 0; at < one.length; at++) units += `\\u${one.charCodeAt(at).toString(16).padStart(4, "0")}`;
    return units;
  });
}

function rawJson(value: Json): string {
  if (value instanceof Array) return `[${value.map(rawJson).join(",")}]`;
  if (typeof value === "bigint") return value.toString();
  if (typeof value !== "object" || value === null) return JSON.stringify(value);
  const present = Object.entries(value).filter(([, field]) => field !== undefined);
  const fields = present.sort(([one], [other]) => (one < other ? -1 : 1));
  return `{${fields.map(([name, field]) => `${JSON.stringify(name)}:${rawJson(field)}`).join(",")}}`;
}

/** A column's head, and whether it holds numbers, which stand to the right. */
export interface Column {
  readonly head: string;
  readonly numbers?: boolean;
}

/** Rows below heads, in columns as wide as their widest cell. */
export function table(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  const lines = [columns.map((column) => column.head), ...rows.map((row) => row.map(escaped))];
  const widths = columns.map((_, at) => lines.reduce((most, line) => Math.max(most, width(line[at] ?? "")), 0));
  const padded = (cell: string, at: number): string => {
    const blanks = " ".repeat((widths[at] ?? 0) - width(cell));
    return columns[at]?.numbers ? blanks + cell : cell + blanks;
  };
  return lines.map((line) => line.map(padded).join("  ").trimEnd()).join("\n");
}

/** Columns that a text takes on a terminal. */
function width(text: string): number {
  let columns = 0;
  for (const one of text) {
    if (one < "\x7f") columns++;
    else if (!/[\p{Mn}\p{Me}\u{200d}]/u.test(one)) columns += eastAsianWidth(one.codePointAt(0) ?? 0);
  }
  return columns;
}

/** Words of a command line, quoted for a shell. */
export function quoted(words: readonly string[]): string {
  return words.map(quotedWord).join(" ");
}

function quotedWord(word: string): string {
  if (!isPlain(word)) return escaped(word);
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}
