// The log of each node as a map of its segments: in memory or not, archived, due to be deleted.

import { count, el, lasting, moment, replace, sized } from "./dom.js";
import { state } from "./state.js";

const HOT = 0.5;

let chosen = "";

export const segments = {
  title: "Segments",
  parts: ["segments"],
  show(main) {
    const maps = el("div", { id: "maps" });
    replace(main, el("h1", {}, "Segments"),
      el("p.legend.soft", {}, el("span", {}, "red from below: the share in memory, hot from a half on"), el("span", {}, "W: being written, +: made ahead"),
        el("span", {}, "A, green edge: archived"), el("span", {}, "D, dashed red edge: due to be deleted by its age"),
        el("span", {}, "the rest: cold")), maps);
    return (what) => {
      if (what === "nodes") return;
      const why = (state.why.segments ?? []).map((each) => el("p.bad", {}, `As it was before: ${each}`));
      const rows = [...(state.lists.segments?.values() ?? [])].sort((a, b) => a[0].localeCompare(b[0]));
      replace(maps, why, rows.map(([node, facts]) => map(node, facts)),
        rows.length ? "" : el("p.soft", {}, "The segments are being asked for."));
    };
  },
};

function map(node, facts) {
  const due = (modified) => state.nowMs - modified >= facts.reserved_ms;
  const rows = facts.segments.map(([base, modified, allocated, share, archived]) => ({
    base, modified, allocated, share, archived, name: String(base).padStart(20, "0"),
    ahead: base > facts.end, writing: base <= facts.end && facts.end < base + facts.size,
    due: base + facts.size <= facts.end && due(modified),
  }));
  const hot = rows.filter((each) => each.share >= HOT).length;
  const head = `${count(rows.length)} segments of ${sized(facts.size)}: ${hot} hot, ${rows.length - hot} cold, ` +
    `${rows.filter((each) => each.archived).length} archived, ${rows.filter((each) => each.due).length} due`;
  const older = facts.older ? `; ${count(facts.older)} older ones are not shown` : "";
  const said = el("p", { role: "status" });
  const show = (each) => {
    chosen = `${node}/${each.base}`;
    said.textContent = tell(each, facts);
  };
  const tiles = rows.map((each) => tile(node, each, facts, () => show(each)));
  const known = rows.find((each) => `${node}/${each.base}` === chosen);
  if (known) show(known);
  return el("section.card", {}, el("h2", {}, node), el("p.soft", {}, head + older), el("ul.map", {}, tiles), said);
}

function tile(node, each, facts, show) {
  const mark = each.writing ? "W" : each.ahead ? "+" : each.due ? "D" : each.archived ? "A" : "";
  const fill = el("span.fill");
  fill.style.height = `${Math.round(100 * each.share)}%`;
  const kinds = [each.archived ? "archived" : "", each.due ? "due" : "", each.ahead ? "ahead" : ""].filter(Boolean).map((kind) => `.${kind}`).join("");
  return el("li", {}, el(`button${kinds}`, {
    type: "button", id: `segment-${node}-${each.base}`, title: tell(each, facts), "aria-label": tell(each, facts), click: show,
  }, fill, el("span.mark", {}, mark)));
}

function tell(each, facts) {
  const place = each.writing ? "being written" : each.ahead ? "made ahead of the writer" : "full";
  const left = each.modified + facts.reserved_ms - state.nowMs;
  const age = each.due ? `due to be deleted${facts.keeps && !each.archived ? ", waits for the archive" : ""}`
    : place === "full" ? `due in ${lasting(left)}` : "";
  const parts = [each.name, place, each.share >= HOT ? "hot" : "cold", `${count(100 * each.share)} % in memory`,
    each.archived ? "archived" : "not archived", age, `written last ${moment(each.modified)}`, `${sized(each.allocated)} on disk`];
  return parts.filter(Boolean).join(", ");
}
