import assert from "node:assert/strict";
import { test } from "node:test";

import { parseAddresses } from "../src/address.js";
import { decimal } from "../src/index.js";

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
