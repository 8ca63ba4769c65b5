/** The trace of a call, as W3C's Trace Context has it. */
export interface Trace {
  /** The caller's span. */
  traceparent?: string | undefined;
  /** Left out if it is invalid, above 512 bytes or without a valid `traceparent`. */
  tracestate?: string | undefined;
}

/** Every program has to pass on this many bytes. */
const TRACESTATE_BYTES_MAX = 512;
const PARENT = /^(?!ff|00.{53}.)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;
const MEMBER = "[a-z0-9][a-z0-9_*/@-]{0,255}=[ -+\\--<>-~]{0,255}[!-+\\--<>-~]";
const STATE = new RegExp(`^${MEMBER}( *, *${MEMBER}){0,31}$`);

/** The headers that go with the call. */
export function headersOf({ traceparent, tracestate }: Trace): Record<string, string> {
  if (traceparent === undefined) return {};
  const isSent = tracestate !== undefined && tracestate.length <= TRACESTATE_BYTES_MAX && STATE.test(tracestate);
  return isSent && PARENT.test(traceparent) ? { traceparent, tracestate } : { traceparent };
}
