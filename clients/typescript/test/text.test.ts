import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test } from "node:test";

import { parseAddresses } from "../src/address.js";
import { UsageError, linesOf, wordsOf } from "../src/cli/lines.js";
import { escaped, json, quoted, table } from "../src/cli/screen.js";
import { decimal } from "../src/index.js";

test("what a terminal obeys is escaped, in text and in JSON", () => {
  assert.equal(escaped("a\r\n\tb\u001b\u202e\u{e0041} é😈"), "a\\r\\n\\tb\\u{1b}\\u{202e}\\u{e0041} é😈");
  const value = { b: '\u001b\u{e0041}"\\\b', a: [1n, null, true], c: undefined };
  assert.equal(json(value), '{"a":[1,null,true],"b":"\\u001b\\udb40\\udc41\\"\\\\\\b"}');
});

test("columns are as wide as what is seen in them", () => {
  const rows = [
    ["1", "日本"],
    ["20", "e\u0301"],
  ];
  assert.equal(
    table([{ head: "id", numbers: true }, { head: "t" }, { head: "x" }], rows),
    "id  t     x\n 1  日本\n20  e\u0301",
  );
});

test("words are quoted for a shell only if they must be", () => {
  assert.equal(quoted(["a-b:1", "", "it's", "a\u001bb"]), `a-b:1 '' 'it'"'"'s' a\\u{1b}b`);
});

test("quotes keep blanks, and are apostrophes within words", () => {
  for (const [line, words] of [
    [" search  distributed\u0085systems\r", ["search", "distributed", "systems"]],
    ['search "two  blanks" end', ["search", "two  blanks", "end"]],
    ["search 'it's mine'", ["search", "it's mine"]],
    ['search children\'s ""', ["search", "children's", ""]],
    ["  ", []],
  ] as const) {
    assert.deepEqual(wordsOf(line), words, line);
  }
  assert.throws(() => wordsOf('search "open'), /the quote " is not closed/);
});

test("a line from a pipe is bounded, and text", async () => {
  const chunks = ["a\n\nb", "c\n", "x".repeat(65_536), "\n", "x".repeat(65_537), "\n", Buffer.from([0xff]), "\nend"];
  const lines = [];
  for await (const line of linesOf(Readable.from(chunks.map((chunk) => Buffer.from(chunk))))) {
    lines.push(line instanceof UsageError ? line.message : line.length > 10 ? line.length : line);
  }
  const wanted = ["a", "", "bc", 65_536, "a line is longer than 65536 bytes; it must be one command"];
  assert.deepEqual(lines, [...wanted, "a line is not UTF-8; it must be one command", "end"]);
});

test("an address is read, or answered with one that can be", () => {
  for (const [text, authority] of [
    [":80", "127.0.0.1:80"],
    ["shop", "shop:10086"],
    ["https://[::1]/", "[::1]:10086"],
  ] as const) {
    assert.equal(parseAddresses(text)[0]?.authority, authority);
  }
  for (const text of ["", "::1", "a:b", "a:0", "ftp://a", "a/b", "a:1,"])
    assert.throws(() => parseAddresses(text), RangeError);
});

test("prices have two decimals", () => {
  assert.deepEqual([5n, 4200n, -199n].map(decimal), ["0.05", "42.00", "-1.99"]);
});
