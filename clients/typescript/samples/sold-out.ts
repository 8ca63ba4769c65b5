// Buys all copies of a book, and handles every outcome of a purchase.
import { type Purchase, connect } from "quire-client";

function told(purchase: Purchase): string {
  switch (purchase.outcome) {
    case "bought":
      return `bought: ${purchase.stockLeft} left`;
    case "sold_out":
      return "sold out";
    case "too_few":
      return `too few: ${purchase.stockLeft} left`;
    case "no_such_book":
      return "no such book";
    case "not_bought":
      return `not bought: ${purchase.message}`;
    case "unknown":
      return `unknown: buy again with the key ${purchase.key}`;
  }
}

using store = connect(process.argv[2]);
const id = 12498;
console.log(told(await store.buy(id)));
// As many as one purchase may have.
const most = await store.buy(id, { quantity: 1000 });
console.log(told(most));
if (most.outcome === "too_few") console.log(told(await store.buy(id, { quantity: most.stockLeft })));
console.log(told(await store.buy(id)));
