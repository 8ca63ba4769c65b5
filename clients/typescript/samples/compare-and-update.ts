// Updates an entry only if it has the version that was read, so that no update overwrites another unseen.
import { connect } from "quire-client";

using store = connect(process.argv[2]);
const created = await store.create("counter", "1");
if (created.outcome === "exists") throw new Error("counter is there already");
console.log("created 1");

const read = await store.get("counter");
for (const value of ["2", "3"]) {
  const { outcome } = await store.update("counter", value, { expectedVersion: read?.version });
  console.log(outcome === "updated" ? `updated ${value}` : "another version: read again");
}
