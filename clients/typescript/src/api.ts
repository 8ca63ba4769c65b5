/** What both entries of the package have. */
export type { CallOptions, ClientOptions } from "./caller.js";
export { Client, decimal, randomKey } from "./client.js";
export { type Code, Fault, OutcomeUnknown, Refused, Unreachable } from "./faults.js";
export { Operator } from "./operator.js";
export type * from "./types.js";
