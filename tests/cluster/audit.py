"""What the shoppers were told, held against the log and the stock as the database has them at the end, and against any order
in which one store could have done it all. Must not know what happened to the cluster."""

import collections
import json
import pathlib
import subprocess
import time

from nodes import Cluster
from shoppers import BOOKS, Shoppers, stubs

from kit.audit import RESTOCK, Entry  # noqa: E402  (on the path since `nodes`)
from kit.audit import audit as contradictions  # noqa: E402

JUDGE_SECONDS = 600
# From the time that the log has to the commit.
RESTOCK_SECONDS_MAX = 60


def audit(shoppers: Shoppers, cluster: Cluster) -> list[str]:
    messages, _ = stubs()
    rows = cluster.query("SELECT number, book_id, kind, quantity, before, after, convert_from(idempotency_key, 'UTF8') FROM entry "
                         f"WHERE book_id IN ({','.join(map(str, BOOKS))}) ORDER BY book_id, number")
    log = [Entry(*row[:6], row[6] or "") for row in rows]
    stock = {book: copies for book, copies in cluster.query("SELECT id, stock FROM book") if book in BOOKS}
    wrong = [*shoppers.wrong, *contradictions(log, stock)]
    by_key, values = collections.defaultdict(list), collections.defaultdict(set)
    for entry in log:
        values[entry.book].add(entry.after)
        if entry.key:
            by_key[entry.key].append((entry.number, entry.book, entry.quantity, entry.kind, entry.after))
    kinds = {messages.BUY_OUTCOME_BOUGHT: messages.LOG_ENTRY_KIND_PURCHASE,
             messages.BUY_OUTCOME_SOLD_OUT: messages.LOG_ENTRY_KIND_REFUSED,
             messages.BUY_OUTCOME_TOO_FEW: messages.LOG_ENTRY_KIND_REFUSED}
    for each in shoppers.purchases:
        answered = (each.number, each.book, each.quantity, kinds.get(each.outcome), each.left)
        if by_key.pop(each.key, []) != [answered]:
            wrong.append(f"lost or changed: {each}")
    wrong += [f"no one was told of {key}: {entries}" for key, entries in by_key.items()]
    raised = sum(entry.kind == RESTOCK for entry in log)
    if raised < shoppers.raised:
        wrong.append(f"restocks raised {shoppers.raised} books, and the log knows of {raised}")
    for book, copies in shoppers.shown:
        if copies not in values[book]:
            wrong.append(f"{copies} copies of book {book} were shown, which it never had")
    return wrong


def judge(shoppers: Shoppers, cluster: Cluster, porcupine: pathlib.Path) -> str | None:
    """What porcupine says if there is no order of the purchases that one store could have carried out; else nothing."""
    messages, _ = stubs()
    names = {messages.BUY_OUTCOME_BOUGHT: "bought", messages.BUY_OUTCOME_SOLD_OUT: "sold out",
             messages.BUY_OUTCOME_TOO_FEW: "too few"}
    # The log has the time of the day.
    since_boot = time.monotonic_ns() - time.time_ns()
    log = cluster.query(f"SELECT book_id, before, after, time_ms FROM entry WHERE kind = {messages.LOG_ENTRY_KIND_RESTOCK}")
    restocks = [(book, before, after, time_ms * 10**6 + since_boot) for book, before, after, time_ms in log]
    lines = [{"client": each.client, "book": each.book, "op": "buy", "quantity": each.quantity, "left": each.left,
              "result": names[each.outcome], "call": each.call, "return": each.end}
             for each in shoppers.purchases if each.outcome is not None]
    # Answered or not, the log has what a restock did.
    lines += [{"client": -1, "book": book, "op": "restock", "before": before, "left": after, "result": "ok",
               "call": began, "return": began + RESTOCK_SECONDS_MAX * 10**9}
              for book, before, after, began in restocks]
    first = [{"book": book, "op": "stock", "left": copies} for book, copies in BOOKS.items()]
    done = subprocess.run([porcupine, "store"], input="\n".join(map(json.dumps, first + lines)), capture_output=True, text=True,
                          timeout=JUDGE_SECONDS)
    return None if done.returncode == 0 else f"porcupine: {done.stdout}{done.stderr}"
