/** The names of gRPC's codes, in the order of their numbers. */
// prettier-ignore
export const CODES = [
  "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED",
  "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
] as const;

/** The name of a gRPC code. */
export type Code = (typeof CODES)[number];

/** Reason why a call has no outcome: one of {@link Refused}, {@link Unreachable} and {@link OutcomeUnknown}. */
export abstract class Fault extends Error {
  constructor(
    readonly code: Code,
    message: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** The server understood the call and will not do it. The message is the server's. */
export class Refused extends Fault {
  override readonly name = "Refused";
}

/** Nothing was done, or what was asked changes nothing. */
export class Unreachable extends Fault {
  override readonly name = "Unreachable";

  constructor(
    code: Code,
    /** Has the address and the cause. */
    message: string,
    /** True if the call was sent; if not, no server answered on the connection. */
    readonly sent: boolean,
    options?: ErrorOptions,
  ) {
    super(code, message, options);
  }
}

/** A write was sent and not answered: the server may have done it. */
export class OutcomeUnknown extends Fault {
  override readonly name = "OutcomeUnknown";
}
