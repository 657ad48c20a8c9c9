// chart - small charts as SVG: bars or lines over the last minutes, and a histogram.
//
// A chart is a <figure>: its caption has the title and, under a pointer, the values there.  It is
// drawn anew for each width, so that its letters are never stretched.  A sentence in aria-label
// says what the picture shows.
// SPDX-License-Identifier: Apache-2.0

import {make, makeSvg, setAttribute, setText} from "./dom.js";
import {time} from "./units.js";

const HEIGHT = 120;
const LEFT = 44; // room for the numbers of the axis
const BOTTOM = 18;
const TOP = 6;
const PLOT = HEIGHT - TOP - BOTTOM;

export function makeChart(title) {
    const said = make("span", {class: "said"});
    const svg = makeSvg("svg", {class: "chart", role: "img", height: HEIGHT});
    const figure = make("figure", {class: "card"}, make("figcaption", {}, make("b", {}, title), said), svg);
    const chart = {figure, svg, said, title, shown: null};
    svg.addEventListener("pointermove", (event) => point(chart, event));
    svg.addEventListener("pointerleave", () => unpoint(chart));
    new ResizeObserver(() => chart.shown && draw(chart)).observe(svg);
    return chart;
}

// shown: {marks: [{text, draw}], ...}: the picture of one moment, drawn for any width.
function show(chart, shown) {
    chart.shown = shown;
    draw(chart);
}

function draw(chart) {
    const width = Math.max(160, chart.svg.clientWidth || 320);
    chart.width = width;
    setAttribute(chart.svg, "viewBox", `0 0 ${width} ${HEIGHT}`);
    setAttribute(chart.svg, "aria-label", `${chart.title}: ${chart.shown.sentence}`);
    chart.svg.replaceChildren(...chart.shown.draw(width - LEFT - 4));
    if (chart.pointed === undefined) setText(chart.said, chart.shown.said);
    else tell(chart);
}

function point(chart, event) {
    const x = event.clientX - chart.svg.getBoundingClientRect().left - LEFT;
    const columns = chart.shown?.columns ?? 0;
    if (!columns) return;
    const column = Math.floor((x / (chart.width - LEFT - 4)) * columns);
    chart.pointed = Math.min(columns - 1, Math.max(0, column));
    tell(chart);
}

function unpoint(chart) {
    chart.pointed = undefined;
    if (chart.shown) setText(chart.said, chart.shown.said);
}

function tell(chart) {
    setText(chart.said, chart.shown.at(chart.pointed) ?? chart.shown.said);
}

function label(x, y, text, anchor = "end", kind = "") {
    return makeSvg("text", {x, y, "text-anchor": anchor, class: kind}, text);
}

function line(y, width) {
    return makeSvg("line", {class: "grid", x1: LEFT, x2: LEFT + width, y1: y, y2: y});
}

// The smallest of 1, 2, 5, 10, 20 ... that is not below the value.
function above(value) {
    const ten = 10 ** Math.floor(Math.log10(value));
    return [1, 2, 5, 10].map((step) => step * ten).find((step) => step >= value * 0.999999);
}

function linearAxis(most, format, width) {
    const parts = [];
    for (const part of [0, 0.5, 1]) {
        const y = TOP + PLOT * (1 - part);
        parts.push(line(y, width), label(LEFT - 6, y + 4, format(most * part)));
    }
    return parts;
}

function minutesAxis(columns, width) {
    const y = HEIGHT - 4;
    const minutes = Math.round((columns * 5) / 60);
    return [label(LEFT, y, `${minutes} min ago`, "start"), label(LEFT + width, y, "now")];
}

function bar(x, width, from, to, kind) {
    const height = Math.max(0, from - to);
    return makeSvg("rect", {class: kind, x, y: to, width: Math.max(1, width - 0.5), height});
}

// series: [{values, kind}], stacked; values[column] is null where there is none.
export function showBars(chart, {columns, series, least, most, format, said, sentence, at}) {
    const sums = Array.from({length: columns}, (_, i) =>
        series.reduce((sum, one) => sum + (one.values[i] ?? 0), 0));
    const top = most ?? above(Math.max(least, ...sums));
    show(chart, {columns, said, sentence, at, draw(width) {
        const parts = [...linearAxis(top, format, width), ...minutesAxis(columns, width)];
        const step = width / columns;
        for (let i = 0; i < columns; i++) {
            let y = TOP + PLOT;
            for (const one of series) {
                if (!one.values[i]) continue;
                const to = Math.max(TOP, Math.min(y - 1, y - (PLOT * one.values[i]) / top));
                parts.push(bar(LEFT + i * step, step, y, to, one.kind));
                y = to;
            }
        }
        return parts;
    }});
}

// Lines of times in ns on a logarithmic axis; a line is broken where there is no value.
export function showTimes(chart, {columns, series, said, sentence, at}) {
    const all = series.flatMap((one) => one.values.filter((value) => value > 0));
    let low = Math.floor(Math.log10(Math.min(1e6, ...all)));
    const high = Math.max(low + 1, Math.ceil(Math.log10(Math.max(1e6, ...all))));
    low = Math.min(low, high - 1);
    show(chart, {columns, said, sentence, at, draw(width) {
        const yOf = (ns) => TOP + PLOT * (1 - (Math.log10(ns) - low) / (high - low));
        const parts = minutesAxis(columns, width);
        const step = width / columns;
        for (let power = low; power <= high; power += Math.ceil((high - low) / 3)) {
            const y = yOf(10 ** power);
            parts.push(line(y, width), label(LEFT - 6, y + 4, time(10 ** power)));
        }
        for (const one of series) {
            let path = "";
            one.values.forEach((ns, i) => {
                if (!ns) return;
                const from = i && one.values[i - 1] ? "L" : "M";
                path += `${from}${(LEFT + (i + 0.5) * step).toFixed(1)} ${yOf(ns).toFixed(1)}`;
                const alone = from === "M" && !one.values[i + 1];
                if (alone) path += "h1";
            });
            parts.push(makeSvg("path", {class: one.kind, d: path}));
        }
        return parts;
    }});
}

// How many requests took how long.  bounds[i] is the upper bound of counts[i]; the last count is
// above all bounds.  marks: [{ns, text}].
export function showHistogram(chart, {bounds, counts, marks, format, said, sentence, at}) {
    let first = counts.findIndex((n) => n > 0);
    let last = counts.length - 1 - [...counts].reverse().findIndex((n) => n > 0);
    if (first < 0) [first, last] = [3, 9];
    while (last - first < 6) {
        if (first > 0) first--;
        if (last < counts.length - 1) last++;
    }
    const columns = last - first + 1;
    const top = above(Math.max(2, ...counts));
    const column = (ns) => {
        const i = bounds.findIndex((bound) => ns <= bound);
        if (i < 0) return columns - 0.5;
        const from = i ? bounds[i - 1] : 0;
        return i - first + (ns - from) / (bounds[i] - from);
    };
    const atColumn = (i) => at(first + i);
    show(chart, {columns, said, sentence, at: atColumn, draw(width) {
        const parts = linearAxis(top, format, width);
        const step = width / columns;
        const every = Math.ceil(columns / (width / 52));
        for (let i = 0; i < columns; i++) {
            const n = counts[first + i], y = TOP + PLOT;
            if (n) parts.push(bar(LEFT + i * step + 1, step - 1.5, y, Math.min(y - 1, y - (PLOT * n) / top), "good-bar"));
            const bound = bounds[first + i];
            if (bound && i < columns - 1 && i % every === 0)
                parts.push(label(LEFT + (i + 1) * step, HEIGHT - 4, time(bound), "middle"));
        }
        for (const mark of marks) {
            const x = LEFT + column(mark.ns) * step;
            const end = x > LEFT + width - 30;
            parts.push(makeSvg("line", {class: "mark", x1: x, x2: x, y1: TOP, y2: TOP + PLOT}),
                label(end ? x - 4 : x + 4, TOP + 9, mark.text, end ? "end" : "start", "over"));
        }
        return parts;
    }});
}
