"""The page in a real browser: nothing is complained about, videos play, figures are there, and it fits a phone."""

import pytest
from browser import Browser, find_browser

from plan2explore.report.html import page
from plan2explore.report.learning import learning
from plan2explore.report.run import open_runs

PROGRAM = find_browser()
if PROGRAM is None:  # one line for all of them
    pytest.skip("no Chromium here: run scripts/install-chromium as root, or install one", allow_module_level=True)
pytestmark = pytest.mark.slow

FIGURES = """[...document.querySelectorAll('figure')].map(figure => {
  const shown = figure.querySelector('svg, img, video, canvas'), box = shown.getBoundingClientRect();
  return {kind: shown.tagName.toLowerCase(), width: box.width, height: box.height, right: box.right,
          loaded: shown.tagName === 'IMG' ? shown.complete && shown.naturalWidth > 0 : true,
          caption: figure.querySelector('figcaption').innerText};
})"""
# One after the other, each where it can be seen: the page itself pauses videos that are out of view.
PLAY = """(async () => {
  const videos = [];
  for (const video of document.querySelectorAll('video')) {
    video.scrollIntoView({block: 'center'});
    for (let tries = 0; tries < 200 && video.currentTime < 0.1; tries++) {
      await video.play().catch(() => {});
      await new Promise(done => setTimeout(done, 50));
    }
    videos.push({ready: video.readyState, time: video.currentTime, width: video.videoWidth, muted: video.muted});
  }
  return videos;
})()"""
SMALLEST_WORDS = """Math.min(...[...document.querySelectorAll('svg text')]
  .filter(text => text.textContent.trim()).map(text => text.getBoundingClientRect().height))"""
INK_AND_PAPER = """[getComputedStyle(document.querySelector('svg text')).fill,
  getComputedStyle(document.body).backgroundColor]"""


@pytest.fixture(scope="module")
def browser():
    assert PROGRAM is not None
    with Browser(PROGRAM) as browser:
        yield browser


@pytest.mark.parametrize("window", [{"width": 1280}, {"width": 1280, "dark": True}, {"width": 400, "phone": True}])
def test_everything_is_shown(browser, page_of_both, window):
    browser.complaints.clear()
    browser.open(page_of_both, **window)
    figures = browser.run(FIGURES)
    assert {"svg", "img", "video", "canvas"} == {figure["kind"] for figure in figures}
    for figure in figures:
        assert figure["loaded"] and figure["width"] > 60 and figure["height"] > 60 and figure["caption"], figure
        assert figure["right"] <= window["width"], figure
    assert browser.run("document.documentElement.scrollWidth <= innerWidth"), "the page can be scrolled sideways"
    assert browser.run(SMALLEST_WORDS) >= 9, "words in figures are too small to read"
    ink, paper = (sum(map(int, colour[colour.index("(") + 1 : -1].split(",")[:3])) for colour in browser.run(INK_AND_PAPER))
    assert (ink > paper) == window.get("dark", False) and abs(ink - paper) > 400
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:", "about:"))] == []


def test_videos_play(browser, page_of_both):
    browser.complaints.clear()
    browser.open(page_of_both)
    assert browser.run("document.querySelector('video').currentTime") == 0
    browser.run("document.querySelector('video').scrollIntoView()")
    browser.wait("document.querySelector('video').currentTime > 0")  # by itself, when it comes into view
    videos = browser.run(PLAY)
    assert len(videos) == 10
    for video in videos:
        assert video["ready"] >= 2 and video["time"] >= 0.1 and video["width"] >= 128 and video["muted"], video
    assert browser.complaints == []


POINTER = """(target, kind, x, y) => target.dispatchEvent(
  new PointerEvent(kind, {clientX: target.getBoundingClientRect().left + x, clientY: target.getBoundingClientRect().top + y,
    pointerType: 'mouse', bubbles: true}))"""
LOSS = """[...document.querySelectorAll('figure')].find(each => each.innerText.includes('(model/loss)'))
  .querySelector('.chart')"""


def test_a_chart_is_read_off_zoomed_and_its_lines_hidden(browser, page_of_both):
    browser.complaints.clear()
    browser.open(page_of_both)
    browser.run(f"window.chart = {LOSS}; window.svg = chart.querySelector('svg'); window.point = {POINTER}; 0")
    browser.run("point(svg, 'pointermove', svg.clientWidth - 13, 100)")
    told = browser.run("chart.querySelector('.tip').innerText")
    assert "3k env steps" in told and "2.25 first (plan2explore)" in told and "2.25 second (random)" in told
    ticks = "[...chart.querySelectorAll('text[text-anchor=middle]')].map(each => each.textContent)"
    whole = browser.run(ticks)
    for kind, x in (("down", 200), ("move", 300), ("up", 300)):
        browser.run(f"point(svg, 'pointer{kind}', {x}, 100)")
    assert browser.run(ticks) != whole
    browser.run("svg.dispatchEvent(new MouseEvent('dblclick'))")
    assert browser.run(ticks) == whole
    lines = "chart.querySelectorAll('svg svg path').length"
    assert browser.run(lines) == 2
    browser.run("chart.querySelector('.name').click()")
    assert browser.run(lines) == 1
    assert browser.complaints == []


def test_smoothing_and_seeds_change_every_chart(browser, page_of_both, small_runs, copied, tmp_path):
    browser.complaints.clear()
    runs, _ = open_runs([small_runs[0], copied, small_runs[1]])
    (tmp_path / "page.html").write_text(page("Learning", learning(runs)))
    browser.open(tmp_path / "page.html")
    browser.run(f"window.chart = {LOSS}; window.path = () => chart.querySelector('svg svg path').getAttribute('d'); 0")
    rough = browser.run("path()")
    browser.run("window.slide = document.querySelector('.curves-controls input'); slide.value = 0.9; slide.oninput()")
    assert browser.run("path()") != rough
    assert browser.run("chart.querySelectorAll('.name').length") == 3
    browser.run("document.querySelector('.curves-controls input[type=checkbox]').click()")
    names = browser.run("[...chart.querySelectorAll('.name')].map(each => each.innerText)")
    assert len(names) == 2 and "plan2explore, mean of 2" in names[0]
    assert browser.complaints == []
    browser.open(page_of_both)  # no method has two seeds
    assert browser.run("document.querySelectorAll('.curves-controls input[type=checkbox]').length") == 0


def test_the_map_fills_as_the_run_goes_on(browser, page_of_both):
    browser.open(page_of_both)
    filled = """(() => { const canvas = document.querySelector('.player canvas');
      const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
      return data.filter((value, index) => index % 4 === 3 && value).length; })()"""
    every = browser.run(filled)
    browser.run("window.slide = document.querySelector('.player input'); slide.value = 10; slide.oninput()")
    assert 0 < browser.run(filled) < every


def test_a_hostile_name_runs_nothing(browser, hostile_page):
    browser.complaints.clear()
    browser.open(hostile_page)
    assert browser.run("document.body.dataset.owned === undefined && document.querySelectorAll('script').length === 1")
    assert browser.complaints == []
