"""Pages of runs in a real browser (Chromium, headless), where there is one: what the script does and may not do."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest
from live_page import served
from made_runs import HOSTILE, START, add_evaluation, lines_of, make_run, make_stages, run_of, train_line, wild_lines

from spanloom.report.live import Watched
from spanloom.report.run_page import page
from spanloom.report.run_view import views_of

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [pytest.mark.slow, pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")]

PROBE = """
const found = {}, figures = [...document.querySelectorAll("figure[data-chart]")], first = figures[0];
const texts = () => [...first.querySelectorAll("svg text")].map((one) => one.textContent);
const lines = () => first.querySelectorAll("path.line").length;
const at = (kind, share) => {
  const svg = first.querySelector("svg"), box = svg.getBoundingClientRect();
  const place = { clientX: box.left + share * box.width, clientY: box.top + 50, bubbles: true };
  svg.dispatchEvent(new PointerEvent(kind, place));
};
found.drawn = figures.filter((one) => one.querySelector("clipPath")).length;
found.figures = figures.length;
found.overflow = document.documentElement.scrollWidth - window.innerWidth;
found.before = texts(); found.lines = lines();
at("pointermove", 0.5); found.values = first.querySelector(".values").textContent;
at("pointerdown", 0.4); at("pointermove", 0.6); at("pointerup", 0.6); found.zoomed = texts();
first.querySelector(".whole").click(); found.whole = texts();
first.querySelector(".log").click(); found.log = texts(); first.querySelector(".log").click();
const smooth = document.getElementById("smooth"); smooth.value = "0.9"; smooth.dispatchEvent(new Event("input"));
found.raw = document.querySelectorAll("path.raw").length;
const logX = document.getElementById("log-x"); logX.checked = true; logX.dispatchEvent(new Event("change"));
found.logX = texts();
const legend = first.querySelector(".legend button");
if (legend) { legend.click(); found.without = lines(); legend.click(); found.again = lines(); }
const marks = [...document.querySelectorAll("svg *")].map((one) => one.outerHTML.split(">")[0]);
found.bad = marks.filter((one) => /NaN|Infinity/.test(one)).length;
const pre = document.createElement("pre");
pre.id = "probe"; pre.textContent = JSON.stringify(found); document.body.append(pre);
"""


def browse(address, tmp_path, width=1280):
    """(the page as it stands after its scripts have run, what they said on the console)."""
    argv = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    argv += [f"--window-size={width},900", "--virtual-time-budget=4000", "--enable-logging=stderr", "--dump-dom"]
    done = subprocess.run([*argv, address], capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if "CONSOLE" in line]


def probed(places, tmp_path, width=1280):
    """What the probe finds in a page, which is let in by leaving the policy out."""
    made = page(views_of([str(place) for place in places]), "")
    made = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", made)
    file = tmp_path / "probe.html"
    file.write_text(made.replace("</body>", f"<script>{PROBE}</script></body>"))
    shown, said = browse(file.as_uri(), tmp_path, width)
    assert said == []
    return json.loads(unescape(re.search(r'<pre id="probe">(.*?)</pre>', shown, re.DOTALL)[1]))


@pytest.mark.parametrize("width", [1280, 500])
def test_charts_can_be_looked_into(tmp_path, width):
    runs = [make_run(tmp_path / name, lines=lines_of(run_of(), steps)) for name, steps in (("a", 60), ("b", 90))]
    add_evaluation(runs[0], run_of())
    found = probed(runs, tmp_path, width)
    assert found["drawn"] == found["figures"] > 8 and found["overflow"] <= 0 and found["bad"] == 0
    assert found["lines"] == found["again"] == 2 and found["without"] == 1
    assert re.fullmatch(r"step 4\d: a 2\.1\d*, b 2\.1\d*", found["values"])
    assert found["zoomed"] != found["before"] == found["whole"]
    assert found["log"] != found["before"] and found["logX"] != found["before"] and found["raw"] > 10


@pytest.mark.parametrize("kind", ["wild", "stages", "begun"])
def test_whatever_a_run_wrote_is_drawn_without_an_error(tmp_path, kind):
    lines = wild_lines() if kind == "wild" else [START, train_line(1)]
    place = make_stages(tmp_path / "s") if kind == "stages" else make_run(tmp_path / "a", lines=lines)
    found = probed([place], tmp_path)
    assert found["drawn"] == found["figures"] > 0 and found["bad"] == 0


def test_the_page_obeys_its_own_policy_and_nothing_of_the_data_runs(tmp_path):
    place = make_run(tmp_path / "a", lines=wild_lines())
    (place / "results.json").write_text(
        json.dumps({"results": {"text": HOSTILE, "fills": [[[HOSTILE, HOSTILE, True]]]}})
    )
    file = tmp_path / "page.html"
    file.write_text(page(views_of([str(place)]), ""))
    shown, said = browse(file.as_uri(), tmp_path)
    assert said == [] and "<clipPath" in shown
    file.write_text(file.read_text().replace("</body>", "<script>document.title = 'ran'</script></body>"))
    shown, said = browse(file.as_uri(), tmp_path)
    assert "<title>ran</title>" not in shown and len(said) == 1 and "Content Security Policy" in said[0]


def test_the_live_page_asks_for_what_is_new_and_shows_it(tmp_path):
    place = make_run(tmp_path / "a", lines=[START, train_line(1)])
    watched = Watched(views_of([str(place)]), "", seconds=0.5)
    with served(watched) as port:
        shown, said = browse(f"http://127.0.0.1:{port}/", tmp_path)
    assert said == [] and "live, read at" in shown and "<clipPath" in shown


def test_the_page_can_be_printed(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(page(views_of([str(make_stages(tmp_path / "s"))]), ""))
    argv = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    argv += [f"--print-to-pdf={tmp_path / 'page.pdf'}", "--virtual-time-budget=4000", file.as_uri()]
    subprocess.run(argv, capture_output=True, timeout=120, check=True)
    assert (tmp_path / "page.pdf").read_bytes().startswith(b"%PDF")
