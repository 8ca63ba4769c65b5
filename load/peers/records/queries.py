"""The same query put to what a user would pick instead: SQLite (with and without an index) and DuckDB, through Python.

    queries.py load CSV FOLDER               makes the databases; prints what there is and what is missing
    queries.py ask FOLDER ENGINE SECONDS     asks again and again; prints the times

Each prints one JSON object. A query is timed from the call until Python has every row (`rows_ms`), and once more with
the rows then written as JSON (`json_ms`), which is what a service would have to send.
"""

import csv
import json
import os
import pathlib
import sqlite3
import sys
import time

COLUMN, VALUE = "locations1", "Jacobs"
ENGINES = ("sqlite", "sqlite_indexed", "duckdb")


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def load_sqlite(source, folder):
    path = folder / "tickets.sqlite"
    path.unlink(missing_ok=True)
    connection = sqlite3.connect(path)
    with open(source, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        names = next(rows)
        connection.execute("PRAGMA journal_mode = OFF")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute(f"CREATE TABLE tickets ({', '.join(quoted(name) + ' TEXT' for name in names)})")
        connection.executemany(f"INSERT INTO tickets VALUES ({', '.join('?' * len(names))})", rows)
        connection.execute(f"CREATE INDEX by_value ON tickets ({quoted(COLUMN)})")
        connection.commit()
    connection.close()
    return sqlite3.sqlite_version


def load_duckdb(source, folder):
    import duckdb

    path = folder / "tickets.duckdb"
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE tickets AS SELECT * FROM read_csv(?, header = true, all_varchar = true)", [source])
    return duckdb.__version__


def load(source, folder):
    folder = pathlib.Path(folder)
    versions, missing, seconds = {}, {}, {}
    for name, loader in [("sqlite", load_sqlite), ("duckdb", load_duckdb)]:
        start = time.perf_counter()
        try:
            versions[name] = loader(source, folder)
        except Exception as error:  # Whatever it is, the page says that this subject is missing, and why.
            missing[name] = f"{type(error).__name__}: {error}"
        seconds[name] = time.perf_counter() - start
    return {"python": sys.version.split()[0], "versions": versions, "missing": missing, "load_seconds": seconds}


def asker(folder, engine):
    """A function that asks once and gives all rows, and the columns' names."""
    folder = pathlib.Path(folder)
    if engine == "duckdb":
        import duckdb

        connection = duckdb.connect(str(folder / "tickets.duckdb"), read_only=True)
        table = "tickets"
    else:
        connection = sqlite3.connect(folder / "tickets.sqlite")
        table = "tickets" if engine == "sqlite_indexed" else "tickets NOT INDEXED"
    names = [column[0] for column in connection.execute("SELECT * FROM tickets LIMIT 0").description]
    query = f"SELECT * FROM {table} WHERE {quoted(COLUMN)} = ?"
    return lambda: connection.execute(query, [VALUE]).fetchall(), names


def ask(folder, engine, seconds):
    once, names = asker(folder, engine)
    rows = once()
    cpu = time.process_time()
    rows_ms, json_ms, bytes_count = [], [], 0
    end = time.perf_counter() + float(seconds)
    while time.perf_counter() < end or len(rows_ms) < 3:
        start = time.perf_counter()
        rows = once()
        have_rows = time.perf_counter()
        text = json.dumps([dict(zip(names, row)) for row in rows], ensure_ascii=False, separators=(",", ":"))
        have_json = time.perf_counter()
        rows_ms.append((have_rows - start) * 1e3)
        json_ms.append((have_json - start) * 1e3)
        bytes_count = len(text.encode("utf-8"))
    cpu_ms = (time.process_time() - cpu) * 1e3 / len(rows_ms)
    return {"engine": engine, "rows": len(rows), "json_bytes": bytes_count, "cpu_ms": cpu_ms, "rows_ms": rows_ms,
            "json_ms": json_ms}


def main(arguments):
    if len(arguments) == 3 and arguments[0] == "load":
        found = load(*arguments[1:])
    elif len(arguments) == 4 and arguments[0] == "ask" and arguments[2] in ENGINES:
        found = ask(*arguments[1:])
    else:
        sys.exit(__doc__)
    # A short write to a closed pipe is the reader's to report.
    os.write(1, (json.dumps(found) + "\n").encode())


main(sys.argv[1:])
