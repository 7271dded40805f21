// The picture of the cluster: who leads, who follows at which distance, where each node's positions are, what it costs.

import { clock, count, el, lasting, number, replace, sized, svg, table, text } from "./dom.js";
import { byGroup, labelOf, leads, state } from "./state.js";

const BOX = { width: 200, height: 66, gap: 40 };
const TRACK = { left: 90, right: 770, height: 34, width: 800 };
const POSITIONS = ["appended", "flushed", "replicated", "visible", "dispatched"];

export const cluster = {
  title: "Cluster",
  parts: [],
  show(main) {
    const pictures = el("div", { id: "pictures" });
    const cards = el("div.cards", { id: "nodes" });
    const log = el("ol.log", { id: "happened", tabindex: 0, "aria-label": "What has happened" });
    replace(main, el("h1", {}, "Cluster"), pictures, cards,
      el("section.card", {}, el("h2", {}, "What has happened while somebody looked"), log));
    return (what) => {
      if (what !== "nodes") return;
      const found = byGroup();
      replace(pictures, [...found].map(([group, nodes]) => picture(group, nodes)));
      replace(cards, [...found.values()].flat().map(([name, node]) => card(name, node)));
      if (!found.size) replace(cards, el("p.soft", {}, "No node is known yet."));
      replace(log, [...state.happened].reverse().map(([ms, said]) =>
        el("li", {}, el("time", {}, clock(ms)), said)));
    };
  },
};

function picture(group, nodes) {
  const leading = nodes.filter(([, node]) => leads(node));
  const epoch = Math.max(0, ...nodes.map(([, node]) => node.positions?.epoch ?? 0));
  const who = leading.length ? `${labelOf(...leading[0])} leads epoch ${epoch}` : "nobody leads";
  return el("section.card", {},
    el("h2", {}, group ? `Group ${group}: ` : "", el(leading.length ? "span" : "span.bad", {}, who)),
    el("div.scroll", {}, links(nodes, leading[0]), tracks(nodes)));
}

// Boxes: the master above, the others below it, and the distance to each.
function links(nodes, master) {
  const others = nodes.filter((each) => each !== master);
  const wide = Math.max(1, others.length) * (BOX.width + BOX.gap);
  const width = Math.max(TRACK.width, wide);
  const below = master ? 140 : 10;
  const left = (width - wide) / 2 + BOX.gap / 2;
  const parts = [];
  others.forEach(([name, node], at) => {
    const x = left + at * (BOX.width + BOX.gap);
    if (master) parts.push(...edge(master[1], node, width / 2, x + BOX.width / 2, below));
    parts.push(box(name, node, x, below));
  });
  if (master) parts.push(box(...master, width / 2 - BOX.width / 2, 10));
  const height = (others.length ? below : 10) + BOX.height + 10;
  const said = nodes.map(([name, node]) => `${labelOf(name, node)}: ${roleOf(node)}`).join(", ");
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": said }, parts);
}

function roleOf(node) {
  if (!node.reach?.answers) return "no answer";
  return node.head ? `${node.head.role}, epoch ${node.positions.epoch}` : "";
}

function box(name, node, x, y) {
  const away = !node.reach?.answers;
  const kind = away ? ".away" : leads(node) ? ".master" : "";
  const end = node.positions ? `end ${count(node.positions.appended)}` : "";
  return svg("g", {},
    svg(`rect.box${kind}`, { x, y, width: BOX.width, height: BOX.height, rx: 8 }),
    svg("text", { x: x + 10, y: y + 20 }, labelOf(name, node)),
    svg("text.small", { x: x + 10, y: y + 38 }, away ? `no answer since ${clock(node.reach?.since_ms ?? state.nowMs)}` : roleOf(node)),
    svg("text.small", { x: x + 10, y: y + 55 }, away ? "" : end));
}

function edge(master, node, from, to, below) {
  const top = 10 + BOX.height;
  const line = master.slaves?.find((each) => each.node === node.head?.broker_id);
  const good = line?.connected && line.in_sync;
  const said = !line ? "" : !line.connected ? "not connected" : `${sized(line.behind)} behind${line.in_sync ? "" : ", not in sync"}`;
  const middle = (top + below) / 2;
  const parts = [svg(good ? "path.edge" : "path.edge.out", { d: `M${from} ${top} C${from} ${middle} ${to} ${middle} ${to} ${below}` })];
  const outside = to < from ? { x: to - 8, "text-anchor": "end" } : { x: to + 8 };
  if (said) parts.push(svg("text.small", { ...outside, y: below - 8 }, said));
  return parts;
}

// A line for each node: its positions by their distance from the end of the group's log, on a logarithmic scale.
function tracks(nodes) {
  const known = nodes.filter(([, node]) => node.positions);
  if (!known.length) return "";
  const end = Math.max(...known.map(([, node]) => node.positions.appended));
  const at = (position) => {
    const behind = Math.max(0, end - position);
    const share = Math.min(1, Math.log2(behind + 1) / 32);
    return TRACK.right - share * (TRACK.right - TRACK.left);
  };
  const rows = [];
  known.forEach(([name, node], row) => {
    const y = 16 + row * TRACK.height;
    const places = positionsOf(node);
    const least = Math.min(...places.map(([, value]) => value));
    rows.push(svg("text", { x: 4, y: y + 4 }, labelOf(name, node)));
    rows.push(svg("line.axis", { x1: TRACK.left, x2: TRACK.right, y1: y, y2: y }));
    rows.push(svg("line.gap", { x1: at(least), x2: at(node.positions.appended), y1: y, y2: y }));
    for (const [each, value] of places) {
      rows.push(svg("circle.dot", { cx: at(value), cy: y, r: 4 }, svg("title", {}, `${each} ${count(value)}`)));
    }
    const said = distances(node, end).map(([what, bytes]) => `${what} ${bytes ? `-${sized(bytes)}` : "at the end"}`).join(" · ");
    rows.push(svg("text.small", { x: TRACK.left, y: y + 16 }, said));
  });
  const y = 20 + known.length * TRACK.height;
  const scale = [0, 1024, 1048576, 1073741824].map((bytes) =>
    svg("text.small", { x: at(end - bytes), y: y + 8, "text-anchor": "middle" }, bytes ? `-${sized(bytes)}` : "end"));
  const label = "Positions of each node by their distance from the log's end";
  return svg("svg", { viewBox: `0 0 ${TRACK.width} ${y + 14}`, role: "img", "aria-label": label }, rows, scale);
}

// A slave says nothing of what others have.
function positionsOf(node) {
  return POSITIONS.filter((each) => node.positions[each] !== undefined && (each !== "replicated" || node.head.role === "master"))
    .map((each) => [each, node.positions[each]]);
}

// [position, bytes behind the end of the group's log]
function distances(node, end) {
  return positionsOf(node).map(([each, value]) => [each, Math.max(0, end - value)]);
}

function card(name, node) {
  const label = labelOf(name, node);
  const away = !node.reach?.answers;
  const heading = el("h2", {}, label, " ", el(away ? "span.tag.bad" : leads(node) ? "span.tag.good" : "span.tag", {},
    away ? "no answer" : node.head?.role ?? ""));
  const silence = away
    ? el("p.bad", {}, `It cannot be reached since ${clock(node.reach.since_ms)} (${lasting(state.nowMs - node.reach.since_ms)}): ${node.reach.why}`)
    : "";
  if (!node.head) return el("section.card.away", { "data-node": name }, heading, silence);
  const wrong = (away ? [] : node.wrong).map((each) =>
    el("p.bad", {}, each.sentence, each.remedy ? `; ${each.remedy}` : ""));
  return el(away ? "section.card.away" : "section.card", { "data-node": name }, heading, silence, wrong,
    away ? el("p.soft", {}, "What it said last:") : "", facts(name, node), processes(node));
}

function facts(name, node) {
  const rates = node.rates ?? {};
  const rate = Object.keys(rates).length
    ? `put ${count(rates.put)}/s, log ${sized(rates.bytes)}/s, get ${count(rates.get)}/s, refused ${count(rates.refused)}/s` : "";
  const kept = `${node.in_sync.members.join(", ") || "not known"}${node.in_sync.degraded ? " (degraded)" : ""}`;
  const rows = [
    ["address", name],
    ["epoch", count(node.positions.epoch)],
    ["settings", `${node.head.broker_role}, ${node.head.flush_disk_type}`],
    ["in-sync set", kept],
    ["now", rate],
    ["memory", sized(node.memory)],
    ["disk", `${node.space.used_percent} % used, ${sized(node.space.available)} left`],
    ["delayed", node.delayed ? count(node.delayed) : ""],
    ["role", node.agreed && node.agreed.role === node.head.role ? node.agreed.why : ""],
    ["follows", node.head.role === "slave" && node.master ? (node.master.connected ? node.master.address : `nobody: ${node.master.why}`) : ""],
    ["store", node.head.store],
  ];
  return el("dl", {}, rows.filter(([, value]) => value).map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)]));
}

function processes(node) {
  const columns = [text("process"), number("pid"), text("state"), number("CPU %"), number("memory")];
  const rows = [...node.processes].sort((a, b) => (b[3] ?? 0) - (a[3] ?? 0))
    .map(([duty, pid, at, cpu, memory]) => [duty, String(pid), at, cpu === null ? "" : count(cpu, 1), sized(memory)]);
  return table("Processes", columns, rows);
}
