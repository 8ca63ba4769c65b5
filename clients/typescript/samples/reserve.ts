// Reserves a copy and buys it; then reserves another, and comes too late.
import { setTimeout } from "node:timers/promises";

import { connect } from "quire-client";

using store = connect(process.argv[2]);
const held = await store.reserve(53477, { seconds: 60 });
if (held.outcome !== "held") throw new Error(held.message);
console.log(`held: ${held.stockLeft} left`);
const bought = await store.confirm(held.key);
if (bought.outcome === "bought") console.log(`bought: purchase ${bought.number}`);

const brief = await store.reserve(53477, { seconds: 1 });
await setTimeout(1100);
const late = await store.confirm(brief.key);
if (late.outcome === "expired") console.log(`too late: ${late.stockLeft} left`);
