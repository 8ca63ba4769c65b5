"""Holds the clients to CONTRACT.md: scenarios, then a campaign of purchases through faults. `make test-clients` calls it."""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time
import traceback

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import scenarios  # noqa: E402
from matching import Mismatch  # noqa: E402
from subject import Subject  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
LANGUAGES = ["cpp", "go", "java", "python", "rust", "typescript"]
AT_ONCE = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="all if none is named")
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "target/debug/quire", help="the server's program")
    parser.add_argument("--clients", type=pathlib.Path, default=ROOT / "target/clients", help="the folder of the subjects")
    parser.add_argument("--only", default="", metavar="REGEX", help="the scenarios whose topic and name match")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    arguments = parser.parse_args()
    chosen = [each for each in scenarios.load() if re.search(arguments.only, f"{each.group}: {each.name}")]
    if arguments.list:
        print(*(f"{each.group}: {each.name}" for each in chosen), sep="\n")
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-clients-"))
    good = bad = 0
    for language in arguments.languages or LANGUAGES:
        begin = time.monotonic()
        subject = Subject(language, (arguments.clients / language).absolute())
        passed = run_scenarios(subject, chosen, arguments.quire.absolute(), folder)
        failed = len(chosen) - sum(passed.values())
        good, bad = good + len(chosen) - failed, bad + failed
        print(f"{language}: {len(chosen) - failed} of {len(chosen)} scenarios in {time.monotonic() - begin:.0f} s", flush=True)
    if bad:
        print(f"what the failed ones left is in {folder}")
    else:
        shutil.rmtree(folder)
    print(f"{good} passed, {bad} failed")
    return 1 if bad else 0


def run_scenarios(subject: Subject, chosen: list[scenarios.Scenario], quire: pathlib.Path, folder: pathlib.Path) -> dict[str, int]:
    """How many of each topic passed; tells of the others."""
    passed = {each.group: 0 for each in chosen}

    def one(at: int) -> str | None:
        try:
            scenarios.run(chosen[at], subject, quire, folder / subject.language / "scenarios" / str(at))
        except Mismatch as wrong:
            return str(wrong)
        except Exception as wrong:
            return "".join(traceback.format_exception(wrong)[-3:])
        return None

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for scenario, wrong in zip(chosen, pool.map(one, range(len(chosen)))):
            if wrong is None:
                passed[scenario.group] += 1
            else:
                print(f"FAILED {subject.language}, {scenario.group}: {scenario.name}\n  " + wrong.replace("\n", "\n  "))
    return passed


if __name__ == "__main__":
    sys.exit(main())
