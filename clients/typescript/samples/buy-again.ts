// Sends the same purchase twice. The key names it, so that the second time buys nothing.
import { connect, randomKey } from "quire-client";

using store = connect(process.argv[2]);
const key = randomKey();
for (let times = 0; times < 2; times++) {
  const purchase = await store.buy(12365, { key });
  if (purchase.outcome !== "bought") throw new Error(purchase.outcome);
  console.log(`purchase ${purchase.number}, ${purchase.replayed ? "replayed" : "new"}`);
}
