"""A shop of 1,000,000 books, one topic with 60,000 of them: every book and topic is reached by links, once and in order."""

import html
import http.client
import re
import subprocess
import time
import urllib.request

import pytest
from selenium.webdriver.common.by import By

from conftest import Server

BOOKS = 1_000_000
LARGE = 60_000
TOPICS = 2_500
PAGE_BYTES_MAX = 60 << 10


def rows():
    """Books in an order that is not that of their topics."""
    yield "id,title,topic,stock,price\n"
    for number in range(1, BOOKS + 1):
        topic = "the largest topic" if number % (BOOKS // LARGE) == 0 and number <= LARGE * (BOOKS // LARGE) else \
            f"topic {number % (TOPICS - 1):04}"
        yield f"{number},A Title of Book {number},{topic},5,9.99\n"


@pytest.fixture(scope="module")
def shop(quire, tmp_path_factory):
    folder = tmp_path_factory.mktemp("large")
    (folder / "books.csv").write_text("".join(rows()))
    subprocess.run([quire, "import", "books.csv", "--no-sample", "--data", "data"], cwd=folder, check=True)
    server = Server(quire, folder)
    yield server
    server.stop()


def walk(address, path, found):
    """Follows the links to the next page; the matches of all pages, and the slowest page in seconds."""
    connection = http.client.HTTPConnection(address)
    matches, slowest = [], 0
    while path:
        began = time.perf_counter()
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        page = answer.read().decode()
        slowest = max(slowest, time.perf_counter() - began)
        assert answer.status == 200, path
        matches += re.findall(found, page)
        link = re.search(r'rel="next" href="([^"]+)"', page)
        path = link and html.unescape(link[1])
    return matches, slowest


def test_every_book_of_a_topic_of_60000_is_on_one_page(shop):
    books, slowest = walk(shop.address, "/shop/topic?name=the%20largest%20topic", r'href="/shop/book\?id=(\d+)"')
    assert [int(book) for book in books] == [(BOOKS // LARGE) * number for number in range(1, LARGE + 1)]
    print(f"the slowest page of a topic: {slowest * 1000:.1f} ms")


def test_every_topic_is_on_one_page(shop):
    topics, slowest = walk(shop.address, "/shop/topics", r'href="/shop/topic\?name=([^"]+)"')
    assert len(topics) == TOPICS and topics == sorted(set(topics))
    print(f"the slowest page of topics: {slowest * 1000:.1f} ms")


@pytest.mark.parametrize("path", ["/", "/shop/topics", "/shop/topic?name=the%20largest%20topic", "/shop/search?q=title",
                                  "/shop/search?q=999999", "/admin/catalogue"])
def test_a_page_is_small(shop, path):
    asked = urllib.request.Request(f"http://{shop.address}{path}", headers={"Accept": "text/html", "Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=30) as answer:
        assert answer.status == 200
        assert len(answer.read()) <= PAGE_BYTES_MAX


def test_a_browser_turns_the_pages_of_the_topic(shop, chromium):
    chromium.get(f"http://{shop.address}/shop/topic?name=the%20largest%20topic")
    assert "60,000" in chromium.find_element(By.CSS_SELECTOR, ".count").text
    first = chromium.find_element(By.CSS_SELECTOR, ".books .card").get_attribute("href")
    chromium.find_element(By.CSS_SELECTOR, 'a[rel="next"]').click()
    second = chromium.find_element(By.CSS_SELECTOR, ".books .card").get_attribute("href")
    assert (first.split("=")[1], second.split("=")[1]) == ("16", str(16 * 49))
