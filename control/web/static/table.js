// A table that is sorted by its headings and brought up to date row by row, so that whoever reads
// it or stands in it with the keyboard is not thrown out every two seconds. Long lists show a part.

import { h, newId, say } from "./dom.js";
import { count } from "./format.js";

const PART = 100;

/**
 * Columns are `{ label, text(row), value(row)?, number?, node(row)?, control(get)?, plain? }`:
 * `text` or `node` is shown, `value` sorted by; a `control` is made once a row and gets the row as
 * it is, and `refresh(cell, row)` brings it up to date.
 */
export class Table {
  constructor({ caption, columns, key, sort, empty = "Nothing to show.", rowClass }) {
    Object.assign(this, { columns, key, rowClass });
    this.sort = sort || { column: null, down: false };
    this.rows = [];
    this.lines = new Map();
    this.shown = PART;
    const id = newId("table");
    this.heads = columns.map((column, at) => this.head(column, at));
    this.body = h("tbody", { role: "rowgroup" });
    this.empty = h("p", { class: "empty" }, empty);
    this.more = h("button", { type: "button", class: "plain", onclick: () => this.showMore() });
    this.table = h(
      "table",
      { role: "table", "aria-labelledby": id },
      h("caption", { id, class: "unseen" }, caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)),
      this.body,
    );
    const sheet = { class: "sheet", tabindex: "0", role: "region", "aria-labelledby": id };
    this.root = h("div", { class: "list" }, h("div", sheet, this.table), this.empty, this.more);
    this.update([]);
  }

  head(column, at) {
    const attributes = {
      scope: "col",
      role: "columnheader",
      class: column.number ? "number" : null,
    };
    if (!column.value) return h("th", attributes, column.label);
    const button = h("button", { type: "button", onclick: () => this.sortBy(at) }, column.label);
    return h("th", { ...attributes, "aria-sort": "none" }, button);
  }

  sortBy(at) {
    const again = this.sort.column === at;
    this.sort = { column: at, down: again ? !this.sort.down : Boolean(this.columns[at].number) };
    this.update(this.rows);
  }

  showMore() {
    this.shown += PART;
    this.update(this.rows);
  }

  /** Shows these rows. */
  update(rows) {
    this.rows = rows;
    const { column, down } = this.sort;
    this.heads.forEach((head, at) => {
      if (!this.columns[at].value) return;
      const order = at !== column ? "none" : down ? "descending" : "ascending";
      if (head.getAttribute("aria-sort") !== order) head.setAttribute("aria-sort", order);
    });
    const sorted = column === null ? rows : sortedBy(rows, this.columns[column].value, down);
    const part = sorted.slice(0, this.shown);
    const keys = new Set(part.map(this.key));
    for (const [key, line] of this.lines) {
      if (!keys.has(key)) [line.root.remove(), this.lines.delete(key)];
    }
    part.forEach((row, at) => this.place(row, at));
    this.empty.hidden = rows.length > 0;
    this.table.hidden = rows.length === 0;
    this.more.hidden = sorted.length <= this.shown;
    say(this.more, `Show more (${count(sorted.length - part.length)} left)`);
  }

  place(row, at) {
    const key = this.key(row);
    let line = this.lines.get(key);
    if (!line) this.lines.set(key, (line = this.line()));
    line.row = row;
    this.columns.forEach((column, index) => show(column, line.cells[index], row));
    line.root.className = this.rowClass ? this.rowClass(row) : "";
    // Moving a row that holds the focus would lose it: only what is out of place is moved.
    if (this.body.children[at] !== line.root)
      this.body.insertBefore(line.root, this.body.children[at]);
  }

  line() {
    const line = { row: null };
    line.cells = this.columns.map((column, at) => {
      const tag = at === 0 ? "th" : "td";
      const role = at === 0 ? "rowheader" : "cell";
      const cell = h(tag, {
        role,
        scope: at === 0 ? "row" : null,
        "data-label": column.label,
        class:
          [column.number && "number", column.plain && "words"].filter(Boolean).join(" ") || null,
      });
      if (column.control) cell.append(column.control(() => line.row));
      return cell;
    });
    line.root = h("tr", { role: "row" }, line.cells);
    return line;
  }
}

function show(column, cell, row) {
  if (column.control) column.refresh?.(cell, row);
  else if (column.node) cell.replaceChildren(column.node(row));
  else say(cell, column.text(row));
}

function sortedBy(rows, value, down) {
  const turn = down ? -1 : 1;
  const ranked = rows.map((row) => [value(row), row]);
  ranked.sort(([a], [b]) => turn * compare(a, b));
  return ranked.map(([, row]) => row);
}

function compare(a, b) {
  if (typeof a === "string") return a.localeCompare(b, "en", { numeric: true });
  return (a ?? -1) - (b ?? -1);
}
