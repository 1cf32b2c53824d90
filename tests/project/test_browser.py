"""The site that `make docs` built, in Chromium: switch and search work, nothing is requested."""

import re
import shutil
import subprocess

import pytest

from tests.project.test_readme import ROOT

SITE = ROOT / "docs" / "_build" / "html"
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium"),
    pytest.mark.skipif(not (SITE / "index.html").exists(), reason="needs the site: make docs"),
]
QUIET = "--headless --no-sandbox --disable-gpu --disable-background-networking --disable-sync"
QUIET += " --disable-component-update --no-first-run --virtual-time-budget=8000 --dump-dom"
# Chooses the last tab of the switch, and writes which divisions are shown then into the title.
SWITCH = """<script>addEventListener("load", () => setTimeout(() => {
  const labels = document.querySelectorAll(".switch > label");
  labels[labels.length - 1].click();
  setTimeout(() => {
    const shown = [...document.querySelectorAll(".only-pyro, .only-numpyro")]
      .filter(division => division.offsetParent !== null);
    document.title = shown.map(division => division.className).join("|");
  }, 300);
}, 300))</script></head>"""


def dom(page, tmp_path, query=""):
    """The document after its scripts, and the hosts that were asked."""
    log = tmp_path / "net.json"
    command = [CHROMIUM, *QUIET.split(), f"--user-data-dir={tmp_path / 'profile'}"]
    command += [f"--log-net-log={log}", f"{page.as_uri()}{query}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    asked = re.findall(r'"url":"(?:https?|wss?)://([^/"]*)', log.read_text(encoding="utf-8"))
    return done.stdout, set(asked)


@pytest.fixture(scope="module")
def its_own(tmp_path_factory):
    """The hosts that Chromium itself asks, beside an empty page."""
    folder = tmp_path_factory.mktemp("empty")
    (folder / "page.html").write_text("", encoding="utf-8")
    return dom(folder / "page.html", folder)[1]


def test_the_log_sees_a_request(tmp_path, its_own):
    page = tmp_path / "page.html"
    page.write_text('<img src="http://127.0.0.1:9/missing.png">', encoding="utf-8")
    assert dom(page, tmp_path)[1] - its_own == {"127.0.0.1:9"}


PAGES = "index", "tutorials/regression", "api/pyro_moments", "maths"


@pytest.mark.parametrize("name", PAGES)
def test_pages_ask_nothing_of_the_network(name, tmp_path, its_own):
    text, asked = dom(SITE / f"{name}.html", tmp_path)
    assert "<h1>" in text
    assert asked <= its_own


def test_search_finds_a_verb(tmp_path, its_own):
    text, asked = dom(SITE / "search.html", tmp_path, "?q=linear_response")
    found = re.findall(r'<a href="([^"]*)"[^>]*>', text.split('id="search-results"')[1])
    assert any("api/pyro_moments.html" in link for link in found)
    assert asked <= its_own


def test_one_click_switches_the_framework_of_the_page(tmp_path):
    site = tmp_path / "html"
    shutil.copytree(SITE, site)
    page = site / "tutorials" / "regression.html"
    page.write_text(page.read_text(encoding="utf-8").replace("</head>", SWITCH), encoding="utf-8")
    title = re.search(r"<title>(.*?)</title>", dom(page, tmp_path)[0])[1]
    assert set(title.split("|")) == {"only-numpyro"}
