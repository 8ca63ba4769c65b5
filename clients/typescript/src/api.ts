/** What both entries of the package have. */
export type { CallOptions, ClientOptions } from "./caller.js";
export {
  type Book,
  type BuyOptions,
  type Bytes,
  Client,
  type Created,
  type Deleted,
  type Entry,
  type ExpectOptions,
  type PageOptions,
  type Purchase,
  type Topic,
  type Updated,
  type Value,
  type WatchEvent,
  type WriteOptions,
  decimal,
  randomKey,
} from "./client.js";
export { type Code, Fault, OutcomeUnknown, Refused, Unreachable } from "./faults.js";
export { type LogEntry, Operator, type PriceChange } from "./operator.js";
