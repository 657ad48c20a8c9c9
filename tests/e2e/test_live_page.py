# SPDX-License-Identifier: Apache-2.0
"""The live page in a real browser: right numbers without a reload, on a phone, and no way in."""
import json
import os
import re
import signal

import pytest

import voxeld
from browser import DESKTOP, PHONE, open_browser
from conftest import ROOT
from model_files import ConvModel, random_grid
from test_slow_loads import SlowModel
from voxeld import Client
from voxeld_process import PATIENCE, Daemon

PICTURES = ROOT / "build" / "live-page"
HOSTILE = "<img src=x onerror=hacked()>"
# The text of the elements that a selector finds.
TEXTS = "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)"
# {heading: exact number} of one model's row.
MODEL = """
const row = [...document.querySelectorAll('[data-model]')]
    .find((one) => one.dataset.model === arguments[0]);
if (!row) return null;
const out = {state: row.querySelector('.pill').textContent};
out.why = row.querySelector('.state .why').textContent;
for (const cell of row.querySelectorAll('[data-label]'))
    out[cell.dataset.label] = cell.firstElementChild ? Number(cell.firstElementChild.value) : null;
return out;
"""
# Every text whose contrast to what is behind it is below 4.5 (WCAG's AA).
FAINT = """
const paint = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
function rgb(color) {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = color;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
}
function light(color) {
    const [r, g, b] = rgb(color).slice(0, 3).map((v) => v / 255)
        .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
function behind(element) {
    for (; element; element = element.parentElement) {
        const color = getComputedStyle(element).backgroundColor;
        if (rgb(color)[3] === 255) return color;
    }
    return 'white';
}
const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), faint = [];
let seen = 0;
while (walk.nextNode()) {
    const element = walk.currentNode.parentElement;
    if (!walk.currentNode.data.trim() || !element.checkVisibility()) continue;
    const style = getComputedStyle(element);
    const color = element.closest('svg') ? style.fill : style.color;
    const [a, b] = [light(color), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    seen++;
    if (contrast < 4.5) faint.push(`${walk.currentNode.data}: ${contrast.toFixed(2)}`);
}
return {seen, faint};
"""
# Every element that is wider than its place.
CUT = """
return [...document.querySelectorAll('main *')].filter((one) => one.checkVisibility() &&
    !one.closest('svg') && getComputedStyle(one.closest('thead') ?? one).clipPath === 'none' &&
    getComputedStyle(one).display !== 'inline' &&
    (one.scrollWidth > one.clientWidth + 1 ||
     one.getBoundingClientRect().right > innerWidth + 0.5))
    .map((one) => `${one.localName}.${one.className} ${one.textContent.slice(0, 60)}`);
"""
# From now on the page is told this, in place of what the daemon says.
PRETEND = "window.fetch = async () => new Response(arguments[0])"


@pytest.fixture(scope="module")
def browser():
    one = open_browser("live_page")
    yield one
    one.close()


def broken_model(repository, name):
    """Its error quotes what is in the file."""
    ConvModel().write(repository, name)
    path = repository / name / "network.json"
    network = json.loads(path.read_text())
    network["layers"][0]["op"] = HOSTILE
    path.write_text(json.dumps(network))


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Two models that serve, one with a hostile name, and one that cannot be loaded."""
    work = tmp_path_factory.mktemp("work")
    for name in ("conv", "other", HOSTILE):
        model = ConvModel()
        model.network["limits"]["voxels_max"] = 2000
        model.write(work / "models", name)
    broken_model(work / "models", "broken")
    flags = ("--device", "cpu,fake:0", "--threads", "1", "--device-bytes", "64M", "--cache-bytes",
             "32M", "--kernel-cache", str(work / "kernels"))
    with Daemon(work / "models", work, *flags, wait_ready=False) as daemon:
        up = 'voxeld_worker_up{worker="1",device="fake:0"}'
        daemon.wait_for("the models", lambda: '"loading"' not in daemon.get("/status.json")[1]
                        and daemon.metrics().get(up) == 1)
        yield daemon


@pytest.fixture
def page(browser, served):
    """The live page, with its first answer, at the size of a desktop."""
    browser.looks(DESKTOP)
    open_page(browser, served)
    browser.errors()
    return browser


def open_page(browser, daemon):
    browser.page(f"http://{daemon.http}/")
    daemon.wait_for("the live page",
                    lambda: browser.run(TEXTS, "main.live #ready") not in ([], [""]))


def status(daemon):
    code, text = daemon.get("/status.json")
    assert code == 200
    return json.loads(text)


def send(daemon, model, wrong=False):
    """One request; what the client was told when it failed, else None."""
    coords, feats = random_grid(5, 200)
    with Client(daemon.grpc) as client:
        try:
            client.infer(model, coords, feats[:, :2] if wrong else feats, timeout=PATIENCE)
        except voxeld.VoxeldError as error:
            return error
    return None


def shows(page, daemon, what, condition):
    return daemon.wait_for(f"the page to show {what}", condition)


# ------- it works -------


def test_the_page_loads_clean_and_asks_nobody_else(browser, served):
    browser.errors()
    open_page(browser, served)
    assert browser.errors() == []
    asked = browser.run("return performance.getEntriesByType('resource').map((one) => one.name)")
    assert {url.removeprefix(f"http://{served.http}") for url in asked} >= {
        "/page.css", "/live.js", "/charts.js", "/chart.js", "/dom.js", "/tables.js", "/units.js",
        "/status.json"}
    assert all(url.startswith(f"http://{served.http}/") for url in asked)


def test_the_numbers_are_those_of_the_metrics(page, served):
    before = served.metrics()
    for _ in range(7):
        assert send(served, "conv") is None
    errors = [send(served, "conv", wrong=True) for _ in range(3)]
    assert all(isinstance(error, voxeld.InvalidArgument) for error in errors)

    def at(metrics, reason=None, model="conv"):
        labels = f'model="{model}",version="1"'
        if reason is None:
            return int(metrics[f"nv_inference_request_success{{{labels}}}"])
        return int(metrics[f'nv_inference_request_failure{{{labels},reason="{reason}"}}'])
    metrics = served.metrics()
    assert at(metrics) - at(before) == 7 and at(metrics, "OTHER") - at(before, "OTHER") == 3
    shows(page, served, "the requests", lambda: (lambda row: row and (
        row["Answered"], row["Failed"]) == (at(metrics), at(metrics, "OTHER")))(
            page.run(MODEL, "conv")))
    (said,) = page.run(TEXTS, "#rate + span")
    codes = {key: int(value) for key, value in metrics.items()
             if key.startswith("voxeld_requests_total")}
    answered = codes.pop('voxeld_requests_total{code="OK"}')
    assert said == f"{answered:,} answered, {sum(codes.values()):,} failed"
    row = page.run(MODEL, "conv")
    assert row["state"] == "ready" and row["Pending"] == 0
    assert row["Weights"] == metrics['voxeld_model_weights_bytes{model="conv",version="1"}']
    hits, misses = (metrics[f'voxeld_model_geometry_{one}_total{{model="conv",version="1"}}']
                    for one in ("hits", "misses"))
    assert row["Cache hits"] == pytest.approx(hits / (hits + misses))


def test_the_page_is_brought_up_to_date_in_place(page, served):
    page.run("window.marker = 1; window.row = document.querySelector('[data-model=other]')")
    before = page.run(MODEL, "other")["Answered"]
    for round_ in (1, 2):
        assert send(served, "other") is None
        shows(page, served, "a request", lambda: page.run(MODEL, "other")["Answered"]
              == before + round_)
    assert page.run("return window.marker") == 1
    assert page.run("return window.row === document.querySelector('[data-model=other]')")
    shows(page, served, "a point in the charts", lambda: page.run(
        "return document.querySelectorAll('#chart-requests .good-bar').length"))
    assert page.run(TEXTS, "#chart-latency path")
    # Under the pointer a chart says when and what.
    page.run("""
        const svg = document.querySelector('#chart-requests svg');
        const {right, top} = svg.getBoundingClientRect();
        svg.dispatchEvent(new PointerEvent('pointermove', {clientX: right - 6, clientY: top}))""")
    (said,) = page.run(TEXTS, "#chart-requests .said")
    assert re.fullmatch(r"\d\d:\d\d:\d\d: [0-9.,]+ answered, [0-9.,]+ failed", said)
    assert page.errors() == []


def test_a_failure_is_shown_once_with_its_count(page, served):
    error = [send(served, "absent") for _ in range(4)][-1]
    assert isinstance(error, voxeld.NotFound)

    def row():
        for one in status(served)["failures"]:
            if one["model"] == "absent":
                return one
        return None
    assert row()["count"] == 4 and row()["code"] == "NOT_FOUND"
    shows(page, served, "the failure", lambda: any(
        "absent" in one and "4\u00d7" in one and row()["text"] in one
        for one in page.run(TEXTS, "#failures > li")))
    assert row()["text"] in str(error)
    assert sum("absent" in one for one in page.run(TEXTS, "#failures .soft")) == 1


def test_a_model_that_cannot_be_loaded_says_why(page, served):
    row = page.run(MODEL, "broken")
    reason = next(one for one in status(served)["models"] if one["name"] == "broken")["why"]
    assert row["state"] == "unavailable" and row["why"] == reason and HOSTILE in reason
    # It comes first, and the banner names it.
    assert page.run("return document.querySelector('[data-model]').dataset.model") == "broken"
    assert reason in page.run(TEXTS, "#why")[0] and page.run(TEXTS, "#ready") == ["not ready"]


def test_a_worker_that_dies_is_shown(page, served):
    worker = served.workers()[0]
    os.kill(worker, signal.SIGKILL)
    shows(page, served, "the restart", lambda: any(
        "restarted 1\u00d7" in one and "up" in one for one in page.run(TEXTS, "#devices > li")))


def test_models_are_found_and_sorted(page, served):
    names = "return [...document.querySelectorAll('[data-model]')].map((one) => one.dataset.model)"
    filter_ = "const one = document.querySelector('input'); one.value = arguments[0]; " \
              "one.dispatchEvent(new Event('input'))"
    page.run(filter_, "OTH")
    assert page.run(names) == ["other"] and page.run(TEXTS, "#models-said") == ["1 of 4 shown"]
    page.run(filter_, "")
    conv, other = (page.run(MODEL, name)["Answered"] for name in ("conv", "other"))
    for _ in range(conv + 1 - other):
        assert send(served, "other") is None
    page.run("document.querySelectorAll('th button')[1].click()")
    shows(page, served, "the busiest model first", lambda: page.run(names)[:2] == ["other", "conv"])
    assert page.run(TEXTS, "th[aria-sort=descending]") == ["Answered"]


def test_progress_of_a_load(browser, tmp_path):
    SlowModel([8] * 900, 60000).write(tmp_path / "models", "slow")
    with Daemon(tmp_path / "models", tmp_path, "--device-bytes", "1G", "--cache-bytes", "256M",
                wait_ready=False) as daemon:
        open_page(browser, daemon)

        def progress():
            part = browser.run("const one = document.querySelector('progress'); "
                               "return one && one.checkVisibility() ? [one.value, one.max] : null")
            return part if part and 0 < part[0] < part[1] else None
        first = shows(browser, daemon, "a part of a load", progress)
        row = browser.run(MODEL, "slow")
        assert row["state"] == "loading" and " of " in row["why"]
        shows(browser, daemon, "more of it", lambda: (progress() or [0, 0])[0] > first[0])


# ------- silence -------


def test_a_daemon_that_does_not_answer(page, served):
    page.run("window.real = window.fetch; window.fetch = async () => { throw new Error('gone') }")
    shows(page, served, "that nobody answers", lambda: any(
        one.startswith("No answer from voxeld") for one in page.run(TEXTS, "#stale:not([hidden])")))
    assert page.run(MODEL, "conv")  # what was known last is still there
    page.run("window.fetch = window.real")
    shows(page, served, "an answer", lambda: page.run(TEXTS, "#stale:not([hidden])") == [])


def test_without_javascript_there_is_a_page_with_the_same_numbers(browser, served):
    while status(served)["requests"]["answered"] < 3:
        assert send(served, "conv") is None
    browser.scripts(False)
    try:
        browser.looks(PHONE)
        browser.page(f"http://{served.http}/")
        # One call each: the page reloads itself meanwhile.
        (text,) = browser.run(TEXTS, "main")
        for said in ("conv", "other", HOSTILE, "unavailable", "not ready", "cpu"):
            assert said in text, said
        cells = browser.run(TEXTS, "td")
        said = status(served)
        for model in said["models"]:
            at = next(i for i, text in enumerate(cells)
                      if text.startswith(f"{model['name']} {model['version']}"))
            assert cells[at + 1].startswith(model["state"])
            assert cells[at + 2:at + 4] == [str(model["answered"]), str(model["failed"])]
        for failure in said["failures"]:
            assert failure["text"] in cells
        source = browser.driver.page_source
        assert 'http-equiv="refresh"' in source and 'class="live"' not in source
    finally:
        browser.scripts(True)
    assert not [one for one in browser.errors() if "script" not in one.lower()]


# ------- everybody, everywhere -------


def large(served):
    """Of 100 models and 8 devices in every state, with long names."""
    said = status(served)
    model, device = said["models"][0], said["devices"][0]
    states = ["ready", "loading", "unavailable", "unloading"]
    said["models"] = [{**model, "row": i, "name": f"model-{i}" + "-long" * (i % 20),
                       "state": states[i % 4], "why": "w" * 120 if i % 4 else "", "load_done": i,
                       "load_total": 99 * (i % 4 == 1), "answered": 10 ** (i % 13), "workers": 1}
                      for i in range(100)]
    states = ["up", "down", "starting", "leaving"]
    said["devices"] = [{**device, "worker": i, "device": f"cuda:{i}", "state": states[i % 4],
                        "why": "device lost: an uncorrectable error" if i % 4 == 1 else "",
                        "losses": i, "restarts": i, "hangs": i, "gpu": {
                            "uuid": "GPU-1", "memory": 150 << 30, "memory_used": 99 << 30,
                            "busy_percent": 97, "power_mw": 690000}} for i in range(8)]
    for one in ("request_ns", "queue_ns", "geometry_ns", "layers_ns"):  # the widest that there are
        said["minute"][one] |= {"count": 10 ** 6, "p50": 88_800_000, "p90": 88_800_000,
                                "p99": 88_800_000}
    said["failures"] = [{"id": i, "first_ms": 0, "last_ms": said["now_ms"], "count": 10 ** (i % 9),
                         "code": "FAILED_PRECONDITION", "method": "ModelStreamInfer",
                         "model": "m" * 100, "text": "t" * 250} for i in range(32)]
    return said


@pytest.mark.parametrize("width", [1280, 1001, 768, 360, 320])
def test_nothing_is_wider_than_the_screen(page, served, width):
    page.looks((width, 740))
    page.run(PRETEND, json.dumps(large(served)))
    shows(page, served, "100 models", lambda: len(page.run(TEXTS, "[data-model]")) == 100)
    assert len(page.run(TEXTS, "#devices > li")) == 8
    assert page.run("return [document.documentElement.scrollWidth, innerWidth]") == [width, width]
    assert page.run(CUT) == []
    assert page.errors() == []


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_can_be_read(page, served, dark):
    page.looks(DESKTOP, dark)
    page.run(PRETEND, json.dumps(large(served)))
    shows(page, served, "100 models", lambda: len(page.run(TEXTS, "[data-model]")) == 100)
    back = page.run("return getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, back[4:-1].split(","))) < 3 * 64) == dark
    found = page.run(FAINT)
    assert found["seen"] > 500 and found["faint"] == []


def test_what_a_screen_reader_is_told(page, served):
    unnamed = page.run("""
        const what = 'svg[role=img], meter, progress, input, section, button';
        return [...document.querySelectorAll(what)]
            .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() ||
                document.getElementById(one.getAttribute('aria-labelledby'))))
            .map((one) => one.outerHTML)""")
    assert unnamed == []
    labels = page.run("return [...document.querySelectorAll('svg[role=img]')]"
                      ".map((one) => one.getAttribute('aria-label'))")
    assert len(labels) == 5 and all(": " in one for one in labels)
    assert page.run("return document.documentElement.lang") == "en"


# ------- no way in -------


def test_hostile_names_are_text(page, served):
    """A model's name from disk, one that a client asks for, and a file's text in an error."""
    page.run("window.hacked = () => { window.was = true }")
    send(served, "<script>hacked()</script>" + HOSTILE)
    shows(page, served, "the name", lambda: any(
        "<script>hacked()</script>" in one for one in page.run(TEXTS, "#failures .soft")))
    assert page.run(MODEL, HOSTILE)["state"] == "ready"
    assert HOSTILE in page.run(MODEL, "broken")["why"]
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert page.run("return window.was") is None
    assert page.errors() == []
    said = large(served)
    for one in (*said["models"], *said["devices"], *said["failures"]):
        for key, value in one.items():
            if isinstance(value, str) and key != "state":
                one[key] = HOSTILE
    said["why"] = said["version"] = HOSTILE
    # The version is another: the page would be loaded anew.
    said["version"] = status(served)["version"]
    page.run(PRETEND, json.dumps(said))
    shows(page, served, "hostile texts", lambda: page.run(TEXTS, "#why") == [HOSTILE])
    assert page.run("return document.querySelectorAll('main img, main script').length") == 0
    assert page.run("return window.was") is None


def test_the_policy_would_stop_what_got_in(page, served):
    """And the console says so: an empty list of errors means something."""
    page.run("document.body.insertAdjacentHTML('beforeend', "
             "'<p style=\"color:red\" onclick=\"window.was = true\">x</p>')")
    page.run("document.body.lastElementChild.click()")
    assert page.run("return window.was") is None
    said = []

    def console_says(*words):
        said.extend(page.errors())
        return all(word in "\n".join(said) for word in words)
    shows(page, served, "what its policy stopped",
          lambda: console_says("style", "Content Security Policy"))
    assert page.run("""
        return fetch('http://127.0.0.1:9/').then(() => 'got', (error) => error.name)
        """) == "TypeError"
    shows(page, served, "that it may not ask others", lambda: console_says("connect-src"))


# ------- pictures for people -------


def test_pictures(page, served):
    for name, size, dark in (("desktop", DESKTOP, False), ("phone", PHONE, False),
                             ("dark", DESKTOP, True)):
        page.looks(size, dark)
        open_page(page, served)
        page.picture(PICTURES / f"{name}.png")
        assert (PICTURES / f"{name}.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
