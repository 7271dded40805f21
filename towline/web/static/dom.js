// Elements from data, and data as people read it. Text from a cluster only ever becomes text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

// el("td.number", {title: "x"}, "text", element, ...): a tag with classes, attributes and listeners, children.
export function el(kind, attributes = {}, ...children) {
  return filled(document.createElement(kind.split(".")[0]), kind, attributes, children);
}

export function svg(kind, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, kind.split(".")[0]), kind, attributes, children);
}

function filled(made, kind, attributes, children) {
  for (const name of kind.split(".").slice(1)) if (name) made.classList.add(name);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, String(value));
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// Text that differs is written, and nothing else is touched: what is selected or focused stays so.
export function setText(element, text) {
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

// A focused element of the same id has the focus again after its surroundings were made anew.
export function replace(parent, ...children) {
  const focused = document.activeElement;
  const id = focused && parent.contains(focused) ? focused.id : "";
  parent.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  if (id) document.getElementById(id)?.focus({ preventScroll: true });
}

export function count(value, digits = 0) {
  if (value === null || value === undefined) return "";
  return value.toLocaleString("en", { maximumFractionDigits: digits });
}

export function sized(bytes) {
  if (bytes === null || bytes === undefined) return "";
  let size = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (Math.abs(size) < 1024) return `${count(size, unit === "B" ? 0 : 1)} ${unit}`;
    size /= 1024;
  }
  return `${count(size, 1)} TiB`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function moment(ms) {
  return new Date(ms).toLocaleString("sv-SE");
}

export function lasting(ms) {
  const seconds = Math.max(0, Math.round(ms / 1000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} days`;
}

// #/topics/a%2Fb: ["topics", "a/b"]. A word that is no encoding, as a person may type it, stands for itself.
export function wordsOf(fragment) {
  return fragment.replace(/^#\/?/, "").split("/").map((word) => {
    try {
      return decodeURIComponent(word);
    } catch {
      return word;
    }
  });
}

// {name, number}: a column; cells are texts or elements.
export function table(caption, columns, rows) {
  const head = columns.map((each) => el(each.number ? "th.number" : "th", { scope: "col" }, each.name));
  const body = rows.map((cells) =>
    el("tr", {}, cells.map((cell, at) => el(columns[at].number ? "td.number" : "td", {}, cell === "" ? "" : cell))));
  return el("div.scroll", {}, el("table", {}, caption ? el("caption", {}, caption) : "",
    el("thead", {}, el("tr", {}, head)), el("tbody", {}, body)));
}

export const text = (name) => ({ name });
export const number = (name) => ({ name, number: true });

// The answer to a question; an Error with what was refused, and what to do about it.
export async function ask(path, given = {}) {
  const answer = await fetch(`${path}?${new URLSearchParams(given)}`, { headers: { accept: "application/json" } });
  const said = await answer.json().catch(() => ({ sentence: `the server answered ${answer.status}`, remedy: "" }));
  if (!answer.ok) throw new Error([said.sentence, said.remedy].filter(Boolean).join("; "));
  return said;
}
