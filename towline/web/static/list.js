// A long list: filtered, sorted by its heads, a hundred rows at a time. Rows that stay keep their elements.

import { count, el, setText } from "./dom.js";

const PAGE = 100;

// columns: {name, number, of(row) -> text, by(row) -> what it is sorted by, cell(row) -> element}
export class List {
  constructor(id, columns, { sortedBy = 0, down = false, shown = () => true } = {}) {
    this.columns = columns;
    this.shown = shown;
    this.sort = { at: sortedBy, down };
    this.page = 0;
    this.rows = [];
    this.kept = new Map();
    this.filter = el("input", { id: `${id}-filter`, type: "search", input: () => this.turn(0) });
    this.heads = columns.map((column, at) => el(column.number ? "th.number" : "th", { scope: "col" },
      el("button", { type: "button", id: `${id}-by-${at}`, click: () => this.order(at) }, column.name)));
    this.body = el("tbody", { id: `${id}-rows` });
    this.said = el("span.soft", { id: `${id}-count`, role: "status" });
    this.back = el("button", { type: "button", id: `${id}-back`, click: () => this.turn(this.page - 1) }, "Back");
    this.on = el("button", { type: "button", id: `${id}-on`, click: () => this.turn(this.page + 1) }, "On");
    this.element = el("div", {},
      el("form", { submit: (event) => event.preventDefault() },
        el("label", {}, "Filter by name", this.filter), this.back, this.on, this.said),
      el("div.scroll", {}, el("table", { id }, el("thead", {}, el("tr", {}, this.heads)), this.body)));
  }

  order(at) {
    this.sort = { at, down: this.sort.at === at ? !this.sort.down : Boolean(this.columns[at].number) };
    this.turn(0);
  }

  turn(page) {
    this.page = page;
    this.update(this.rows);
  }

  update(rows) {
    this.rows = [...rows];
    const wanted = this.filter.value.toLowerCase();
    const column = this.columns[this.sort.at];
    const by = column.by ?? column.of;
    const found = this.rows.filter((row) => this.shown(row) && this.columns[0].of(row).toLowerCase().includes(wanted));
    found.sort((a, b) => compared(by(a), by(b)) * (this.sort.down ? -1 : 1) || compared(a[0], b[0]));
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    this.page = Math.min(Math.max(0, this.page), pages - 1);
    const first = this.page * PAGE;
    this.draw(found.slice(first, first + PAGE));
    const to = Math.min(first + PAGE, found.length);
    setText(this.said, `${found.length ? `${count(first + 1)} to ${count(to)} of ` : ""}${count(found.length)}`);
    this.back.disabled = this.page === 0;
    this.on.disabled = this.page === pages - 1;
    this.heads.forEach((head, at) => {
      if (at === this.sort.at) head.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
  }

  draw(rows) {
    const kept = new Map();
    rows.forEach((row, at) => {
      const line = this.kept.get(row[0]) ?? this.line(row);
      kept.set(row[0], line);
      if (line.row !== row) {
        line.row = row;
        this.columns.forEach((column, place) => {
          if (!column.cell) setText(line.cells[place], column.of(row));
        });
      }
      if (this.body.children[at] !== line.element) this.body.insertBefore(line.element, this.body.children[at] ?? null);
    });
    this.kept = kept;
    while (this.body.children.length > rows.length) this.body.lastChild.remove();
  }

  line(row) {
    const cells = this.columns.map((column) => el(column.number ? "td.number" : "td", {}, column.cell ? column.cell(row) : ""));
    return { element: el("tr", { "data-key": row[0] }, cells), cells, row: null };
  }
}

function compared(a, b) {
  if (typeof a === "string" || typeof b === "string") return String(a ?? "").localeCompare(String(b ?? ""));
  return (a ?? -1) - (b ?? -1);
}
