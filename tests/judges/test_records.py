"""Record queries, judged by a plain reading of the same file with Python's csv, by stubs that know the contract's
tables and nothing else, and by schemathesis, which makes requests up from the server's OpenAPI document."""

import csv
import io
import json
import pathlib
import random
import subprocess
import sys
import urllib.parse
import urllib.request

import grpc
import pytest

from conftest import Server

OPTIONS = [("grpc.max_receive_message_length", 256 << 20)]
# What csv, protobuf, JSON and a URL each have trouble with.
HARD = ["", " ", "a,b", '"', '""', 'say "hi", twice', "line\nbreak", "carriage\r\nreturn", "\r", "tab\there", "\\", "\\n",
        "\x00", "\x01\x02\x1f", "\x7f\x85", "\u2028\u2029", "😀", "𝒳 and 𐍈", "\U0010fffd", "e\u0301", "é", "%", "%2C", "+",
        "a+b c&d=e#f?", "null", "0.1", "</script>", "'; DROP TABLE tickets; --", "ﷺ" * 50, "x" * 5000]
csv.field_size_limit(1 << 30)


class Table:
    """The file as Python reads it."""

    def __init__(self, path):
        with open(path, newline="", encoding="utf-8") as file:
            self.names, *self.rows = csv.reader(file)
        self.by_column = []
        for column in range(len(self.names)):
            by_value = {}
            for row in self.rows:
                by_value.setdefault(row[column], []).append(row)
            self.by_column.append(by_value)

    def matching(self, name, value, share=None):
        by_value = self.by_column[self.names.index(name)]
        rows = by_value.get(value, [])
        if not rows and len(value) > 1 and value[0] == value[-1] == '"':
            rows = by_value.get(value[1:-1].replace('""', '"'), [])
        return rows if share is None else rows[:int(len(rows) * share)]

    def queries(self, count, seed):
        """Columns, values that are and are not in them, and shares."""
        rng = random.Random(seed)
        for _ in range(count):
            column = rng.randrange(len(self.names))
            by_value = self.by_column[column]
            if rng.random() < 0.75 or not self.rows:
                # By row, so that what occurs often is asked for often.
                value = rng.choice(self.rows)[column] if self.rows else ""
            else:
                there = rng.choice(self.rows)[rng.randrange(len(self.names))]
                value = rng.choice([there, there + " ", there.upper(), there[:-1], *HARD])
            share = rng.choice([None, None, 1.0, 0.5, 0.25, 0.0, rng.random()])
            # An answer with most of the file is checked, but not again and again.
            if len(by_value.get(value, [])) > 2000 and rng.random() < 0.9:
                share = 0.001 * rng.random()
            yield self.names[column], value, share


class Both:
    """A server with a file, asked over gRPC and over REST."""

    def __init__(self, quire, folder, wire, file):
        self.messages, stubs = wire
        self.server = Server(quire, folder, "--set", f"records.csv={file}")
        self.channel = grpc.insecure_channel(self.server.address, options=OPTIONS)
        self.stub = stubs.ReaderServiceStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()
        self.server.stop()

    def request(self, name, value, share):
        return self.messages.ReaderRequest(key=name, value=value, result_size=share)

    def get(self, path, name, value, share):
        query = {"headerKey": name, "headerValue": value} | ({} if share is None else {"result_size": repr(share)})
        url = f"http://{self.server.address}{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.headers["content-type"], answer.read()

    def records(self, name, value, share=None):
        answer = self.stub.GetRecord(self.request(name, value, share), timeout=60)
        assert answer.num_record == len(answer.records)
        return [[(field.key, field.value) for field in record.fields] for record in answer.records]

    def string(self, name, value, share=None):
        return self.stub.GetRecordString(self.request(name, value, share), timeout=60).data

    def search(self, name, value, share=None):
        kind, body = self.get("/search", name, value, share)
        assert kind.startswith("application/json")
        # The strict reader of the standard library refuses control characters that are not escaped.
        answer = json.loads(body.decode("utf-8"), object_pairs_hook=Pairs)
        answer = dict(answer.pairs)
        assert answer["num_record"] == len(answer["records"])
        return [record.pairs for record in answer["records"]]

    def search_string(self, name, value, share=None):
        _, body = self.get("/search_string", name, value, share)
        return body.decode("utf-8")


class Pairs:
    def __init__(self, pairs):
        self.pairs = pairs


@pytest.fixture(scope="session")
def wire():
    return grpc.protos_and_services("records.proto")


@pytest.fixture(scope="session")
def nasty(tmp_path_factory):
    """Written by hand: every hard value in every column, in all ways of quoting that are allowed."""
    rng = random.Random(4)
    names = ["id", "a b", "na\"me", "com,ma", "zeile\nzwei", "größe", "😀", "headerKey", "\\", " "]
    file = io.StringIO()
    # With a line feed alone this writer leaves a carriage return unquoted, which then ends a row.
    styles = [("\r\n", csv.QUOTE_MINIMAL), ("\r\n", csv.QUOTE_ALL), ("\n", csv.QUOTE_ALL)]
    for number in range(-1, 3000):
        row = names if number < 0 else [str(number)] + [rng.choice(HARD) for _ in names[1:]]
        end, quoting = rng.choice(styles)
        csv.writer(file, lineterminator=end, quoting=quoting).writerow(row)
    # Without a line end after the last row, and with quotes in the middle of a field that has none around it.
    file.write('last,a"b,,"","c""d",,"",x,y,z')
    path = tmp_path_factory.mktemp("nasty") / "nasty.csv"
    path.write_bytes(file.getvalue().encode("utf-8"))
    return path


def rows_of(text):
    return list(csv.reader(io.StringIO(text, newline="")))


def test_both_protocols_answer_what_a_plain_reading_of_the_file_says(quire, wire, tmp_path, nasty):
    table, found = Table(nasty), 0
    with Both(quire, tmp_path, wire, nasty) as both:
        for name, value, share in table.queries(1000, seed=1):
            rows = table.matching(name, value, share)
            expected = [list(zip(table.names, row)) for row in rows]
            asked = (name, value, share)
            assert both.records(*asked) == expected, asked
            assert both.search(*asked) == expected, asked
            text = both.string(*asked)
            assert rows_of(text) == rows, asked
            assert both.search_string(*asked) == text, asked
            found += bool(rows)
    assert 300 < found < 950, "values that are there and values that are not"


def test_schemathesis_finds_nothing_wrong_with_the_document_or_the_answers(quire, wire, tmp_path, nasty):
    with Both(quire, tmp_path, wire, nasty) as both:
        url = f"http://{both.server.address}/openapi.json"
        tool = pathlib.Path(sys.executable).with_name("schemathesis")
        done = subprocess.run([tool, "run", url, "--checks", "all", "--seed", "6", "--max-examples", "60",
                               "--generation-database", "none", "--max-time", "30", "--no-color",
                               "--include-path-regex", "^/search"],
                              cwd=tmp_path, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        # After all of that it still answers.
        assert len(both.records("id", "1")) == 1
