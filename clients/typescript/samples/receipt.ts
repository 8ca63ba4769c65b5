// Keeps the receipt of a purchase, with which anyone can verify it without the server.
import { writeFile } from "node:fs/promises";

import { connect } from "quire-client";

using store = connect(process.argv[2]);
const purchase = await store.buy(53573);
if (purchase.outcome !== "bought") throw new Error(purchase.message);
const receipt = await store.receipt(purchase.number, purchase.key);
if (!receipt) throw new Error("there is no receipt");
await writeFile("my.tlog-proof", receipt.text);
// It proves little if it comes from the same server as the receipt; the shop publishes it elsewhere as well.
await writeFile("log-key", `${receipt.logKey}\n`);
console.log(`kept: purchase ${purchase.number}`);
console.log("verify it: quire receipt my.tlog-proof --key log-key");
