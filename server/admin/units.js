// units - numbers as people read them.
// SPDX-License-Identifier: Apache-2.0

export const NONE = "\u2013"; // where there is no number
const whole = new Intl.NumberFormat("en");

function withUnit(value, unit) {
    const digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    return `${Number(value.toFixed(digits))}\u00a0${unit}`;
}

export function count(value) {
    if (value < 1e7) return whole.format(Math.round(value));
    return value < 1e9 ? withUnit(value / 1e6, "M") : withUnit(value / 1e9, "G");
}

// Axes have little room.
export function shortCount(value) {
    if (value >= 1e9) return `${Number((value / 1e9).toPrecision(2))}G`;
    if (value >= 1e6) return `${Number((value / 1e6).toPrecision(2))}M`;
    if (value >= 1e4) return `${Number((value / 1e3).toPrecision(2))}k`;
    return String(Number(value.toPrecision(3)));
}

export function rate(perSecond) {
    return perSecond < 99.95 ? String(Number(perSecond.toFixed(1))) : count(perSecond);
}

export function bytes(value) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = 0;
    for (; value >= 1024 && unit + 1 < units.length; unit++) value /= 1024;
    return withUnit(value, units[unit]);
}

export function time(ns) {
    if (ns < 1e6) return `${Math.round(ns / 1e3)}\u00a0\u00b5s`;
    return ns < 1e9 ? withUnit(ns / 1e6, "ms") : withUnit(ns / 1e9, "s");
}

export function share(part, all) {
    if (!all) return NONE;
    const percent = (100 * part) / all;
    // "100 %" and "0 %" mean all and none.
    const edge = (percent > 0 && percent < 1) || (percent > 99 && percent < 100);
    return `${edge ? Math.min(99.9, Math.max(0.1, percent)).toFixed(1) : Math.round(percent)}\u00a0%`;
}

export function age(ms) {
    const seconds = Math.max(0, Math.round(ms / 1000));
    if (seconds < 120) return `${seconds}\u00a0s`;
    if (seconds < 7200) return `${Math.floor(seconds / 60)}\u00a0min`;
    if (seconds < 172800) return `${(seconds / 3600).toFixed(1)}\u00a0h`;
    return `${Math.floor(seconds / 86400)}\u00a0days`;
}

// The time of day; with the date when that is another.
export function clock(ms, nowMs) {
    const then = new Date(ms);
    const day = then.toDateString() === new Date(nowMs).toDateString();
    return day ? then.toLocaleTimeString("en-GB") : then.toLocaleString("en-GB");
}
