// The views by the address's fragment, the state of the link, and what no view may hide: nodes that do not answer.

import { clock, el, lasting, replace, setText, wordsOf } from "./dom.js";
import { follow, labelOf, onNews, state } from "./state.js";
import { cluster } from "./cluster.js";
import { groups } from "./groups.js";
import { refusals } from "./refusals.js";
import { reports } from "./reports.js";
import { search } from "./search.js";
import { segments } from "./segments.js";
import { topics } from "./topics.js";

const VIEWS = { cluster, topics, groups, search, segments, refusals, reports };
const SILENT_MS = 5000;

const main = document.getElementById("view");
const links = {};
for (const [name, view] of Object.entries(VIEWS)) {
  links[name] = el("a", { href: `#/${name}`, id: `to-${name}` }, view.title);
  document.getElementById("views").append(links[name]);
}

let shown = "";
let update = () => {};

// #/topics/orders: the view, and what in it.
function route() {
  const [name, ...rest] = wordsOf(location.hash);
  const view = Object.hasOwn(VIEWS, name) ? name : "cluster";
  const first = shown === "";
  if (view !== shown) {
    shown = view;
    for (const [each, link] of Object.entries(links)) {
      if (each === view) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `Towline: ${VIEWS[view].title}`;
    follow(VIEWS[view].parts);
    replace(main);
    if (!first) main.focus({ preventScroll: true });
  }
  update = VIEWS[view].show(main, rest) ?? (() => {});
  update("nodes");
  update("");
}

function tellLink() {
  const link = document.getElementById("link");
  const silent = performance.now() - state.heardAt > SILENT_MS;
  const bad = !state.connected || silent;
  link.classList.toggle("bad", bad);
  if (!state.heardAt) setText(link, "not connected yet");
  else if (bad) setText(link, `towline web does not answer; this is of ${clock(state.nowMs)}`);
  else setText(link, `as of ${clock(state.nowMs)}`);
}

function tellAlerts() {
  const rows = [];
  if (state.trouble) rows.push(`the nodes are not known: ${state.trouble}`);
  for (const [name, node] of Object.entries(state.nodes)) {
    if (!node.reach || node.reach.answers) continue;
    const since = `${clock(node.reach.since_ms)} (${lasting(state.nowMs - node.reach.since_ms)})`;
    rows.push(`${labelOf(name, node)} cannot be reached since ${since}: ${node.reach.why}`);
  }
  const box = document.getElementById("alerts");
  while (box.children.length > rows.length) box.lastChild.remove();
  while (box.children.length < rows.length) box.append(el("div.alert"));
  rows.forEach((text, at) => setText(box.children[at], text));
}

onNews((what) => {
  tellLink();
  if (what === "link") return;
  if (what === "nodes") tellAlerts();
  update(what);
});
setInterval(tellLink, 2000);
addEventListener("hashchange", route);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();  // the fragment is the view's
  main.focus();
});
route();
