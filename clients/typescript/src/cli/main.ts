import help from "../../../help.txt";
import { Answers, EXIT } from "./answers.js";
import { type Arguments, readArguments } from "./arguments.js";
import { type Command, help as commandHelp, readCommand } from "./command.js";
import { UsageError, linesOf, wordsOf } from "./lines.js";
import { Words, prompt } from "./prompt.js";
import { json } from "./screen.js";

const PROGRAM = "quire-client";
const VERSION = "0.1.0";

/** The command line; gives the exit code. */
async function main(): Promise<number> {
  try {
    const line = readArguments(process.argv.slice(2), process.env);
    if (typeof line !== "string") return await talk(line);
    process.stdout.write(line === "help" ? help : `${PROGRAM} ${VERSION}\n`);
    return EXIT.done;
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    process.stderr.write(`${PROGRAM}: ${error.message}\n`);
    return EXIT.usage;
  }
}

/** Runs the command of the arguments, or those of standard input. */
async function talk(line: Arguments): Promise<number> {
  const words = new Words();
  const answers = new Answers(line, words);
  if (line.words.length > 0) {
    const command = readCommand(line.words);
    return interruptibly((signal) => run(answers, command, signal));
  }
  let worst: number = EXIT.done;
  /** True if another line may follow this one. */
  const step = async (text: string | UsageError, signal: AbortSignal): Promise<boolean> => {
    try {
      if (text instanceof UsageError) throw text;
      const typed = wordsOf(text);
      if (typed.length === 0) return true;
      const command = readCommand(typed);
      if (command.name === "exit") return false;
      worst = Math.max(worst, await run(answers, command, signal));
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      process.stderr.write(`${error.message}\n`);
      worst = Math.max(worst, EXIT.usage);
    }
    return true;
  };
  if (process.stdin.isTTY && process.stdout.isTTY) await prompt(words, step);
  else {
    for await (const text of linesOf(process.stdin)) {
      if (!(await interruptibly(async (signal) => (await step(text, signal)) && !signal.aborted))) break;
    }
  }
  return worst;
}

/** Runs a command and shows its answer; gives its exit code. */
async function run(answers: Answers, command: Command, signal: AbortSignal): Promise<number> {
  if (command.name === "exit") return EXIT.done;
  if (command.name === "help") {
    process.stdout.write(`${commandHelp()}\n`);
    return EXIT.done;
  }
  const answer = await answers.answer(command, signal);
  const output = answer.isFault && !answers.line.json ? process.stderr : process.stdout;
  output.write(`${answers.line.json ? json(answer.json) : answer.text}\n`);
  return answer.exit;
}

/** Gives the action a signal that Ctrl-C sets off meanwhile. */
async function interruptibly<T>(action: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const interrupt = (): void => {
    stop.abort();
  };
  process.once("SIGINT", interrupt);
  try {
    return await action(stop.signal);
  } finally {
    process.off("SIGINT", interrupt);
  }
}

// A reader that has gone, as `head`, wants no more.
process.stdout.on("error", () => process.exit());
// No process.exit here: what is written to a pipe may still be on its way.
void main().then((code) => (process.exitCode = code));
