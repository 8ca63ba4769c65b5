"""Holds the clients to CONTRACT.md: scenarios, then a campaign of purchases through faults. `make test-clients` calls it."""

import argparse
import collections
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"

import campaign  # noqa: E402
import page  # noqa: E402
import scenarios  # noqa: E402
from matching import Mismatch  # noqa: E402
from subject import Subject  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
AT_ONCE = 3
CAMPAIGN = f"{campaign.PURCHASES:,} purchases through faults"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("languages", nargs="*", metavar="LANGUAGE", help="all if none is named")
    parser.add_argument("--quire", type=pathlib.Path, default=ROOT / "target/debug/quire", help="the server's program")
    parser.add_argument("--clients", type=pathlib.Path, default=ROOT / "target/clients", help="the folder of the subjects")
    parser.add_argument("--only", default="", metavar="REGEX", help="the scenarios whose topic and name match")
    parser.add_argument("--write-page", action="store_true", help="write docs/clients.md anew; needs all languages")
    parser.add_argument("--seed", type=int, default=campaign.SEED, help="of the plan of faults")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    arguments = parser.parse_args()
    # A job that a shell runs in the background ignores it, and so would the clients.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    chosen = [each for each in scenarios.load() if re.search(arguments.only, f"{each.group}: {each.name}")]
    if arguments.list:
        print(*(f"{each.group}: {each.name}" for each in chosen), sep="\n")
        return 0
    folder = pathlib.Path(tempfile.mkdtemp(prefix="quire-clients-"))
    judge = Judge(chosen, arguments.quire.absolute(), folder, arguments.seed)
    if re.search(arguments.only, CAMPAIGN):
        judge.controls()
    languages = arguments.languages or list(page.NAMES)
    for language in languages:
        subject = Subject(language, (arguments.clients / language).absolute())
        judge.scenarios(subject)
        if re.search(arguments.only, CAMPAIGN):
            judge.campaign(subject)
    if set(languages) == set(page.NAMES) and not arguments.only:
        judge.page(arguments.write_page)
    if judge.failed:
        print(f"what the failed ones left is in {folder}")
    else:
        shutil.rmtree(folder)
    print(f"{judge.passed} passed, {judge.failed} failed")
    return 1 if judge.failed else 0


class Judge:
    """Runs everything and counts; tells of each failure at once."""

    def __init__(self, chosen: list[scenarios.Scenario], quire: pathlib.Path, folder: pathlib.Path, seed: int) -> None:
        self._seed = seed
        self._chosen, self._quire, self._folder = chosen, quire, folder
        self.passed = self.failed = 0
        self._results: dict[str, dict[str, str]] = {}

    def _count(self, who: str, what: str, wrong: str | None) -> bool:
        if wrong is None:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED {who}, {what}\n  " + wrong.replace("\n", "\n  "), flush=True)
        return wrong is None

    def scenarios(self, subject: Subject) -> None:
        begin = time.monotonic()
        good = {each.group: 0 for each in self._chosen}

        def one(at: int) -> str | None:
            folder = self._folder / subject.language / "scenarios" / str(at)
            return told(lambda: scenarios.run(self._chosen[at], subject, self._quire, folder))

        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            # Those that take long begin first.
            order = sorted(range(len(self._chosen)), key=lambda at: "slow" not in self._chosen[at].about)
            running = {at: pool.submit(one, at) for at in order}
            for at, scenario in enumerate(self._chosen):
                wrong = running[at].result()
                good[scenario.group] += self._count(subject.language, f"{scenario.group}: {scenario.name}", wrong)
        count = collections.Counter(each.group for each in self._chosen)
        self._results[subject.language] = {group: f"{good[group]} of {count[group]}" for group in good}
        seconds = time.monotonic() - begin
        print(f"{subject.language}: {sum(good.values())} of {len(self._chosen)} scenarios in {seconds:.0f} s", flush=True)

    def campaign(self, subject: Subject) -> None:
        begin = time.monotonic()
        said = []

        def one() -> None:
            said.append(campaign.run(lambda address: [subject.program("driver"), address], self._quire,
                                     self._folder / subject.language / "campaign", seed=self._seed))

        good = self._count(subject.language, CAMPAIGN, told(one))
        self._results[subject.language][CAMPAIGN] = "exactly once" if good else "wrong"
        print(f"{subject.language}: {CAMPAIGN} in {time.monotonic() - begin:.0f} s: {' '.join(said)}", flush=True)

    def controls(self) -> None:
        wrong = campaign.controls(self._quire, self._folder / "controls")
        self._count("suite", "clients that are wrong on purpose are found", "\n".join(wrong) or None)

    def page(self, write: bool) -> None:
        def one() -> None:
            text = page.PAGE.read_text()
            wanted = page.made(text, {"matrix": page.matrix(self._results), "samples": page.samples()})
            if write:
                page.PAGE.write_text(wanted)
            elif wanted != text:
                raise Mismatch(f"{page.PAGE} is not what the suite makes; `make clients-page` makes it anew")

        self._count("suite", "docs/clients.md", told(one))


def told(test: Callable[[], None]) -> str | None:
    """What was wrong, if anything."""
    try:
        test()
    except Mismatch as wrong:
        return str(wrong)
    except Exception as wrong:
        return "".join(traceback.format_exception(wrong)[-3:])
    return None


if __name__ == "__main__":
    sys.exit(main())
