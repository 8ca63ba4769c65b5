"""The document at /openapi.json, read by a validator; schemathesis, which makes requests up from it; and the page that
explores it, in Chromium."""

import contextlib
import json
import pathlib
import subprocess
import sys
import urllib.request

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conftest import Server

# A call's schema has no bounds of values, and a reader of JSON takes more than its writer should write: null, unknown
# members, numbers as text. All other checks run on every request.
CONFIGURATION = """
[[operations]]
include-path-regex = "^/[^/]+/"
checks.negative_data_rejection.enabled = false
checks.positive_data_acceptance.enabled = false
"""


@contextlib.contextmanager
def serving(quire, folder):
    subprocess.run([quire, "generate", "records", "--rows", "500", "--seed", "6", "--out", folder / "tickets.csv"], check=True)
    # A message of the game waits for those before it.
    settings = ["records.csv=tickets.csv", "rpcgame.wait_seconds=0.01"]
    server = Server(quire, folder, *[word for setting in settings for word in ("--set", setting)])
    yield server
    server.stop()


@pytest.fixture(scope="module")
def server(quire, tmp_path_factory):
    with serving(quire, tmp_path_factory.mktemp("server")) as server:
        yield server


@pytest.fixture
def fuzzed_server(quire, tmp_path):
    """A server of its own, because the requests change books."""
    with serving(quire, tmp_path) as server:
        yield server


def fetch(server, path):
    with urllib.request.urlopen(f"http://{server.address}{path}", timeout=30) as answer:
        return answer.read().decode()


@pytest.fixture
def document(server):
    return json.loads(fetch(server, "/openapi.json"))


def test_the_document_is_valid(document):
    assert document["openapi"].startswith("3.1")
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_every_path_and_method_that_the_root_page_lists_is_in_the_document(server, document):
    pages, services = fetch(server, "/").split("gRPC, gRPC-Web and Connect")
    for line in pages.splitlines():
        if line.startswith("  /"):
            assert "get" in document["paths"][line.split()[0]]
    streams = {stream["path"] for tag in document["tags"] for stream in tag.get("x-streams", [])}
    listed = [line.strip().split(": ") for line in services.split("Other ports")[0].splitlines() if line.startswith("  ")]
    paths = {f"/{service}/{method}" for service, methods in listed for method in methods.split(", ")
             if not service.startswith("grpc.reflection")}
    assert paths == streams | {path for path, operations in document["paths"].items() if "post" in operations}
    assert {"/bookstore.BookStore/SearchStream", "/io.grpc.KeyRangeService/Watch"} <= streams


def test_the_document_has_the_comments_of_the_contract(document):
    lookup = document["paths"]["/bookstore.BookStore/Lookup"]
    assert lookup["post"]["description"] == "One book by its id." and "get" in lookup
    assert "get" not in document["paths"]["/bookstore.BookStore/Buy"]
    book = document["components"]["schemas"]["bookstore.Book"]
    assert book["properties"]["stock"]["description"] == "Copies that can be bought."
    assert book["properties"]["priceCents"]["type"] == "string"


def test_schemathesis_finds_nothing_wrong_with_the_document_or_the_answers(fuzzed_server, tmp_path):
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    tool = pathlib.Path(sys.executable).with_name("schemathesis")
    done = subprocess.run([tool, "run", f"http://{fuzzed_server.address}/openapi.json", "--seed", "6",
                           "--max-examples", "10", "--generation-database", "none", "--max-time", "40", "--no-color"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


@pytest.fixture
def explorer(chromium, server):
    """The page, and what opens one of its methods."""
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                             {"width": 900, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    chromium.get(f"http://{server.address}/openapi")

    def opened(path):
        found = WebDriverWait(chromium, 20).until(lambda _: chromium.find_elements(By.ID, path))
        method, = found
        method.find_element(By.TAG_NAME, "summary").click()
        return method

    return opened


def press(chromium, method, label):
    button, = [button for button in method.find_elements(By.TAG_NAME, "button") if button.text == label]
    button.click()
    WebDriverWait(chromium, 20).until(lambda _: " ms" in method.find_element(By.CLASS_NAME, "status").text)
    return method.find_element(By.CLASS_NAME, "answer").text


def fill(method, request):
    area = method.find_element(By.TAG_NAME, "textarea")
    area.clear()
    area.send_keys(json.dumps(request))


def test_the_page_calls_a_method_and_shows_a_curl_command_that_does_the_same(chromium, explorer):
    lookup = explorer("/bookstore.BookStore/Lookup")
    assert "One book by its id." in lookup.text and "from 1 up" in lookup.text
    fill(lookup, {"id": 12365})
    for label in ["POST", "GET"]:
        answer = json.loads(press(chromium, lookup, label))
        assert answer["book"]["title"] == "Surviving College"
        command = lookup.find_element(By.CLASS_NAME, "curl").text
        done = subprocess.run(["bash", "-c", command + " --silent"], capture_output=True, text=True, timeout=30)
        assert json.loads(done.stdout) == answer, command
    assert chromium.get_log("browser") == []


def test_the_page_shows_why_a_call_failed(chromium, explorer):
    buy = explorer("/bookstore.BookStore/Buy")
    fill(buy, {"id": 7, "quantity": -1})
    assert json.loads(press(chromium, buy, "POST"))["code"] == "invalid_argument"
    status = buy.find_element(By.CLASS_NAME, "status")
    assert status.text.startswith("400 ") and "bad" in status.get_attribute("class")


def test_the_page_reads_a_stream(chromium, explorer):
    search = explorer("/bookstore.BookStore/SearchStream")
    fill(search, {"topic": "college life", "pageSize": 1})
    answer = press(chromium, search, "POST, and read the stream")
    assert "Surviving College" in answer and "Cooking for the Impatient" in answer


def test_a_stream_without_an_end_is_shown_as_it_comes_and_stops_when_told(chromium, explorer):
    tail = explorer("/bookstore.Admin/TailLog")
    fill(tail, {"afterNumber": "0"})
    first, = [button for button in tail.find_elements(By.TAG_NAME, "button") if button.text.startswith("POST")]
    first.click()
    answer = WebDriverWait(chromium, 20).until(lambda _: tail.find_element(By.CLASS_NAME, "answer"))
    WebDriverWait(chromium, 20).until(lambda _: "LOG_ENTRY_KIND_ADDED" in answer.text)
    stop, = [button for button in tail.find_elements(By.TAG_NAME, "button") if button.text == "Stop"]
    stop.click()
    WebDriverWait(chromium, 20).until(lambda _: tail.find_element(By.CLASS_NAME, "status").text == "stopped")


def test_the_page_asks_a_path_with_a_query(chromium, explorer):
    search = explorer("/search")
    for field, value in zip(search.find_elements(By.TAG_NAME, "input"), ["locations1", "Jacobs"]):
        field.send_keys(value)
    assert "num_matching" in json.loads(press(chromium, search, "GET"))


def test_the_page_asks_a_path_with_a_part(chromium, explorer):
    tile = explorer("/log/tile/{tile}")
    tile.find_element(By.TAG_NAME, "input").send_keys("9/000")
    assert "no such tile" in press(chromium, tile, "GET")
    assert "/log/tile/9/000" in tile.find_element(By.CLASS_NAME, "curl").text


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_fits_and_follows_the_colour_scheme(chromium, explorer, width):
    method = explorer("/bookstore.BookStore/Buy")
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                             {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    assert chromium.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    colours = set()
    for scheme in ["light", "dark"]:
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                 {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        colours.add(chromium.execute_script("return getComputedStyle(document.body).backgroundColor"))
    assert len(colours) == 2 and method.is_displayed()
