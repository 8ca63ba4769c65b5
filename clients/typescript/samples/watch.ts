// Watches a key. The first event says that the watch has begun, so no later change is missed.
import { connect } from "quire-client";

using store = connect(process.argv[2]);
const text = new TextDecoder();
for await (const event of store.watch("greeting")) {
  if (event.kind === "started") {
    console.log("watching");
    await store.put("greeting", "hello");
  } else {
    const value = event.kind === "put" ? ` = ${text.decode(event.value)}` : "";
    console.log(`${event.kind} ${text.decode(event.key)}${value}`);
    break;
  }
}
