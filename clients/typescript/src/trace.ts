/** The trace of a call, as W3C's Trace Context has it. */
export interface Trace {
  /** The caller's span. */
  traceparent?: string | undefined;
  /** Goes with a `traceparent` only. Either is left out unless it is 1 to 512 bytes of printable ASCII, no blanks around. */
  tracestate?: string | undefined;
}

/** Other headers end a call. */
const SENDABLE = /^[!-~]([ -~]{0,510}[!-~])?$/;

/** The headers that go with the call. */
export function headersOf({ traceparent = "", tracestate = "" }: Trace): Record<string, string> {
  if (!SENDABLE.test(traceparent)) return {};
  return SENDABLE.test(tracestate) ? { traceparent, tracestate } : { traceparent };
}
