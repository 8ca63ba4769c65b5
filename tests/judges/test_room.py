"""The operator's room in Chromium: signing in, restocking with and without script, forged forms, live parts, widths, accessibility."""

import urllib.error
import urllib.parse
import urllib.request

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By

from conftest import Server
from test_storefront import ROWS, browser, found, judged, look, shop, stock, until  # noqa: F401

TOKEN = "a token of operators"


@pytest.fixture
def closed(quire, tmp_path):
    server = Server(quire, tmp_path, "--set", f"admin.token={TOKEN}")
    yield server
    server.stop()


def sign_in(browser, server):
    browser.get(f"http://{server.address}/admin")
    found(browser, "#token").send_keys(TOKEN)
    found(browser, ".sign-in button").click()
    until(browser, lambda: browser.find_elements(By.ID, "lost"))


def outcome(browser):
    return found(browser, ".outcome").text


def test_an_operator_restocks_and_sees_it_in_the_log_and_in_the_shop(browser, shop):
    browser.get(f"http://{shop.address}/shop/book?id=8")
    window = browser.current_window_handle
    assert stock(browser) == "Sold out"
    browser.switch_to.new_window("window")
    browser.get(f"http://{shop.address}/admin/catalogue/book?id=8")
    amount = found(browser, "form[action='/admin/catalogue/restock'] input[name=amount]")
    amount.clear()
    amount.send_keys("9")
    ActionChains(browser).double_click(found(browser, "form[action='/admin/catalogue/restock'] button:not(.quiet)")).perform()
    assert "9" in outcome(browser)
    browser.get(f"http://{shop.address}/admin/log")
    kinds = [element.text for element in browser.find_elements(By.CSS_SELECTOR, ".log .kind")]
    assert kinds.count("restock") == 1, kinds
    browser.switch_to.window(window)
    until(browser, lambda: stock(browser) == "9 in stock")
    assert [line for line in browser.get_log("browser") if line["level"] == "SEVERE"] == []


def test_a_double_click_adds_one_book(browser, shop):
    browser.get(f"http://{shop.address}/admin/catalogue/add")
    form = found(browser, "form[action='/admin/catalogue/add']")
    for name, value in [("title", "Once and Only"), ("topic", "clicks"), ("stock", "3"), ("price", "1.50")]:
        field = form.find_element(By.NAME, name)
        field.clear()
        field.send_keys(value)
    ActionChains(browser).double_click(form.find_element(By.CSS_SELECTOR, "button:not(.quiet)")).perform()
    until(browser, lambda: "is added" in outcome(browser))
    browser.get(f"http://{shop.address}/admin/catalogue?q=once+and+only")
    assert len(browser.find_elements(By.CSS_SELECTOR, "a[href^='/admin/catalogue/book?id=']")) == 1


def test_a_double_click_keeps_one_backup(browser, shop, tmp_path):
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path / "kept")})
    browser.get(f"http://{shop.address}/admin/backups")
    ActionChains(browser).double_click(found(browser, "form[action='/admin/backups'] button:not(.quiet)")).perform()
    until(browser, lambda: list((tmp_path / "kept").glob("*.backup")))
    assert len(list((tmp_path / "kept").iterdir())) == 1


STREAM = """
window.EventSource = class extends EventSource { constructor(...given) { super(...given); window.stream = this; } };
window.sendPart = (id, html) => stream.dispatchEvent(new MessageEvent("part", { data: JSON.stringify({ id, html }) }));
"""


def test_a_part_in_use_is_renewed_when_it_is_left_and_one_without_a_button_at_once(browser, shop):
    added = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": STREAM})
    try:
        browser.get(f"http://{shop.address}/admin")
        until(browser, lambda: found(browser, ".live").text == "Live")
        run = browser.execute_script
        run("stream.close(); sendPart('callers', '<button>first</button>')")
        run("document.querySelector('#callers button').focus()")
        run("sendPart('callers', '<button>second</button>'); sendPart('callers', '<button>third</button>')")
        assert found(browser, "#callers").text == "first"
        run("document.activeElement.blur()")
        until(browser, lambda: found(browser, "#callers").text == "third")
        run("sendPart('recent', '<a href=\"#\">old</a>'); document.querySelector('#recent a').focus(); sendPart('recent', 'new')")
        assert found(browser, "#recent").text == "new"
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": added["identifier"]})


def verdict(browser, shop):
    browser.get(f"http://{shop.address}/admin")
    return [element.text for element in browser.find_elements(By.CSS_SELECTOR, ".verdict")]


def test_everything_works_without_script(browser, shop):
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    until(browser, lambda: verdict(browser, shop) == ["Every acknowledged sale is committed"])
    browser.get(f"http://{shop.address}/admin/catalogue/book?id=8")
    found(browser, "form[action='/admin/catalogue/restock'] button:not(.quiet)").click()
    assert "20" in outcome(browser)
    browser.refresh()
    assert "20" in outcome(browser)


def test_a_wrong_token_a_session_that_is_over_and_a_forged_form(browser, closed):
    browser.get(f"http://{closed.address}/admin/log")
    found(browser, "#token").send_keys("wrong")
    found(browser, ".sign-in button").click()
    until(browser, lambda: "not known" in found(browser, ".refused").text)
    sign_in(browser, closed)
    browser.get(f"http://{closed.address}/admin/catalogue")
    form = f"<form method=post action='http://{closed.address}/admin/catalogue/restock-all'><input name=amount value=5><button>x</button></form>"
    browser.get("data:text/html," + urllib.parse.quote(form))
    found(browser, "button").click()
    until(browser, lambda: "did not come from the room" in found(browser, "h1").text)
    browser.get(f"http://{closed.address}/admin/catalogue")
    found(browser, "form[action='/admin/catalogue/restock-all'] button")
    closed.restart()
    found(browser, "form[action='/admin/catalogue/restock-all'] button").click()
    until(browser, lambda: "nothing was done" in found(browser, ".refused").text)


def test_the_overview_follows_what_happens_and_a_server_that_starts_again(browser, shop):
    browser.get(f"http://{shop.address}/admin")
    until(browser, lambda: found(browser, ".live").text == "Live")
    shop.restart()
    buy(shop, 9)
    until(browser, lambda: "purchase" in found(browser, "#recent").text)
    until(browser, lambda: found(browser, ".live").text == "Live")


def buy(shop, book):
    page = urllib.request.urlopen(f"http://{shop.address}/shop/book?id={book}").read().decode()
    key = page.split('name="key" value="')[1].split('"')[0]
    form = urllib.parse.urlencode({"book": book, "key": key}).encode()
    urllib.request.urlopen(f"http://{shop.address}/shop/buy", form).read()


PAGES = ["/admin", "/admin/catalogue", "/admin/catalogue/book?id=7", "/admin/catalogue/add", "/admin/catalogue/import", "/admin/log", "/admin/sales", "/admin/keys", "/admin/records", "/admin/work",
         "/admin/settings", "/admin/backups", "/admin/errors", "/admin/nothing"]


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_320_pixels_and_axe_finds_nothing(browser, shop, path):
    browser.set_script_timeout(60)
    browser.get(f"http://{shop.address}{path}")
    for width, theme in [(320, "light"), (1280, "light"), (1280, "dark")]:
        look(browser, width, theme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert judged(browser) == [], (width, theme)


def test_the_form_for_a_token_is_accessible(browser, closed):
    browser.set_script_timeout(60)
    browser.get(f"http://{closed.address}/admin")
    for width, theme in [(320, "light"), (1280, "dark")]:
        look(browser, width, theme)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert judged(browser) == [], (width, theme)


def test_another_name_of_this_machine_opens_no_room(shop):
    request = urllib.request.Request(f"http://{shop.address}/admin", headers={"host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request)
    assert refused.value.code == 421
