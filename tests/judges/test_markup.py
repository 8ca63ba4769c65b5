"""The Nu Html Checker on every page of the shop, of the operator's room, and of `/openapi`."""

import json
import subprocess
import urllib.error
import urllib.request

import test_room
import test_storefront
from conftest import judge
from test_storefront import shop  # noqa: F401


def fetch(shop, path):
    request = urllib.request.Request(f"http://{shop.address}{path}", headers={"accept": "text/html"})
    try:
        return urllib.request.urlopen(request, timeout=30).read()
    except urllib.error.HTTPError as refused:
        return refused.read()


def test_no_page_breaks_a_rule_of_html(shop, tmp_path):
    paths = {}
    for number, path in enumerate([*test_storefront.PAGES, *test_room.PAGES]):
        page = tmp_path / f"{number}.html"
        page.write_bytes(fetch(shop, path))
        paths[page.as_uri()] = path
    checker = judge("../browser/node_modules/vnu-jar/build/dist/vnu.jar")
    done = subprocess.run(["java", "-jar", checker, "--exit-zero-always", "--errors-only", "--format", "json",
                           *(str(page) for page in tmp_path.glob("*.html"))], capture_output=True, text=True, check=True)
    errors = json.loads(done.stderr)["messages"]
    assert [(paths[error["url"]], error.get("lastLine"), error["message"]) for error in errors] == []
