/** The command line, or a command, cannot be understood. */
export class UsageError extends Error {}

const LINE_BYTES_MAX = 65_536;

/** Lines from a pipe or a file; an error stands for a line that cannot be a command. */
export async function* linesOf(input: AsyncIterable<Buffer>): AsyncGenerator<string | UsageError, void, undefined> {
  let rest: Buffer[] = [];
  let bytes = 0;
  // Bytes beyond the bound are counted and not kept.
  const add = (part: Buffer): void => {
    if (bytes <= LINE_BYTES_MAX) rest.push(part);
    bytes += part.length;
  };
  const take = (): string | UsageError => {
    const line = decoded(rest, bytes);
    [rest, bytes] = [[], 0];
    return line;
  };
  for await (const chunk of input) {
    let start = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, start)) {
      add(chunk.subarray(start, end));
      start = end + 1;
      yield take();
    }
    add(chunk.subarray(start));
  }
  if (bytes > 0) yield take();
}

function decoded(parts: readonly Buffer[], bytes: number): string | UsageError {
  if (bytes > LINE_BYTES_MAX) {
    return new UsageError(`a line is longer than ${String(LINE_BYTES_MAX)} bytes; it must be one command`);
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(Buffer.concat(parts));
  } catch {
    return new UsageError("a line is not UTF-8; it must be one command");
  }
}

/**
 * Splits a line at white space. A word that begins with a quote goes on to the same quote before white space or the end of
 * the line; elsewhere a quote is an apostrophe.
 */
export function wordsOf(line: string): string[] {
  const words: string[] = [];
  const next = /\p{White_Space}*(?:(["'])(.*?)\1(?=\p{White_Space}|$)|(["'])|([^\p{White_Space}]+)|$)/suy;
  while (next.lastIndex < line.length) {
    const [, , inQuotes, unclosed, plain] = next.exec(line) ?? [];
    if (unclosed) throw new UsageError(`the quote ${unclosed} is not closed; close it, or leave it out`);
    const word = inQuotes ?? plain;
    if (word === undefined) break;
    words.push(word);
  }
  return words;
}
