// Why nodes refuse: what keeps puts out now, causes that did, and connections that the port for clients ended.

import { clock, count, el, number, replace, table, text } from "./dom.js";
import { byGroup, labelOf } from "./state.js";

export const refusals = {
  title: "Refusals",
  parts: [],
  show(main) {
    const box = el("div", { id: "refusals" });
    replace(main, el("h1", {}, "Causes of refusals"), box);
    return (what) => {
      if (what !== "nodes") return;
      const nodes = [...byGroup().values()].flat().filter(([, node]) => node.head);
      replace(box, nodes.map(([name, node]) => one(name, node)), nodes.length ? "" : el("p.soft", {}, "No node has answered yet."));
    };
  },
};

function one(name, node) {
  const wrong = node.wrong.map((each) => el("p.bad", {}, each.sentence, each.remedy ? `; ${each.remedy}` : ""));
  const columns = [text("cause"), number("requests"), text("last"), text("what to do")];
  const causes = node.refused.causes.map((each) => [each.cause, count(each.count), clock(each.last_ms), each.remedy]);
  const put = causes.length ? table(`Requests that put refused: ${count(node.refused.total)}`, columns, causes)
    : el("p.soft", {}, "Put has refused nothing since the node was started.");
  return el("section.card", {}, el("h2", {}, labelOf(name, node)),
    wrong.length ? wrong : el("p.good", {}, "Nothing keeps it from working."), put, port(node.ended));
}

function port(ended) {
  if (!ended) return "";
  const columns = [text("cause"), number("connections"), text("what to do")];
  const rows = ended.ended.map((each) => [each.cause, count(each.count), each.remedy]);
  const codes = ended.codes.map((each) => [`${each.name} (${each.code})`, count(each.count)]);
  return el("div", {}, el("p.soft", {}, `${count(ended.open)} connections at the port for clients`),
    rows.length ? table("Connections that were ended", columns, rows) : "",
    codes.length ? table("Requests of RocketMQ's clients that were refused", [text("code"), number("requests")], codes) : "");
}
