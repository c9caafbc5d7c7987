// The small things that pages are made of.

import { h, say } from "./dom.js";
import { percent } from "./format.js";

// What is told by colour is told by a sign and a word as well.
const SIGNS = { good: "●", warn: "▲", bad: "✕", calm: "○", full: "■" };

/** A word about a state, with a sign and a colour: `badge("bad", "down")`. */
export function badge(kind, text) {
  const sign = h("span", { "aria-hidden": "true" }, SIGNS[kind]);
  return h("span", { class: `badge ${kind}` }, sign, ` ${text}`);
}

const STATES = {
  up: ["good", "up"],
  draining: ["warn", "draining"],
  down: ["bad", "down"],
  standby: ["calm", "stands by"],
  full: ["full", "full"],
};

/** The state of a real server. */
export function stateBadge(state) {
  return badge(...(STATES[state] || ["calm", state]));
}

/** A part of a page with a heading. */
export function section(title, ...children) {
  return h("section", { class: "panel" }, h("h2", {}, title), ...children);
}

/** A large figure with a name, and a line below it. */
export class Tile {
  constructor(name, { href } = {}) {
    this.figure = h("p", { class: "figure" }, "–");
    this.below = h("p", { class: "below" });
    const title = h("h2", {}, href ? h("a", { href }, name) : name);
    this.root = h("section", { class: "tile" }, title, this.figure, this.below);
  }

  set(figure, below = "", kind = "") {
    say(this.figure, figure);
    say(this.below, below);
    this.root.className = kind ? `tile ${kind}` : "tile";
  }
}

/** A bar for a share of one, beside a number. */
export class Share {
  constructor() {
    this.text = h("span", { class: "text" });
    this.fill = h("span", { class: "fill" });
    this.root = h(
      "span",
      { class: "share" },
      h("span", { class: "track", "aria-hidden": "true" }, this.fill),
      this.text,
    );
  }

  set(share, text = percent(share)) {
    say(this.text, text);
    const width = Number.isFinite(share) ? Math.min(100, Math.max(0, share * 100)) : 0;
    this.fill.style.width = `${width}%`;
  }
}

/** A column of a table with figures; what is not known is sorted below all others. */
export function numberColumn(label, value, text = String) {
  return {
    label,
    number: true,
    value: (row) => value(row) ?? -1,
    text: (row) => text(value(row)),
  };
}

/** A column of a table with a bar for a share; `figure` is what is said and sorted by instead. */
export function shareColumn(label, share, figure) {
  const bars = new WeakMap();
  const text = (row) =>
    figure ? `${figure.text(row)} (${percent(share(row))})` : percent(share(row));
  return {
    label,
    number: true,
    value: figure ? figure.value : (row) => share(row) ?? -1,
    control: () => {
      const bar = new Share();
      bars.set(bar.root, bar);
      return bar.root;
    },
    refresh: (cell, row) => bars.get(cell.firstChild).set(share(row), text(row)),
  };
}

/** A column of a table with links. */
export function linkColumn(label, text, href) {
  return {
    label,
    value: text,
    control: () => h("a", {}),
    refresh: (cell, row) => {
      say(cell.firstChild, text(row));
      cell.firstChild.setAttribute("href", href(row));
    },
  };
}

/** Names and values. Values are texts or elements. */
export function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h(
    "dl",
    { class: "facts" },
    told.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/** What went wrong, with each field that is to blame. */
export function problemBox(problem) {
  const fields = problem.fields || [];
  const items = fields.map(({ pointer, detail, hint }) =>
    h("li", {}, pointer ? h("code", {}, pointer) : null, ` ${detail}; ${hint}`),
  );
  const lines = fields.length > 0 ? [h("ul", {}, items)] : [h("p", {}, problem.message)];
  const title = problem.title ? [h("p", {}, h("b", {}, problem.title))] : [];
  return h("div", { class: "problem", role: "alert" }, ...title, ...lines);
}

/** A choice of one of a few, as a row of buttons. `changed` gets the value. */
export function choice(label, options, chosen, changed) {
  const buttons = options.map(([value, text]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === chosen),
        onclick: (event) => {
          for (const other of buttons) other.setAttribute("aria-pressed", "false");
          event.currentTarget.setAttribute("aria-pressed", "true");
          changed(value);
        },
      },
      text,
    ),
  );
  return h("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

/** A field to search by; `changed` gets what is in it, in lower case. */
export function searchField(label, changed) {
  const input = h("input", {
    type: "search",
    placeholder: label,
    "aria-label": label,
    autocomplete: "off",
    spellcheck: "false",
    oninput: () => changed(input.value.trim().toLowerCase()),
  });
  return input;
}
