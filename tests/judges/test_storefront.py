"""The storefront in Chromium: buying exactly once with and without script, live stock, widths, accessibility, types."""

import gzip
import pathlib
import re
import subprocess
import urllib.request

import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from conftest import ROOT, Server, judge

ROWS = "id,title,topic,stock,price\n7,The Last Three,scarcity,3,9.99\n8,Gone before Noon,scarcity,0,14.50\n9,Plenty,scarcity,100,2\n"


@pytest.fixture
def shop(quire, tmp_path):
    (tmp_path / "books.csv").write_text(ROWS)
    subprocess.run([quire, "import", "books.csv", "--data", "data"], cwd=tmp_path, check=True)
    server = Server(quire, tmp_path)
    yield server
    server.stop()


@pytest.fixture
def browser(chromium):
    chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                             {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    yield chromium
    chromium.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
    first, *others = chromium.window_handles
    for window in others:
        chromium.switch_to.window(window)
        chromium.close()
    chromium.switch_to.window(first)


def until(browser, condition):
    # An element may be of the page before.
    patient = WebDriverWait(browser, 20, ignored_exceptions=[StaleElementReferenceException])
    return patient.until(lambda _: condition())


def found(browser, selector):
    return until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, selector))[0]


def sold(shop):
    samples = shop.metrics()["quire_purchases"].samples
    return {sample.labels["outcome"]: int(sample.value) for sample in samples}["bought"]


def stock(browser):
    return browser.execute_script("return document.querySelector('.particulars .stock').textContent")


def key(browser):
    return browser.execute_script("return document.querySelector('main form[data-buy] input[name=key]').value")


def close_dialog(browser):
    """Closes the dialog, and waits for the form with a new key."""
    before = key(browser)
    found(browser, "#outcome form[method=dialog] button").click()
    until(browser, lambda: key(browser) != before)


def test_two_windows_buy_a_book_to_sold_out_and_see_the_stock_fall(browser, shop):
    address = f"http://{shop.address}/shop/book?id=7"
    browser.get(address)
    one = browser.current_window_handle
    browser.switch_to.new_window("window")
    two = browser.current_window_handle
    browser.get(address)
    for window, other, left in [(two, one, "Only 2 left"), (one, two, "Only 1 left"), (two, one, "Sold out")]:
        browser.switch_to.window(window)
        found(browser, "main form[data-buy] button").click()
        until(browser, lambda: found(browser, "#outcome").get_attribute("open"))
        assert found(browser, "#outcome [data-outcome]").get_attribute("data-outcome") == "bought"
        until(browser, lambda left=left: stock(browser) == left)
        close_dialog(browser)
        browser.switch_to.window(other)
        until(browser, lambda left=left: stock(browser) == left)
    assert not found(browser, "main form[data-buy] button").is_enabled()
    assert "The last copy is gone" in found(browser, ".particulars").text
    assert sold(shop) == 3
    browser.get(f"http://{shop.address}/shop/purchases")
    assert len(browser.find_elements(By.CSS_SELECTOR, "tbody tr")) == 3
    assert "29.97" in found(browser, "tfoot").text
    assert browser.get_log("browser") == []


def test_a_double_click_buys_once_with_script(browser, shop):
    browser.get(f"http://{shop.address}/shop/book?id=9")
    ActionChains(browser).double_click(found(browser, "main form[data-buy] button")).perform()
    until(browser, lambda: found(browser, "#outcome").get_attribute("open"))
    receipt = found(browser, "#outcome .onward a").get_attribute("href")
    browser.get(receipt)
    browser.refresh()
    assert found(browser, "[data-outcome]").get_attribute("data-outcome") == "bought"
    assert sold(shop) == 1


def test_a_double_click_a_reload_and_the_back_button_buy_once_without_script(browser, shop):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    browser.get(f"http://{shop.address}/shop/book?id=9")
    ActionChains(browser).double_click(found(browser, "main form[data-buy] button")).perform()
    until(browser, lambda: found(browser, ".slip .kicker").text.startswith("Bought"))
    browser.refresh()
    until(browser, lambda: found(browser, ".slip .kicker").text.startswith("Bought"))
    browser.back()
    found(browser, ".particulars form[data-buy] button").click()
    until(browser, lambda: found(browser, ".slip .kicker").text == "Bought once, earlier")
    assert sold(shop) == 1
    found(browser, ".after form[data-buy] button").click()
    until(browser, lambda: found(browser, ".slip .kicker").text == "Bought")
    assert sold(shop) == 2


def test_results_come_while_one_types_and_the_back_button_leaves_them(browser, shop):
    browser.get(f"http://{shop.address}/")
    found(browser, "#q").send_keys("scarc")
    until(browser, lambda: "/shop/search?q=scarc" in browser.current_url)
    assert "scarcity" in found(browser, ".results .topics").text
    assert browser.switch_to.active_element.get_attribute("id") == "q"
    found(browser, "#q").send_keys("xyz")
    until(browser, lambda: "Nothing for" in found(browser, "main").text)
    browser.back()
    until(browser, lambda: browser.find_elements(By.CSS_SELECTOR, ".hero"))


def test_a_page_follows_a_server_that_starts_again(browser, shop):
    browser.get(f"http://{shop.address}/shop/book?id=12365")
    assert stock(browser) == "1,000 in stock"
    shop.restart()
    body = b"book=12365&key=" + re.search(rb'name="key" value="([^"]+)"', urllib.request.urlopen(browser.current_url).read())[1]
    urllib.request.urlopen(f"http://{shop.address}/shop/buy", body).read()
    until(browser, lambda: stock(browser) == "999 in stock")


PAGES = ["/", "/shop/topics", "/shop/topic?name=scarcity", "/shop/search?q=the", "/shop/search?q=zygomorphic", "/shop/search",
         "/shop/book?id=7", "/shop/book?id=8", "/shop/book?id=4711", "/shop/topic?name=scarcety", "/shop/purchases", "/shop/nothing",
         "/openapi"]


def look(browser, width, theme):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
        {"name": "prefers-color-scheme", "value": theme}, {"name": "prefers-reduced-motion", "value": "reduce"}]})


AXE = "const done = arguments[0]; axe.run(document).then(found => done(found.violations.map(each => " \
      "[each.id, each.nodes.slice(0, 4).map(node => node.html + ' ' + node.failureSummary)])))"


def judged(browser):
    """What axe-core finds; it is run apart from the page's policy."""
    browser.execute_script(pathlib.Path(judge("../browser/node_modules/axe-core/axe.min.js")).read_text())
    return browser.execute_async_script(AXE)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_320_pixels_and_axe_finds_nothing(browser, shop, path):
    browser.set_script_timeout(60)
    browser.get(f"http://{shop.address}{path}")
    for width, theme in [(320, "light"), (1280, "light"), (1280, "dark")]:
        look(browser, width, theme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert judged(browser) == [], (width, theme)


def test_a_receipt_and_its_dialog_are_accessible(browser, shop):
    browser.set_script_timeout(60)
    browser.get(f"http://{shop.address}/shop/book?id=9")
    found(browser, "main form[data-buy] button").click()
    until(browser, lambda: found(browser, "#outcome").get_attribute("open"))
    assert judged(browser) == []
    browser.get(found(browser, "#outcome .onward a").get_attribute("href"))
    assert judged(browser) == []


def test_the_first_page_of_a_large_shop_is_small(quire, tmp_path):
    subprocess.run([quire, "generate", "catalogue", "--rows", "30000", "--seed", "3", "--out", "books.csv"], cwd=tmp_path, check=True)
    subprocess.run([quire, "import", "books.csv", "--data", "data"], cwd=tmp_path, check=True)
    server = Server(quire, tmp_path)

    def fetch(path):
        request = urllib.request.Request(f"http://{server.address}{path}", headers={"accept": "text/html"})
        return urllib.request.urlopen(request, timeout=30).read()

    page = fetch("/")
    files = sorted(set(re.findall(rb'"(/shop/assets/[^"]+)"', page)))
    assert len(files) == 5
    size = sum(len(gzip.compress(part, 6)) for part in [page, *(fetch(file.decode()) for file in files)])
    assert size < 60 * 1024, size
    server.stop()


def test_the_scripts_hold_their_types():
    tsc = judge("../browser/node_modules/.bin/tsc")
    scripts = sorted(str(path) for path in (ROOT / "server/web/assets").glob("*.js"))
    done = subprocess.run([tsc, "--checkJs", "--noEmit", "--strict", "--target", "es2022", "--module", "es2022", "--moduleDetection",
                           "force", "--lib", "es2022,dom,dom.iterable", "--ignoreConfig", *scripts],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout
