// Buys one copy of a book.
import { connect } from "quire-client";

using store = connect(process.argv[2]);
const purchase = await store.buy(53573);
if (purchase.outcome === "bought") {
  console.log(`bought: purchase ${purchase.number}, ${purchase.stockLeft} left`);
} else {
  console.log(purchase.outcome);
}
