// Consumer groups with their lag, and one group's members and queues.

import { ask, count, el, number, replace, setText, table, text } from "./dom.js";
import { List } from "./list.js";
import { state } from "./state.js";

const [PLACE, GROUP, MODEL, MEMBERS, LAG, TOPICS] = [1, 2, 3, 4, 5, 6];

let list = null;

export const groups = {
  title: "Groups",
  parts: ["groups"],
  show(main, [group]) {
    const detail = document.getElementById("group") ?? el("section.card", { id: "group", hidden: true });
    if (!list || !main.contains(list.element)) open(main, detail);
    describe(detail, group);
    return (what) => {
      if (what === "nodes") return;
      list.update(state.lists.groups?.values() ?? []);
      const why = state.why.groups ?? [];
      const known = state.lists.groups
        ? "Asked every 5 s. The lag is in messages." : "The groups are being asked for.";
      setText(document.getElementById("groups-why"), why.length ? `As they were before: ${why.join("; ")}` : known);
      if (what === "groups" && group) describe(detail, group);
    };
  },
};

function open(main, detail) {
  list = new List("groups", [
    { name: "group", of: (row) => row[GROUP], cell: link },
    { name: "nodes", of: (row) => row[PLACE] },
    { name: "model", of: (row) => row[MODEL] ?? "" },
    { name: "members", number: true, of: (row) => count(row[MEMBERS]), by: (row) => row[MEMBERS] },
    { name: "lag", number: true, of: (row) => count(row[LAG]), by: (row) => row[LAG] },
    { name: "topics", of: (row) => row[TOPICS].join(", ") },
  ], { sortedBy: 4, down: true });
  replace(main, el("h1", {}, "Consumer groups"), detail,
    el("section.card", {}, el("p.soft", { id: "groups-why", role: "status" }), list.element));
}

function link(row) {
  return el("a", { href: `#/groups/${encodeURIComponent(row[GROUP])}` }, row[GROUP]);
}

async function describe(detail, group) {
  detail.hidden = !group;
  if (!group) return;
  const heading = el("h2", {}, `Group ${group}`);
  try {
    const said = await ask("/api/group", { group });
    replace(detail, heading, said.nodes.map(one));
  } catch (error) {
    replace(detail, heading, el("p.bad", {}, error.message));
  }
}

function one(facts) {
  const warnings = (facts.warnings ?? []).map((each) => el("p.warn", {}, `${each.member}: ${each.warning}`));
  const members = (facts.members ?? []).map((each) => [each.member, Object.keys(each.topics ?? {}).join(", ")]);
  const columns = [text("topic"), ...["queue", "lowest", "end", "offset", "lag"].map(number), text("owner")];
  const rows = (facts.queues ?? []).map((each) => [each.topic, String(each.queue), count(each.min), count(each.max),
    each.offset < 0 ? "none" : count(each.offset), count(each.lag), each.owner ?? ""]);
  return el("div", {}, warnings, table(`Members at ${facts.place}`, [text("member"), text("topics")], members),
    table(`Queues at ${facts.place}`, columns, rows));
}
