// charts - the pictures of the page, from what /status.json says.
// SPDX-License-Identifier: Apache-2.0

import {makeChart, showBars, showHistogram, showTimes} from "./chart.js";
import {clock, count, NONE, rate, shortCount, time} from "./units.js";

const COLUMNS_MIN = 24; // two minutes of five seconds: a young server has few points

export function makeCharts() {
    const charts = {
        requests: makeChart("Requests per second"),
        latency: makeChart("Latency"),
        histogram: makeChart("Latency, the last minute"),
        waiting: makeChart("Requests waiting"),
        fill: makeChart("Batch fill"),
    };
    for (const [name, chart] of Object.entries(charts)) chart.figure.id = `chart-${name}`;
    return charts;
}

// The points right-aligned: the newest is the last column, and where there was no server is null.
function columnsOf(points, valueOf) {
    const have = points.answered.length, columns = Math.max(have, COLUMNS_MIN);
    return Array.from({length: columns}, (_, i) => {
        const at = i - (columns - have);
        return at < 0 ? null : valueOf(at);
    });
}

function endsOf(status) {
    const spans = status.points.span_ms, ends = [];
    let end = status.now_ms;
    for (let i = spans.length - 1; i >= 0; i--) {
        ends[i] = end;
        end -= spans[i];
    }
    return columnsOf(status.points, (i) => ends[i]);
}

function mostOf(values) {
    return Math.max(0, ...values.filter((value) => value !== null));
}

export function updateCharts(charts, status) {
    const {points} = status;
    const ends = endsOf(status), columns = ends.length;
    const when = (i) => clock(ends[i], status.now_ms);
    const atTime = (say) => (i) => (ends[i] === null ? null : `${when(i)}: ${say(i)}`);
    const perSecond = (list) => columnsOf(points, (i) => (list[i] * 1000) / points.span_ms[i]);

    const answered = perSecond(points.answered), failed = perSecond(points.failed);
    showBars(charts.requests, {
        columns,
        series: [{values: answered, kind: "good-bar"}, {values: failed, kind: "bad-bar"}],
        least: 1,
        format: shortCount,
        said: `now ${rate(answered[columns - 1] ?? 0)}`,
        sentence: `now ${rate(answered[columns - 1] ?? 0)}, most ${rate(mostOf(answered))}; failed most ` +
            `${rate(mostOf(failed))}`,
        at: atTime((i) => `${rate(answered[i])} answered, ${rate(failed[i])} failed`),
    });

    const p50 = columnsOf(points, (i) => points.p50_ns[i]), p99 = columnsOf(points, (i) => points.p99_ns[i]);
    const minute = status.minute.request_ns;
    const words = minute.count ? `p50 ${time(minute.p50)}, p99 ${time(minute.p99)}` : "no request in the last minute";
    showTimes(charts.latency, {
        columns,
        series: [{values: p99, kind: "soft-line"}, {values: p50, kind: "line"}],
        said: "p50 and p99",
        sentence: words,
        at: atTime((i) => (p50[i] ? `p50 ${time(p50[i])}, p99 ${time(p99[i])}` : "none")),
    });

    const {bounds_ns: bounds, counts} = status.latency;
    showHistogram(charts.histogram, {
        bounds, counts,
        marks: minute.count ? [{ns: minute.p50, text: "p50"}, {ns: minute.p99, text: "p99"}] : [],
        format: shortCount,
        said: minute.count ? `${count(minute.count)} requests` : "no requests",
        sentence: minute.count ? `${count(minute.count)} requests, ${words}` : words,
        at: (i) => {
            const range = i < bounds.length
                ? `${i ? time(bounds[i - 1]) : "0"} to ${time(bounds[i])}` : `over ${time(bounds[i - 1])}`;
            return `${range}: ${count(counts[i])}`;
        },
    });

    const waiting = columnsOf(points, (i) => points.waiting[i]);
    showBars(charts.waiting, {
        columns,
        series: [{values: waiting, kind: "good-bar"}],
        least: 1,
        format: shortCount,
        said: `now ${count(status.requests.waiting)}`,
        sentence: `now ${count(status.requests.waiting)}, most ${count(mostOf(waiting))}`,
        at: atTime((i) => `at most ${count(waiting[i])}`),
    });

    const fill = columnsOf(points, (i) => (points.batches[i] ? points.fill[i] / 10 : null));
    const batches = status.minute.batch_fill_billionths;
    const mean = batches.count ? `${(batches.sum / batches.count / 1e7).toFixed(1)}\u00a0%` : NONE;
    showBars(charts.fill, {
        columns,
        series: [{values: fill, kind: "good-bar"}],
        least: 1,
        most: 100,
        format: (value) => `${value}\u00a0%`,
        said: `${mean} of the budget`,
        sentence: `in the last minute ${mean} of a batch's voxels, ${count(batches.count)} batches`,
        at: atTime((i) => (fill[i] === null ? "no batch" : `${fill[i]}\u00a0% of ${count(points.batches[i])} batches`)),
    });
}
