/** Exports of both entries of the package. */
export type { CallOptions, ClientOptions } from "./caller.js";
export { Client, Operator, decimal, randomKey } from "./client.js";
export { type Code, Fault, OutcomeUnknown, Refused, Unreachable } from "./faults.js";
export type * from "./types.js";
