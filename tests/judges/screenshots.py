"""Every page of the storefront and of the operator's room, in both themes and three widths, into target/screenshots: `make screenshots`."""

import base64
import contextlib
import pathlib
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import urllib.parse
import urllib.request

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conftest import ROOT, Server

OUT = ROOT / "target/screenshots"
WIDTHS = [320, 768, 1280]
THEMES = ["light", "dark"]
SCARCE = "id,title,topic,stock,price\n7,The Last Three,scarcity,3,9.99\n8,Gone before Noon,scarcity,0,14.5\n9,A Longer Title about What Is Left When Nearly Everything Was Sold,scarcity,41,120\n"


@contextlib.contextmanager
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ["headless", "no-sandbox", "disable-gpu", "hide-scrollbars", "disable-dev-shm-usage", "lang=en"]:
        options.add_argument(f"--{flag}")
    chromium = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield chromium
    finally:
        chromium.quit()


@contextlib.contextmanager
def served(quire, books, *flags, prepare=lambda folder: None):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        if books:
            books(folder / "books.csv")
            subprocess.run([quire, "import", "books.csv", "--data", "data"], cwd=folder, check=True, capture_output=True)
        prepare(folder)
        server = Server(quire, folder, *flags)
        try:
            yield server
        finally:
            server.stop()


class Camera:
    """Takes a page in every theme and width."""

    def __init__(self, chromium, only):
        self.chromium, self.only = chromium, only

    def look(self, width, theme):
        self.chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                      {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        self.chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})

    def take(self, name, url=None, act=lambda chromium: None):
        if self.only and self.only not in name:
            return
        if url:
            self.chromium.get(url)
        act(self.chromium)
        for width in WIDTHS:
            for theme in THEMES:
                self.look(width, theme)
                size = self.chromium.execute_script("return [document.documentElement.scrollWidth, document.documentElement.scrollHeight]")
                if size[0] > width:
                    print(f"{name} is {size[0]} wide at {width}")
                clip = {"x": 0, "y": 0, "width": width, "height": min(size[1], 2600), "scale": 1}
                shot = self.chromium.execute_cdp_cmd("Page.captureScreenshot",
                                                     {"format": "png", "captureBeyondViewport": True, "clip": clip})
                (OUT / f"{name}-{width}-{theme}.png").write_bytes(base64.b64decode(shot["data"]))


def press_buy(chromium):
    chromium.execute_script("document.querySelector('main form[data-buy]').submit()")
    WebDriverWait(chromium, 20).until(lambda _: chromium.find_elements(By.CSS_SELECTOR, "[data-outcome]"))


def small_shop(camera, quire):
    with served(quire, lambda path: path.write_text(SCARCE)) as server:
        base = f"http://{server.address}"
        camera.take("front-small", f"{base}/")
        camera.take("topic-small", f"{base}/shop/topic?name=scarcity")
        camera.take("book", f"{base}/shop/book?id=12365")
        camera.take("book-low", f"{base}/shop/book?id=7")
        camera.take("book-out", f"{base}/shop/book?id=8")
        camera.take("book-long", f"{base}/shop/book?id=9")
        camera.take("no-book", f"{base}/shop/book?id=4711")
        camera.take("no-topic", f"{base}/shop/topic?name=" + urllib.parse.quote("distributed sistems"))
        camera.take("no-page", f"{base}/shop/nothing")
        camera.take("no-receipt", f"{base}/shop/receipt?number=1&key=x")
        camera.take("search-none", f"{base}/shop/search?q=zygomorphic")
        camera.take("search-start", f"{base}/shop/search")
        camera.take("purchases-none", f"{base}/shop/purchases")
        camera.chromium.get(f"{base}/shop/book?id=12365")
        press_buy(camera.chromium)
        camera.take("receipt")
        camera.chromium.get(f"{base}/shop/book?id=12365")

        def by_dialog(chromium):
            chromium.find_element(By.CSS_SELECTOR, "main form[data-buy] button").click()
            WebDriverWait(chromium, 20).until(lambda _: chromium.find_element(By.ID, "outcome").get_attribute("open"))
        camera.take("dialog", None, by_dialog)
        for book in [53477, 9, 7]:
            camera.chromium.get(f"{base}/shop/book?id={book}")
            press_buy(camera.chromium)
        camera.take("purchases", f"{base}/shop/purchases")
        camera.take("openapi", f"{base}/openapi")
        camera.chromium.get(f"{base}/shop/book?id=8")
        press_buy(camera.chromium)
        camera.take("sold-out")
        # Another program holds the file's lock for longer than the store waits.
        with sqlite3.connect(server.folder / "data/bookstore.db", isolation_level=None) as other:
            other.execute("BEGIN IMMEDIATE")
            camera.chromium.get(f"{base}/shop/book?id=12365")
            press_buy(camera.chromium)
            camera.take("paused")
            camera.take("book-paused", f"{base}/shop/book?id=12365")
            other.execute("ROLLBACK")


def large_shop(camera, quire):
    def books(path):
        subprocess.run([quire, "generate", "catalogue", "--rows", "30000", "--seed", "5", "--out", path], check=True, capture_output=True)

    with served(quire, books) as server:
        base = f"http://{server.address}"
        camera.take("front", f"{base}/")
        camera.take("topics", f"{base}/shop/topics")
        camera.take("topic", f"{base}/shop/topic?name=databases")
        camera.take("search", f"{base}/shop/search?q=consensus")
        camera.take("search-topic", f"{base}/shop/search?q=cooking")


def empty_shop(camera, quire):
    def empty(folder):
        server = Server(quire, folder)
        server.stop()
        with sqlite3.connect(folder / "data/bookstore.db") as store:
            store.execute("DELETE FROM book")

    with served(quire, None, prepare=empty) as server:
        camera.take("front-empty", f"http://{server.address}/")


def closed_shop(camera, quire):
    def tokens(folder):
        made = subprocess.run([quire, "token", "new", "--scope", "shop", "--name", "shopper"], cwd=folder,
                              capture_output=True, text=True, check=True).stdout.splitlines()
        (folder / "tokens").write_text(made[1] + "\n")

    with served(quire, None, "--set", "server.tokens=tokens", prepare=tokens) as server:
        camera.take("sign-in", f"http://{server.address}/")


ROWS = "name,colour,year\n" + "".join(f"Ship {row},{['red', 'blue', 'grey'][row % 3]},{1900 + row % 90}\n" for row in range(3000))


def room(camera, quire):
    def rows(folder):
        (folder / "rows.csv").write_text(ROWS)

    with served(quire, lambda path: path.write_text(SCARCE), "--set", "records.csv=rows.csv", prepare=rows) as server:
        base = f"http://{server.address}"
        for key, value in [("user/1", '{"name":"Ada","books":[7,9]}'), ("user/2", '{"name":"Grace"}'), ("flag", "on")]:
            subprocess.run([quire, "kv", server.address, "create", key, value], check=True, capture_output=True)
        for book in [9] * 8 + [7, 12365, 53477]:
            camera.chromium.get(f"{base}/shop/book?id={book}")
            press_buy(camera.chromium)
        for name, path in [("overview", ""), ("catalogue", "/catalogue"), ("book", "/catalogue/book?id=9"), ("add", "/catalogue/add"), ("import", "/catalogue/import"), ("log", "/log"), ("sales", "/sales?by=book"), ("keys", "/keys"),
                           ("key", "/keys/entry?key=user/1"), ("records", "/records?column=colour&value=grey"), ("work", "/work"),
                           ("settings", "/settings"), ("backups", "/backups"), ("errors", "/errors"), ("no-page", "/nothing")]:
            camera.take(f"room-{name}", f"{base}/admin{path}")
    with served(quire, None, "--set", "admin.token=a token of operators") as server:
        camera.take("room-sign-in", f"http://{server.address}/admin")


def main(quire, only=""):
    OUT.mkdir(parents=True, exist_ok=True)
    with browser() as chromium:
        camera = Camera(chromium, only)
        for shop in [small_shop, large_shop, empty_shop, closed_shop, room]:
            shop(camera, str(pathlib.Path(quire).absolute()))
    print(f"{len(list(OUT.glob('*.png')))} pictures in {OUT}")


if __name__ == "__main__":
    main(*sys.argv[1:])
