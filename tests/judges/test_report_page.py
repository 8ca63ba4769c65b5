"""The page of a measurement, opened in a browser: its figures, what it asks for, and whether it fits."""

import json
import statistics
import subprocess

import pytest
from selenium.webdriver.common.by import By

from conftest import ROOT

WIDTHS = [360, 500, 768, 1600]
NAMES = ["open", "closed", "runs", "invalid", "nothing", "overload", "answers"]


@pytest.fixture(scope="session")
def samples(tmp_path_factory):
    """A folder of made-up measurements, each as JSON and as a page."""
    example = ROOT / "target/debug/examples/sample_reports"
    if not example.exists():
        pytest.exit(f"{example} is not there; run `make judges`, which builds it")
    folder = tmp_path_factory.mktemp("samples")
    subprocess.run([example, folder], check=True, timeout=300)
    return folder


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
    ("open", ["valid"]), ("runs", ["valid"]), ("invalid", ["invalid", "interrupted"]), ("nothing", ["empty"]),
    ("overload", ["invalid", "doubtful"])])
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
    const words = document.createRange();
    words.selectNodeContents(head);
    const lines = words.getBoundingClientRect().height / parseFloat(getComputedStyle(head).lineHeight);
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


CUT = """
const cut = [];
for (const table of document.querySelectorAll('.scroll')) {
    if (table.scrollWidth > table.clientWidth + 1) cut.push(`${table.getAttribute('aria-label')} has to be scrolled`);
}
for (const value of document.querySelectorAll('data, th, td')) {
    const box = value.getBoundingClientRect();
    if (box.width && (box.left < 0 || box.right > innerWidth)) cut.push(`'${value.textContent.trim()}' is cut off`);
}
return cut;
"""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [360, 500, 620, 768])
def test_no_figure_is_cut_off_on_a_narrow_screen(look, name, width):
    assert look(name, width).execute_script(CUT) == []


def test_a_narrow_table_names_each_of_its_figures(look):
    page = look("open", 500)
    named = page.execute_script("""return [...document.querySelectorAll('table.wide td')].map(cell =>
        [getComputedStyle(cell, '::before').content, cell.textContent.trim()])""")
    assert '"p99.9"' in [name for name, _ in named] and all(name not in ("none", '""') for name, _ in named)


@pytest.mark.parametrize("name, title", [
    ("overload", "GET http://127.0.0.1:10086/search?topic=distributed%20systems"),
    ("closed", "quire.bookstore.v1.BookStore/Buy")])
def test_the_title_names_the_request_and_where_it_goes(look, name, title):
    page = look(name)
    assert page.find_element(By.TAG_NAME, "h1").text == title == page.title


@pytest.mark.parametrize("name", NAMES)
def test_the_page_says_when_with_what_and_where_it_was_measured(look, name):
    origin = look(name).find_element(By.CSS_SELECTOR, ".origin").text
    assert origin.startswith("Measured 20" if name != "nothing" else "Measured 1970")
    assert all(part in origin for part in [" UTC", "quire-bench 0.1.0", "Example CPU", "2 cores", "Linux"])


def test_an_open_loop_speaks_of_connections_and_a_closed_one_of_clients(look):
    for name, who, other in [("open", "connection", "client"), ("closed", "client", "connection")]:
        titles = [title.text for title in look(name).find_elements(By.CSS_SELECTOR, "figure h3")]
        assert f"Finish times by {who}" in titles and f"Finish times by {other}" not in titles


# The paths of the chart with this title: their class, and where they are in the chart's own units.
PATHS = """
const figure = [...document.querySelectorAll('figure')].find(figure => figure.querySelector('h3').textContent === arguments[0]);
const chart = [...figure.querySelectorAll('svg')].find(chart => getComputedStyle(chart).display !== 'none');
const grid = [...chart.querySelectorAll('.grid')].map(line => line.getBBox().y);
return {high: Math.max(...grid) - Math.min(...grid), top: Math.min(...grid), bottom: Math.max(...grid),
        paths: [...chart.querySelectorAll('path')].map(path => ({kind: path.getAttribute('class'), outline: path.getAttribute('d'),
                                                                 y: path.getBBox().y, height: path.getBBox().height}))};
"""


def strokes(look, name, title, kind):
    chart = look(name).execute_script(PATHS, title)
    # Samples beside names are level.
    return chart, [path for path in chart["paths"] if kind in path["kind"].split() and path["height"] > 0]


def test_percentiles_over_time_are_drawn_under_overload(look):
    _, lines = strokes(look, "overload", "Percentiles over time", "line")
    assert len(lines) == 5 and all(line["outline"].count("L") > 20 for line in lines)


def test_a_ramp_is_drawn_as_it_was_asked_for_beside_what_was_reached(look):
    chart, asked = strokes(look, "overload", "Throughput", "muted")
    assert len(asked) == 1 and asked[0]["outline"].count("V") > 20
    assert asked[0]["height"] > 0.8 * chart["high"]


def test_wide_intervals_leave_the_curve_its_axis_and_are_marked_where_they_are_cut(look):
    chart, lines = strokes(look, "answers", "Throughput by clients", "line")
    assert lines[0]["height"] > 0.5 * chart["high"]
    _, whiskers = strokes(look, "answers", "Throughput by clients", "whisker")
    cut = max(whiskers, key=lambda whisker: whisker["height"])
    assert cut["y"] >= chart["top"] - 1 and cut["y"] + cut["height"] <= chart["bottom"] + 1
    assert cut["outline"].count("l4") == 4, "an arrow at each of the two ends that go on"


STROKES = """
const rgb = text => {
    const canvas = document.createElement('canvas').getContext('2d');
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
};
return [...document.querySelectorAll('svg')].filter(chart => getComputedStyle(chart).display !== 'none').map(chart => {
    const seen = {};
    for (const path of chart.querySelectorAll('.line')) {
        const style = getComputedStyle(path);
        seen[path.getAttribute('class')] = [rgb(style.stroke), style.strokeDasharray];
    }
    return Object.values(seen);
});
"""

# What eyes without red or green cones see of linear light (Viénot, Brettel and Mollon, 1999).
EYES = {
    "all cones": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "no red cones": [[0.11238, 0.88762, 0], [0.11238, 0.88762, 0], [0.00401, -0.00401, 1]],
    "no green cones": [[0.29275, 0.70725, 0], [0.29275, 0.70725, 0], [-0.02234, 0.02234, 1]],
}


def lab(colour, eyes):
    """CIE L*a*b* of a colour as those eyes see it."""
    light = [part / 255 for part in colour]
    light = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in light]
    light = [max(0, sum(weight * part for weight, part in zip(row, light))) for row in EYES[eyes]]
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    white = [0.9505, 1, 1.089]
    x, y, z = (sum(weight * part for weight, part in zip(row, light)) / white for row, white in zip(matrix, white))
    x, y, z = (part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116 for part in (x, y, z))
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("name, most", [("open", 5), ("runs", 5), ("overload", 5)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_lines_of_a_chart_differ_in_colour_and_in_dashes(look, name, most, scheme):
    charts = look(name, scheme=scheme).execute_script(STROKES)
    assert max(len(lines) for lines in charts) >= most
    for lines in charts:
        for index, (one, dashes) in enumerate(lines):
            for other, its_dashes in lines[index + 1:]:
                assert dashes != its_dashes
                for eyes, least in [("all cones", 20), ("no red cones", 12), ("no green cones", 12)]:
                    apart = sum((a - b) ** 2 for a, b in zip(lab(one, eyes), lab(other, eyes))) ** 0.5
                    assert apart >= least, (eyes, one, other, apart)


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
