// live - the live page: asks /status.json every two seconds and shows the answer.
//
// The content that came with the page is for browsers without JavaScript; the first answer replaces
// it.  Nothing is asked while nobody can see the page, and only one question is ever on its way.
// SPDX-License-Identifier: Apache-2.0

import {makeCharts, updateCharts} from "./charts.js";
import {make, setAttribute, setNumber, setText} from "./dom.js";
import {MODEL_COLUMNS, modelsOf, updateDevices, updateFailures, updateModels} from "./tables.js";
import {age, bytes, clock, count, NONE, rate, share, time} from "./units.js";

const EVERY_MS = 2000;
const PATIENCE_MS = 15000; // for one answer

/* ------- the page, once ------- */

function makeTile(id, words) {
    const number = make("b", {id}), more = make("span", {class: "soft"});
    return {tile: make("div", {class: "tile"}, make("span", {class: "title"}, words), number, more), number, more};
}

function section(title, id, ...content) {
    return make("section", {"aria-labelledby": id}, make("h2", {id}, title), ...content);
}

function makeHeader(page) {
    page.pill = make("span", {class: "pill", id: "ready", role: "status"});
    page.about = make("span", {class: "soft"});
    page.why = make("p", {id: "why", class: "banner"});
    page.stale = make("p", {id: "stale", class: "banner", role: "status", hidden: true});
    return [make("header", {}, make("h1", {}, "voxeld"), page.pill, page.about), page.stale, page.why];
}

function makeStages(page) {
    const heads = ["Last minute", "p50", "p90", "p99"].map((text, i) =>
        make("th", {scope: "col", class: i ? "n" : ""}, text));
    page.stages = {};
    const rows = [["request_ns", "arrival to answer"], ["queue_ns", "in the queue"], ["geometry_ns", "geometry"],
        ["layers_ns", "layers"]].map(([key, words]) => {
        const cells = ["p50", "p90", "p99"].map(() => make("td", {class: "n"}));
        page.stages[key] = cells;
        return make("tr", {}, make("th", {scope: "row"}, words), ...cells);
    });
    return make("div", {class: "card stages"}, make("table", {},
        make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
}

function sortBy(page, column) {
    page.view.column = page.view.column === column ? null : column;
    page.heads.forEach((head, i) =>
        setAttribute(head, "aria-sort", i === page.view.column ? "descending" : null));
    if (page.status) showModels(page, page.status);
}

function makeModels(page) {
    page.view = {filter: "", column: null};
    page.models = make("tbody");
    page.modelsSaid = make("span", {class: "soft", id: "models-said"});
    const filter = make("input", {type: "search", placeholder: "Name", "aria-label": "Show models whose name contains"});
    filter.addEventListener("input", () => {
        page.view.filter = filter.value;
        if (page.status) showModels(page, page.status);
    });
    page.heads = MODEL_COLUMNS.map((column, i) => {
        const button = make("button", {type: "button"}, column.title);
        button.addEventListener("click", () => sortBy(page, i));
        return make("th", {scope: "col", class: "n"}, button);
    });
    const head = make("tr", {}, make("th", {scope: "col"}, "Model, version"), make("th", {scope: "col"}, "State"),
        ...page.heads);
    return section("Models", "models-title", make("div", {class: "line tools"}, filter, page.modelsSaid),
        make("div", {class: "card"}, make("table", {class: "models", "aria-labelledby": "models-title"},
            make("thead", {}, head), page.models)));
}

function makePage() {
    const page = {charts: makeCharts()};
    page.tiles = {
        rate: makeTile("rate", "Requests / s"), latency: makeTile("latency", "Median latency"),
        waiting: makeTile("waiting", "Waiting"), running: makeTile("running", "Running"),
        batch: makeTile("batch", "Requests in a batch"), cache: makeTile("cache", "Geometries reused"),
        arena: makeTile("arena", "Memory in flight"),
    };
    page.devices = make("ul", {class: "devices", id: "devices"});
    page.failures = make("ul", {class: "card failures", id: "failures"});
    page.failuresNone = make("p", {class: "soft"}, "None since the start.");
    const {requests, latency, histogram, waiting, fill} = page.charts;
    const link = (path) => make("a", {href: path}, path);
    page.main = make("main", {id: "page", class: "live"},
        ...makeHeader(page),
        make("div", {class: "tiles"}, ...Object.values(page.tiles).map((one) => one.tile)),
        section("The last minutes", "charts-title", make("div", {class: "charts"},
            ...[requests, latency, histogram, waiting, fill].map((one) => one.figure), makeStages(page))),
        section("Devices", "devices-title", page.devices),
        section("Refused and failed, the latest first", "failures-title", page.failures, page.failuresNone),
        makeModels(page),
        make("footer", {}, "For machines: ", link("/metrics"), ", ", link("/status.json"), ", ",
            link("/v2/health/ready")));
    return page;
}

/* ------- one answer ------- */

function setTile(tile, value, text, more) {
    if (value === null) setText(tile.number, NONE);
    else setNumber(tile.number, value, text);
    setText(tile.more, more);
}

function showTiles({tiles}, status) {
    const {requests, points, minute, arena} = status;
    const last = points.answered.length - 1;
    const perSecond = last < 0 ? null : (points.answered[last] * 1000) / points.span_ms[last];
    setTile(tiles.rate, perSecond, rate(perSecond ?? 0),
        `${count(requests.answered)} answered, ${count(requests.failed)} failed`);
    const {request_ns: latency, batch_requests: batch, batch_fill_billionths: fill} = minute;
    setTile(tiles.latency, latency.count ? latency.p50 : null, time(latency.p50),
        latency.count ? `p99 ${time(latency.p99)}` : "no request in the last minute");
    setTile(tiles.waiting, requests.waiting, count(requests.waiting), `${count(requests.waiting_voxels)} voxels`);
    setTile(tiles.running, requests.running, count(requests.running), `${count(requests.connections)} connections`);
    const size = batch.count ? batch.sum / batch.count : null;
    setTile(tiles.batch, size, size?.toFixed(1), batch.count ? `${share(fill.sum / 1e9, fill.count)} of the voxels` : "no batch lately");
    const hits = status.devices.reduce((sum, one) => sum + one.cache_hits, 0);
    const lookups = status.devices.reduce((sum, one) => sum + one.cache_misses, hits);
    setTile(tiles.cache, lookups ? hits / lookups : null, share(hits, lookups), `${count(lookups)} lookups`);
    setTile(tiles.arena, arena.used, bytes(arena.used), `of ${bytes(arena.bytes)}`);
}

function showModels(page, status) {
    const models = modelsOf(status, page.view);
    const all = status.models.length + status.missing.length;
    const most = `${count(all)}${status.missing_more ? "+" : ""}`;
    const ready = status.models.filter((one) => one.state === "ready" && one.workers).length;
    setText(page.modelsSaid, models.length === all
        ? `${count(ready)} of ${most} ready` : `${count(models.length)} of ${most} shown`);
    updateModels(page.models, models);
}

function show(page, status) {
    page.status = status;
    setAttribute(page.pill, "class", `pill ${status.ready ? "good" : "wait"}`);
    setText(page.pill, status.ready ? "ready" : "not ready");
    setText(page.about, `version ${status.version}, up ${age(status.now_ms - status.started_ms)}`);
    setText(page.why, status.why || status.note);
    page.why.hidden = !page.why.textContent;
    page.stale.hidden = true;
    page.main.classList.remove("old");
    showTiles(page, status);
    updateCharts(page.charts, status);
    for (const [key, cells] of Object.entries(page.stages)) {
        const recent = status.minute[key];
        ["p50", "p90", "p99"].forEach((part, i) => setText(cells[i], recent.count ? time(recent[part]) : NONE));
    }
    updateDevices(page.devices, status);
    updateFailures(page.failures, status);
    page.failures.hidden = !status.failures.length;
    page.failuresNone.hidden = !!status.failures.length;
    showModels(page, status);
}

/* ------- asking ------- */

async function ask() {
    const reply = await fetch("/status.json", {cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS)});
    if (!reply.ok) throw new Error(`status ${reply.status}`);
    return reply.json();
}

function showSilence(page) {
    if (!page.status) return; // what came with the page is still there
    setText(page.stale, `No answer from voxeld. These numbers are of ${clock(page.status.now_ms, Date.now())}; asking again.`);
    page.stale.hidden = false;
    page.main.classList.add("old");
}

async function step(page) {
    const status = await ask().catch(() => null);
    if (!status) {
        showSilence(page);
        return;
    }
    // Another program answers now: it has a page of its own.
    if (page.status && page.status.version !== status.version) location.reload();
    if (!page.status) document.getElementById("page").replaceWith(page.main);
    show(page, status);
}

async function run() {
    const page = makePage();
    for (;;) {
        if (document.hidden)
            await new Promise((seen) => document.addEventListener("visibilitychange", seen, {once: true}));
        else {
            await step(page).catch((error) => { // a mistake of ours must not look like numbers of now
                console.error(error);
                showSilence(page);
            });
            await new Promise((over) => setTimeout(over, EVERY_MS));
        }
    }
}

run();
