// dom - makes and updates elements.  What comes from a server's clients or disk is only ever the
// text of a text node or the value of an attribute: no function here reads markup.
// SPDX-License-Identifier: Apache-2.0

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) setAttribute(element, key, value);
    element.append(...children);
    return element;
}

// make("td", {class: "n"}, "text", element...)
export function make(name, attributes = {}, ...children) {
    return fill(document.createElement(name), attributes, children);
}

export function makeSvg(name, attributes = {}, ...children) {
    return fill(document.createElementNS(SVG, name), attributes, children);
}

// These two write only what differs, so that a selection and a screen reader's place survive.
export function setText(element, text) {
    const said = String(text);
    if (element.textContent !== said) element.textContent = said;
}

export function setAttribute(element, key, value) {
    if (value === null || value === undefined || value === false) element.removeAttribute(key);
    else if (element.getAttribute(key) !== String(value)) element.setAttribute(key, value);
}

// A number as people read it, and exactly, as <data value="...">.
export function setNumber(element, value, text) {
    let data = element.firstElementChild;
    if (!data || data.localName !== "data") {
        element.replaceChildren((data = make("data")));
    }
    setAttribute(data, "value", value);
    setText(data, text);
}

const rowsOf = new WeakMap(); // by parent: the element of each key

// Makes the children of `parent` be one element for each item, in order.  An item that stays keeps
// its element, which `update` brings up to date.
export function sync(parent, items, keyOf, create, update) {
    const known = rowsOf.get(parent) ?? new Map();
    rowsOf.set(parent, known);
    const seen = new Set();
    let at = parent.firstElementChild;
    for (const item of items) {
        const key = keyOf(item);
        seen.add(key);
        let element = known.get(key);
        if (!element) known.set(key, (element = create(item)));
        update(element, item);
        if (element === at) at = at.nextElementSibling;
        else parent.insertBefore(element, at);
    }
    for (const [key, element] of known) {
        if (seen.has(key)) continue;
        element.remove();
        known.delete(key);
    }
}
