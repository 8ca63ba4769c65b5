import { isIPv6 } from "node:net";

const PORT = 10086;

/** Address of a server: a host, one of IPv6 in brackets, and a port. */
export interface Address {
  /** True for `https`, false for `http`, undefined without a scheme. */
  readonly tls: boolean | undefined;
  readonly authority: string;
}

/** Default address of a server. */
export const USUAL_ADDRESS = `127.0.0.1:${String(PORT)}`;

/** Reads `HOST:PORT`, a host, or `:PORT`, with `http://` or `https://` before it if need be; several with commas between. */
export function parseAddresses(text: string): Address[] {
  return text.split(",").map(parse);
}

function parse(text: string): Address {
  const wrong = (want: string): RangeError => new RangeError(`'${text}' is no address; it must be ${want}`);
  const [, scheme, rest = ""] = /^(?:(.*?):\/\/)?(.*)$/su.exec(text) ?? [];
  if (scheme !== undefined && scheme !== "http" && scheme !== "https") throw wrong(`http://${rest} or https://${rest}`);
  const before = scheme === undefined ? "" : `${scheme}://`;
  const bare = rest.endsWith("/") ? rest.slice(0, -1) : rest;
  const slash = bare.indexOf("/");
  if (slash >= 0) throw wrong(`without a path: ${before}${bare.slice(0, slash)}`);
  const colon = isHost(bare) ? -1 : bare.lastIndexOf(":");
  const host = colon < 0 ? bare : bare.slice(0, colon);
  if (!isHost(host) || bare === "") throw wrong("HOST:PORT, as 127.0.0.1:10086 or [::1]:10086");
  const digits = colon < 0 ? String(PORT) : bare.slice(colon + 1);
  const port = /^\d+$/.test(digits) ? Number(digits) : Infinity;
  if (port > 65535) throw wrong(`HOST:PORT with a port up to 65535, as ${before}${host}:${String(PORT)}`);
  if (port === 0) throw wrong(`HOST:PORT with a port from 1 to 65535, as ${host}:${String(PORT)}`);
  return { tls: scheme && scheme === "https", authority: `${host || "127.0.0.1"}:${String(port)}` };
}

/** A name, an IPv4 address, an IPv6 address in brackets, or nothing. */
function isHost(text: string): boolean {
  return text.startsWith("[") && text.endsWith("]") ? isIPv6(text.slice(1, -1)) : /^[a-z0-9._-]*$/i.test(text);
}
