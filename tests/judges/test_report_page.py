"""The page of a measurement, opened in a browser: its figures, what it asks for, and whether it fits."""

import json
import os
import pathlib
import shutil
import statistics
import subprocess

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from conftest import ROOT

WIDTHS = [360, 768, 1600]
NAMES = ["open", "closed", "runs", "invalid", "nothing", "answers"]


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    """A folder of made-up measurements, each as JSON and as a page."""
    built = pathlib.Path(os.environ.get("JUDGED_BINARY", ROOT / "target/debug/quire")).absolute().parent
    example = built / "examples/sample_reports"
    if not example.exists():
        pytest.exit(f"{example} is not there; run `make test`, which builds it")
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([example, folder], check=True, timeout=300)
    return folder


@pytest.fixture(scope="session")
def chromium(tmp_path_factory):
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not browser or not driver:
        pytest.exit("chromium and chromedriver are not there; run `make test`, which installs them")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    for flag in ["headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking",
                 "disable-component-update", "disable-sync", "hide-scrollbars", "disable-dev-shm-usage",
                 f"user-data-dir={tmp_path_factory.mktemp('profile')}"]:
        options.add_argument(f"--{flag}")
    chromium = webdriver.Chrome(options, webdriver.ChromeService(driver))
    chromium.set_page_load_timeout(60)
    yield chromium
    chromium.quit()


@pytest.fixture
def look(chromium, samples):
    """Opens a page at a width in a colour scheme."""

    def look(name, width=1280, scheme="light"):
        chromium.execute_cdp_cmd("Emulation.setEmulatedMedia",
                                 {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        chromium.execute_cdp_cmd("Emulation.setDeviceMetricsOverride",
                                 {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False})
        chromium.get((samples / f"{name}.html").as_uri())
        return chromium

    return look


def figures(page):
    """The page's figures by their keys, as programs read them."""
    found = page.find_elements(By.CSS_SELECTOR, "data[data-figure]")
    return {figure.get_attribute("data-figure"): figure.get_attribute("value") for figure in found}


def verdicts(page):
    return [said.get_attribute("data-verdict") for said in page.find_elements(By.CSS_SELECTOR, "[data-verdict]")]


@pytest.mark.parametrize("name", ["open", "closed", "invalid", "runs"])
def test_figures_on_the_page_are_those_of_the_saved_report(look, samples, name):
    runs = json.loads((samples / f"{name}.json").read_text())["runs"]
    shown = figures(look(name))
    assert float(shown["rate"]) == statistics.median(run["rate"] for run in runs)
    assert float(shown["errors"]) == statistics.median(run["errors"] for run in runs)
    for key in ["mean_us", "p50_us", "p90_us", "p99_us", "p999_us", "max_us"]:
        assert float(shown[key]) == statistics.median(run["response"][key] for run in runs), key
    for run in runs:
        for ending in run["endings"]:
            assert int(shown[f"ending:{ending}"]) == sum(run["endings"].get(ending, 0) for run in runs)
    for kind in ["response", "service", "lag", "first_byte"]:
        count = sum(run[kind]["count"] for run in runs)
        assert int(shown.get(f"{kind}.count", 0)) == count
        if len(runs) == 1 and count:
            assert float(shown[f"{kind}.p99_us"]) == runs[0][kind]["p99_us"]
    if len(runs) > 1:
        assert [float(shown[f"run{number}.p99_us"]) for number in range(1, len(runs) + 1)] == [
            run["response"]["p99_us"] for run in runs]


@pytest.mark.parametrize("name, said", [
    ("open", ["valid"]), ("runs", ["valid"]), ("invalid", ["invalid", "interrupted"]), ("nothing", ["empty"])])
def test_the_page_says_first_whether_to_believe_it(look, samples, name, said):
    page = look(name)
    assert verdicts(page) == said
    reasons = [reason.text for reason in page.find_elements(By.CSS_SELECTOR, "[data-verdict=invalid] li")]
    report = json.loads((samples / f"{name}.json").read_text())
    assert reasons == [reason for run in report["runs"] for reason in run["verdict"]["reasons"]]
    places = page.execute_script(
        "return ['.banner', '.cards'].map(what => document.querySelector(what).getBoundingClientRect().top)")
    assert places == sorted(places)


def test_a_page_of_nothing_has_no_times_and_no_charts(look):
    page = look("nothing")
    assert float(figures(page)["rate"]) == 0
    assert not [key for key in figures(page) if key.endswith("p99_us")]
    assert not page.find_elements(By.TAG_NAME, "svg")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_asks_for_nothing_but_itself(chromium, look, name):
    chromium.get_log("performance"), chromium.get_log("browser")
    address = look(name).current_url
    events = [json.loads(entry["message"])["message"] for entry in chromium.get_log("performance")]
    asked = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    assert address in asked
    assert [url for url in asked if url != address and not url.startswith("data:")] == []
    assert chromium.get_log("browser") == []
    assert not chromium.find_elements(By.TAG_NAME, "script")


# What sticks out of the page or its box, is too small to read, or lies on other words.
FAULTS = """
const faults = [];
const about = element => `${element.tagName}.${element.getAttribute('class')} '${element.textContent.trim().slice(0, 40)}'`;
if (document.documentElement.scrollWidth > innerWidth) faults.push(`page is ${document.documentElement.scrollWidth} wide`);
for (const box of document.querySelectorAll('.card, .banner, figure, h1, .lead')) {
    if (box.scrollWidth > box.clientWidth + 1) faults.push(`${about(box)} overflows`);
}
for (const head of document.querySelectorAll('tbody th')) {
    const lines = head.getBoundingClientRect().height / parseFloat(getComputedStyle(head).lineHeight);
    if (head.textContent.length / lines < 8 && lines > 4) faults.push(`${about(head)} is ${lines} lines high`);
}
for (const chart of document.querySelectorAll('svg')) {
    if (getComputedStyle(chart).display === 'none') continue;
    const scale = chart.getBoundingClientRect().width / chart.viewBox.baseVal.width;
    const card = chart.closest('figure').getBoundingClientRect();
    const words = [...chart.querySelectorAll('text')].map(word => [word, word.getBoundingClientRect()]);
    words.forEach(([word, box], index) => {
        const size = parseFloat(getComputedStyle(word).fontSize) * scale;
        if (size < 10.5 || size > 20) faults.push(`${about(word)} is ${size} px`);
        if (box.left < card.left || box.right > card.right || box.bottom > card.bottom) faults.push(`${about(word)} is cut`);
        for (const [other, its] of words.slice(index + 1)) {
            const [wide, high] = [Math.min(box.right, its.right) - Math.max(box.left, its.left),
                                  Math.min(box.bottom, its.bottom) - Math.max(box.top, its.top)];
            if (wide > 1 && high > 4) faults.push(`${about(word)} lies on ${about(other)}`);
        }
    });
}
return faults;
"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_everything_fits_and_can_be_read_at_any_width(look, name, width):
    assert look(name, width).execute_script(FAULTS) == []


@pytest.mark.parametrize("name", ["open", "closed", "runs"])
@pytest.mark.parametrize("width", WIDTHS)
def test_each_chart_is_shown_once(look, name, width):
    page = look(name, width)
    shown = [len([svg for svg in figure.find_elements(By.TAG_NAME, "svg") if svg.is_displayed()])
             for figure in page.find_elements(By.TAG_NAME, "figure")]
    assert len(shown) >= 5 and set(shown) == {1}


COLOURS = """
const colour = (selector, property) => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = getComputedStyle(document.querySelector(selector))[property];
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
return {page: colour('body', 'backgroundColor'), surface: colour('figure', 'backgroundColor'),
        ink: colour('body', 'color'), soft: colour('figcaption p', 'color'), tick: colour('svg .tick', 'fill'),
        banner: colour('.banner', 'backgroundColor'), said: colour('.banner b', 'color'),
        series: colour('svg .bar', 'fill'), error: colour('.card.bad data', 'color')};
"""


def contrast(one, other):
    """As the W3C's accessibility guidelines define it."""

    def luminance(colour):
        parts = [part / 255 for part in colour]
        parts = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return sum(weight * part for weight, part in zip([0.2126, 0.7152, 0.0722], parts))

    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("name", ["open", "invalid"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_and_marks_stand_out_in_both_colour_schemes(look, name, scheme):
    colours = look(name, scheme=scheme).execute_script(COLOURS)
    assert (sum(colours["page"]) > 3 * 128) == (scheme == "light")
    for word, behind in [("ink", "page"), ("ink", "surface"), ("soft", "surface"), ("soft", "page"), ("tick", "surface"),
                         ("said", "banner"), ("ink", "banner"), ("error", "surface")]:
        assert contrast(colours[word], colours[behind]) >= 4.5, (word, behind, colours)
    assert contrast(colours["series"], colours["surface"]) >= 3, colours


def test_each_chart_is_told_to_readers_who_cannot_see_it(look):
    page = look("open")
    charts = [svg for svg in page.find_elements(By.TAG_NAME, "svg") if svg.is_displayed()]
    names = [chart.accessible_name for chart in charts]
    assert all(names) and len(set(names)) == len(names)
    assert all(chart.aria_role in ("img", "image") for chart in charts)
    abouts = [page.find_element(By.ID, chart.get_attribute("aria-describedby")).get_attribute("textContent")
              for chart in charts]
    assert any("p99" in about and "ms" in about for about in abouts)
