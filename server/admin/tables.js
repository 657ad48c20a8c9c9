// tables - devices, models and failures, each row kept up to date in its place.
// SPDX-License-Identifier: Apache-2.0

import {make, setAttribute, setNumber, setText, sync} from "./dom.js";
import {age, bytes, clock, count, NONE, share, time} from "./units.js";

// The elements inside a row that change, by row.
const partsOf = new WeakMap();

function makePill() {
    return make("span", {class: "pill"});
}

function setPill(pill, kind, word) {
    setAttribute(pill, "class", `pill ${kind}`);
    setText(pill, word);
}

/* ------- devices ------- */

const DEVICE_STATES = {
    up: ["good", "up"], starting: ["wait", "starting"], leaving: ["bad", "ending"],
    stopping: ["wait", "stopping"], down: ["bad", "down"],
};

function makeMeter(words) {
    const value = make("span", {class: "n"});
    const meter = make("meter", {min: 0, "aria-label": words});
    return {value, meter, line: make("div", {class: "meter"}, make("span", {class: "soft"}, words), value, meter)};
}

function setMeter(one, used, all) {
    one.line.hidden = !all;
    if (!all) return;
    setText(one.value, `${bytes(used)} of ${bytes(all)}`);
    setAttribute(one.meter, "max", all);
    setAttribute(one.meter, "value", used);
}

function makeDevice() {
    const card = make("li", {class: "card device"});
    const part = {
        name: make("b"), pill: makePill(), why: make("p", {class: "why bad-text"}), kind: make("p", {class: "why"}),
        memory: makeMeter("activations, peak"), cache: makeMeter("geometry cache"), gpu: makeMeter("memory of the GPU"),
        facts: make("p", {class: "why facts"}),
    };
    partsOf.set(card, part);
    card.append(make("div", {class: "line"}, part.name, part.pill), part.kind, part.why, part.memory.line,
        part.cache.line, part.gpu.line, part.facts);
    return card;
}

function updateDevice(card, device) {
    const part = partsOf.get(card);
    setText(part.name, `${device.worker}: ${device.device}`);
    setPill(part.pill, ...(DEVICE_STATES[device.state] ?? ["wait", device.state]));
    setText(part.kind, device.name);
    setText(part.why, device.why);
    part.why.hidden = !device.why;
    setMeter(part.memory, device.memory_peak, device.memory);
    setMeter(part.cache, device.cache_used, device.cache);
    setMeter(part.gpu, device.gpu?.memory_used, device.gpu?.memory);
    const facts = [];
    const lookups = device.cache_hits + device.cache_misses;
    if (lookups) facts.push(`cache hits ${share(device.cache_hits, lookups)}`);
    if (device.gpu?.busy_percent !== undefined) facts.push(`busy ${device.gpu.busy_percent}\u00a0%`);
    if (device.gpu?.power_mw !== undefined) facts.push(`${Math.round(device.gpu.power_mw / 1000)}\u00a0W`);
    if (device.restarts) facts.push(`restarted ${count(device.restarts)}\u00d7`);
    if (device.losses) facts.push(`device lost ${count(device.losses)}\u00d7`);
    if (device.hangs) facts.push(`hung ${count(device.hangs)}\u00d7`);
    if (device.pid) facts.push(`process ${device.pid}`);
    setText(part.facts, facts.join(" \u00b7 "));
}

export function updateDevices(list, status) {
    sync(list, status.devices, (one) => one.worker, makeDevice, updateDevice);
}

/* ------- models ------- */

const MODEL_STATES = {
    loading: ["wait", "loading"], ready: ["good", "ready"], unloading: ["wait", "unloading"],
    unavailable: ["bad", "unavailable"], missing: ["bad", "not loaded"], waiting: ["wait", "waits for a worker"],
};

function stateOf(model) {
    return model.state === "ready" && !model.workers ? "waiting" : model.state;
}

// Columns: what is under each heading, as a number to sort by and as a text.
export const MODEL_COLUMNS = [
    {title: "Pending", value: (m) => m.pending, text: count},
    {title: "Answered", value: (m) => m.answered, text: count},
    {title: "Failed", value: (m) => m.failed, text: count},
    {title: "Mean time", value: (m) => (m.answered ? m.answered_ns / m.answered : -1), text: time},
    {title: "In a batch", value: (m) => (m.batches ? m.answered / m.batches : -1), text: (v) => v.toFixed(1)},
    {title: "Cache hits", value: (m) => {
        const all = m.geometry_hits + m.geometry_misses;
        return all ? m.geometry_hits / all : -1;
    }, text: (v) => share(v, 1)},
    {title: "Weights", value: (m) => m.weights_bytes || -1, text: bytes},
];

// What is wrong first, then what loads, then by name, as the server lists them.
const URGENCY = {unavailable: 0, missing: 0, waiting: 1, loading: 2, unloading: 3, ready: 4};

export function modelsOf(status, view) {
    const missing = status.missing.map((one) => ({
        ...one, row: `missing ${one.name}`, state: "missing", outputs: [], pending: 0, answered: 0, failed: 0, batches: 0,
        geometry_hits: 0, geometry_misses: 0, weights_bytes: 0, load_total: 0,
    }));
    const wanted = view.filter.toLowerCase();
    const models = [...status.models, ...missing].filter((one) => one.name.toLowerCase().includes(wanted));
    if (view.column === null) return models.sort((a, b) => URGENCY[stateOf(a)] - URGENCY[stateOf(b)]);
    const {value} = MODEL_COLUMNS[view.column];
    return models.sort((a, b) => value(b) - value(a));
}

function makeModel() {
    const row = make("tr");
    const part = {
        name: make("b"), version: make("span", {class: "soft"}), tensors: make("div", {class: "why"}),
        pill: makePill(), progress: make("progress", {"aria-label": "load progress"}), why: make("div", {class: "why"}),
    };
    partsOf.set(row, part);
    part.cells = MODEL_COLUMNS.map((column) => make("td", {class: "n", "data-label": column.title}));
    row.append(make("th", {scope: "row"}, part.name, " ", part.version, part.tensors),
        make("td", {class: "state"}, part.pill, part.progress, part.why), ...part.cells);
    return row;
}

function updateModel(row, model) {
    const part = partsOf.get(row), state = stateOf(model);
    setAttribute(row, "data-model", model.name);
    setText(part.name, model.name);
    setText(part.version, model.version || "");
    const outputs = model.outputs.map((one) => `${one.name} ${one.channels}`).join(", ");
    const more = model.outputs_count > model.outputs.length ? ` and ${model.outputs_count - model.outputs.length} more` : "";
    setText(part.tensors, outputs && `${model.channels} in; out: ${outputs}${more}`);
    setPill(part.pill, ...MODEL_STATES[state]);
    part.progress.hidden = !model.load_total;
    setAttribute(part.progress, "max", model.load_total || 1);
    setAttribute(part.progress, "value", model.load_done ?? 0);
    const isWrong = state === "unavailable" || state === "missing";
    setAttribute(part.why, "class", isWrong ? "why bad-text" : "why");
    setText(part.why, model.why);
    MODEL_COLUMNS.forEach((column, i) => {
        const value = column.value(model);
        if (value < 0) setText(part.cells[i], NONE);
        else setNumber(part.cells[i], value, column.text(value));
    });
}

export function updateModels(body, models) {
    sync(body, models, (one) => one.row, makeModel, updateModel);
}

/* ------- failures ------- */

function makeFailure() {
    const row = make("li", {class: "failure"});
    const part = {
        time: make("time"), code: make("span", {class: "pill bad"}), times: make("span", {class: "n"}),
        where: make("span", {class: "soft"}), text: make("p"),
    };
    partsOf.set(row, part);
    row.append(make("div", {class: "line"}, part.time, part.code, part.where, part.times), part.text);
    return row;
}

export function updateFailures(list, status) {
    sync(list, status.failures, (one) => one.id, makeFailure, (row, one) => {
        const part = partsOf.get(row);
        setText(part.time, clock(one.last_ms, status.now_ms));
        setAttribute(part.time, "datetime", new Date(one.last_ms).toISOString());
        setText(part.code, one.code);
        setText(part.where, [one.method, one.model].filter(Boolean).join(" \u00b7 "));
        setText(part.text, one.text);
        const since = one.count > 1 ? ` in ${age(one.last_ms - one.first_ms)}` : "";
        setNumber(part.times, one.count, `${count(one.count)}\u00d7${since}`);
    });
}
