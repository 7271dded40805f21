// Messages by key, unique key, id, offset or time; the body as text, as JSON or as bytes, and as a download.

import { ask, count, el, moment, replace, sized } from "./dom.js";

const MEANS = [["key", "key"], ["unique_key", "unique key"], ["id", "message id"], ["offset", "offset in the log"], ["time", "stored from (time)"]];
const ROW = 16;

export const search = {
  title: "Search",
  parts: [],
  show(main) {
    if (document.getElementById("search")) return null;
    const by = el("select", { id: "by" }, MEANS.map(([value, name]) => el("option", { value }, name)));
    const field = (id, name, more = {}) => el("label", {}, name, el("input", { id, ...more }));
    const found = el("div", { id: "found", role: "status" });
    const form = el("form", { id: "search", submit: (event) => { event.preventDefault(); find(found); } },
      el("label", {}, "By", by), field("value", "What", { required: true, size: 34 }), field("topic", "Topic"),
      field("begin", "From", { placeholder: "2026-01-31T12:00" }), field("end", "To", { placeholder: "2026-01-31T13:00" }),
      field("max", "At most", { type: "number", min: 1, max: 64, value: 32 }),
      el("button", { type: "submit", id: "find" }, "Search"));
    replace(main, el("h1", {}, "Search for messages"), el("section.card", {}, form), found);
    return null;
  },
};

async function find(found) {
  const given = {};
  for (const name of ["by", "value", "topic", "begin", "end", "max"]) {
    const value = document.getElementById(name).value.trim();
    if (value) given[name] = value;
  }
  replace(found, el("p.soft", {}, "It is being searched for."));
  try {
    const said = await ask("/api/messages", given);
    replace(found, el("p", {}, `${count(said.messages.length)} found`),
      said.remarks.map((each) => el("p.warn", {}, each)), said.messages.map(one));
  } catch (error) {
    replace(found, el("p.bad", {}, error.message));
  }
}

function one(message, at) {
  const facts = [
    ["group", message.group], ["tags", message.tags], ["keys", message.keys.join(" ")], ["unique key", message.unique_key],
    ["message id", message.message_id], ["born", moment(message.born_timestamp)], ["stored", moment(message.store_timestamp)],
    ["log offset", count(message.physical_offset)], ["properties", JSON.stringify(message.properties)],
  ];
  return el("section.card.message", {},
    el("h2", {}, `${message.topic}, queue ${message.queue_id}, offset ${count(message.queue_offset)}`),
    el("dl", {}, facts.filter(([, value]) => value).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
    body(message, at));
}

function body(message, at) {
  if (message.body === null) return el("p.bad", {}, message.body_error);
  const bytes = Uint8Array.from(atob(message.body), (each) => each.charCodeAt(0));
  const forms = decoded(bytes, message.body_size > bytes.length);
  const shown = el("pre", { tabindex: 0, "aria-label": "Body" });
  const choice = el("select", { id: `form-${at}`, change: () => { shown.textContent = forms.get(choice.value); } },
    [...forms.keys()].map((name) => el("option", { value: name }, name)));
  shown.textContent = forms.get(choice.value);
  const cut = message.body_size > bytes.length ? `, the first ${sized(bytes.length)} are shown` : "";
  const where = `/api/body?${new URLSearchParams({ id: message.message_id })}`;
  return el("div", {},
    el("p", {}, `Body of ${sized(message.body_size)}${cut} `, el("label.beside", {}, "as", choice), " ",
      el("a.download", { href: where, download: true }, "Download")), shown);
}

// Name -> the body in that form; the best one first.
export function decoded(bytes, cut = false) {
  const forms = new Map();
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: cut });
    try {
      forms.set("JSON", JSON.stringify(JSON.parse(text), null, 2));
    } catch {
      // then it is no JSON
    }
    forms.set("text", text);
  } catch {
    // then it is no UTF-8
  }
  forms.set("bytes", dump(bytes));
  return forms;
}

function dump(bytes) {
  const lines = [];
  for (let at = 0; at < bytes.length; at += ROW) {
    const row = bytes.subarray(at, at + ROW);
    const hex = Array.from(row, (each) => each.toString(16).padStart(2, "0")).join(" ");
    const text = Array.from(row, (each) => (each >= 32 && each < 127 ? String.fromCharCode(each) : ".")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex.padEnd(3 * ROW)} ${text}`);
  }
  return lines.join("\n");
}
