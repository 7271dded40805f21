// Topics with what goes in and out, and the queues of one.

import { ask, count, el, number, replace, setText, sized, table } from "./dom.js";
import { List } from "./list.js";
import { state } from "./state.js";

// The places of a row, as the server tells them.
const [GROUP, TOPIC, WRITE, READ, PERM, ORDER, SYSTEM, PUT, PUT_S, BYTES_S, GET, GET_S] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];

const may = (perm) => [perm & 4 ? "read" : "", perm & 2 ? "write" : ""].filter(Boolean).join(", ") || "nothing";
const figure = (name, at, digits = 0) => ({ name, number: true, of: (row) => count(row[at], digits), by: (row) => row[at] });

let list = null;

export const topics = {
  title: "Topics",
  parts: ["topics"],
  show(main, [topic]) {
    const detail = document.getElementById("topic") ?? el("section.card", { id: "topic", hidden: true });
    if (!list || !main.contains(list.element)) open(main, detail);
    describe(detail, topic);
    return (what) => {
      if (what === "nodes") return;
      list.update(state.lists.topics?.values() ?? []);
      const why = state.why.topics ?? [];
      const known = state.lists.topics
        ? "Asked every 5 s; counters are of the 1,000 topics with most messages." : "The topics are being asked for.";
      setText(document.getElementById("topics-why"), why.length ? `As they were before: ${why.join("; ")}` : known);
      if (what === "topics" && topic) describe(detail, topic);
    };
  },
};

function open(main, detail) {
  const system = el("input", { type: "checkbox", id: "topics-system", change: () => list.turn(0) });
  list = new List("topics", [
    { name: "topic", of: (row) => row[TOPIC], cell: link },
    { name: "group", of: (row) => row[GROUP] },
    { name: "write queues", number: true, of: (row) => count(row[WRITE]), by: (row) => row[WRITE] },
    { name: "read queues", number: true, of: (row) => count(row[READ]), by: (row) => row[READ] },
    { name: "clients may", of: (row) => `${may(row[PERM])}${row[ORDER] ? ", ordered" : ""}` },
    figure("put", PUT),
    figure("put/s", PUT_S, 1),
    { name: "bytes/s", number: true, of: (row) => sized(row[BYTES_S]), by: (row) => row[BYTES_S] },
    figure("read", GET),
    figure("read/s", GET_S, 1),
  ], { shown: (row) => system.checked || !row[SYSTEM] });
  replace(main, el("h1", {}, "Topics"), detail,
    el("section.card", {}, el("p.soft", { id: "topics-why", role: "status" }),
      el("label.beside", {}, system, "The broker's own too"), list.element));
}

function link(row) {
  return el("a", { href: `#/topics/${encodeURIComponent(row[TOPIC])}` }, row[TOPIC]);
}

async function describe(detail, topic) {
  detail.hidden = !topic;
  if (!topic) return;
  const heading = el("h2", {}, `Queues of ${topic}`);
  try {
    const said = await ask("/api/topic", { topic });
    const columns = ["queue", "lowest offset", "end", "messages"].map(number);
    replace(detail, heading, said.groups.map((group) => table(group.group, columns,
      group.queues.map(([queue, low, high]) => [String(queue), count(low), count(high), count(high - low)]))));
  } catch (error) {
    replace(detail, heading, el("p.bad", {}, error.message));
  }
}
