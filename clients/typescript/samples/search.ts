// Lists the books of a topic, page after page.
import { connect, decimal } from "quire-client";

using store = connect(process.argv[2]);
for await (const book of store.search("distributed systems")) {
  console.log(`${book.id} ${book.title}: ${book.stock} at ${decimal(book.priceCents)}`);
}
