// A plot over time: lines, axes with units, the values under the pointer. With the keyboard it is a
// slider over time: arrow keys move along it, and what a screen reader says are the values there.

import { h, say, svg } from "./dom.js";
import { brief, clock } from "./format.js";
import { thin, ticks, times } from "./scale.js";

const EDGE = { top: 10, right: 12, bottom: 24, left: 76 };
const KEYS = { ArrowLeft: -1, ArrowRight: 1, PageUp: 15, PageDown: -15, Home: -1e9, End: 1e9 };

/** One plot. `series` are `{ label, column, scale? }`; `unit` says a value with its unit. */
export class Plot {
  constructor({ label, unit, series, height = 190, top = 0 }) {
    Object.assign(this, { label, unit, series, height, top });
    this.width = 0;
    this.cursor = null;
    this.data = null;
    this.canvas = svg("svg", { "aria-hidden": "true", height });
    this.bubble = h("div", { class: "bubble", hidden: true });
    this.stage = h(
      "div",
      {
        class: "stage",
        tabindex: "0",
        role: "slider",
        "aria-label": `${label}: values over time`,
        "aria-valuemin": "0",
        "aria-valuemax": "0",
        "aria-valuenow": "0",
        "aria-valuetext": "no values yet",
        onkeydown: (event) => this.key(event),
        onpointermove: (event) => this.point(event),
        onpointerleave: () => this.drop(),
        onblur: () => this.drop(),
      },
      this.canvas,
      this.bubble,
    );
    this.legend = h(
      "ul",
      { class: "legend" },
      series.map((one, at) => this.entry(one, at)),
    );
    this.root = h(
      "figure",
      { class: "plot" },
      h("figcaption", {}, h("span", { class: "name" }, label), this.legend),
      this.stage,
    );
    new ResizeObserver(() => this.fit()).observe(this.stage);
  }

  entry(one, at) {
    const line = svg("line", { x1: 0, x2: 18, y1: 5, y2: 5, class: `line tone${at}` });
    one.shown = h("b", {}, "–");
    return h(
      "li",
      {},
      svg("svg", { width: 18, height: 10, "aria-hidden": "true" }, line),
      h("span", {}, one.label),
      one.shown,
    );
  }

  fit() {
    const width = Math.floor(this.stage.clientWidth);
    if (width === this.width || width === 0) return;
    this.width = width;
    this.canvas.setAttribute("width", width);
    if (this.data) this.draw();
  }

  /** Shows the hour from Unix time `from` to `to`, in seconds. */
  update(hour, from, to) {
    this.data = hour;
    [this.from, this.to] = [from, to];
    const first = hour.at.findIndex((at) => at >= from);
    this.span = [first < 0 ? hour.at.length : first, hour.at.length];
    for (const one of this.series)
      say(one.shown, this.unit(this.scaled(one, hour.newest(one.column))));
    if (this.width > 0) this.draw();
  }

  scaled(one, value) {
    return Number.isFinite(value) ? value * (one.scale || 1) : null;
  }

  draw() {
    const { width, height } = this;
    const inner = {
      width: width - EDGE.left - EDGE.right,
      height: height - EDGE.top - EDGE.bottom,
    };
    const lines = this.series.map((one) => this.points(one, inner.width));
    const values = lines
      .flat()
      .filter(Boolean)
      .map(([, value]) => value);
    const marks = ticks(values.reduce((top, value) => Math.max(top, value), this.top));
    this.x = (at) => EDGE.left + ((at - this.from) / (this.to - this.from)) * inner.width;
    this.y = (value) => EDGE.top + inner.height * (1 - value / marks.at(-1));
    const drawn = lines.map((points, at) => this.line(points, at)).reverse();
    this.mark = svg("g", { class: "mark" });
    this.canvas.replaceChildren(...this.grid(marks, inner), ...drawn.flat(), this.mark);
    this.follow();
  }

  points(one, width) {
    const column = this.data.columns[one.column];
    if (!column) return [];
    const points = thin(this.data.at, column, this.span, Math.max(60, width / 3), this.data.stepS);
    return points.map((point) => point && [point[0], this.scaled(one, point[1])]);
  }

  grid(marks, inner) {
    const right = EDGE.left + inner.width;
    const rows = marks.flatMap((value) => {
      const y = Math.round(this.y(value)) + 0.5;
      return [
        svg("line", {
          class: value === 0 ? "axis" : "grid",
          x1: EDGE.left,
          x2: right,
          y1: y,
          y2: y,
        }),
        svg(
          "text",
          { x: EDGE.left - 8, y: y + 3.5, "text-anchor": "end" },
          brief(this.unit(value)),
        ),
      ];
    });
    const { marks: at, step } = times(
      this.from,
      this.to,
      Math.max(2, Math.floor(inner.width / 70)),
    );
    const columns = at.flatMap((time) => {
      const x = Math.round(this.x(time)) + 0.5;
      const foot = this.height - EDGE.bottom;
      const text = clock(time * 1000, step < 60);
      const label = svg("text", { x, y: foot + 16, "text-anchor": "middle" }, text);
      const tick = svg("line", { class: "axis", x1: x, x2: x, y1: foot, y2: foot + 4 });
      // A label that would stick out is left away; its tick stays.
      return x > right - 16 ? [tick] : [tick, label];
    });
    return [...rows, ...columns];
  }

  line(points, at) {
    const parts = [];
    for (const point of points) {
      if (!point) parts.push([]);
      else (parts.at(-1) || parts[parts.push([]) - 1]).push(point);
    }
    const xy = ([time, value]) => `${this.x(time).toFixed(1)} ${this.y(value).toFixed(1)}`;
    const path = parts
      .filter((part) => part.length > 0)
      .map((part) => `M${part.map(xy).join("L")}`);
    const drawn = [svg("path", { class: `line tone${at}`, d: path.join("") })];
    if (at === 0) drawn.unshift(svg("path", { class: "area", d: this.area(parts, xy) }));
    return drawn;
  }

  area(parts, xy) {
    const foot = this.y(0).toFixed(1);
    const closed = parts
      .filter((part) => part.length > 1)
      .map((part) => {
        const [left, right] = [this.x(part[0][0]).toFixed(1), this.x(part.at(-1)[0]).toFixed(1)];
        return `M${left} ${foot}L${part.map(xy).join("L")}L${right} ${foot}Z`;
      });
    return closed.join("");
  }

  point(event) {
    if (!this.mark) return;
    const inner = this.width - EDGE.left - EDGE.right;
    const x = event.clientX - this.stage.getBoundingClientRect().left;
    const at = this.from + ((x - EDGE.left) / inner) * (this.to - this.from);
    this.cursor = this.nearest(at);
    this.follow();
  }

  key(event) {
    if (event.key === "Escape") return this.drop();
    const step = KEYS[event.key];
    // Nothing is drawn before it has data and a width.
    if (step === undefined || !this.mark || this.span[1] <= this.span[0]) return;
    event.preventDefault();
    const [first, last] = this.span;
    const now = this.cursor === null ? last - 1 : this.data.at.indexOf(this.cursor);
    const next = this.cursor === null ? now : Math.min(last - 1, Math.max(first, now + step));
    this.cursor = this.data.at[next];
    this.follow();
  }

  nearest(at) {
    let best = null;
    for (let index = this.span[0]; index < this.span[1]; index += 1) {
      const time = this.data.at[index];
      if (best === null || Math.abs(time - at) < Math.abs(best - at)) best = time;
    }
    return best;
  }

  drop() {
    this.cursor = null;
    this.follow();
  }

  /** Draws what is under the cursor. */
  follow() {
    const index = this.cursor === null ? -1 : this.data.at.indexOf(this.cursor);
    this.bubble.hidden = index < this.span?.[0] || index < 0;
    this.mark?.replaceChildren();
    if (this.bubble.hidden) return;
    const x = this.x(this.cursor);
    const foot = this.height - EDGE.bottom;
    this.mark.append(svg("line", { x1: x, x2: x, y1: EDGE.top, y2: foot }));
    const told = this.series.map((one, at) => {
      const value = this.scaled(one, this.data.columns[one.column]?.[index]);
      if (value !== null) {
        const y = Math.max(EDGE.top, this.y(value));
        this.mark.append(svg("circle", { class: `dot tone${at}`, cx: x, cy: y, r: 3.5 }));
      }
      return [one.label, this.unit(value)];
    });
    const time = clock(this.cursor * 1000);
    this.bubble.replaceChildren(
      h("b", {}, time),
      ...told.map(([label, value]) => h("span", {}, label, " ", h("b", {}, value))),
    );
    const left = x > this.width / 2 ? x - this.bubble.offsetWidth - 10 : x + 10;
    this.bubble.style.left = `${Math.max(0, left)}px`;
    this.stage.setAttribute("aria-valuemax", String(this.span[1] - this.span[0] - 1));
    this.stage.setAttribute("aria-valuenow", String(index - this.span[0]));
    const spoken = told.map(([label, value]) => `${label} ${value}`).join(", ");
    this.stage.setAttribute("aria-valuetext", `${time}: ${spoken}`);
  }
}
