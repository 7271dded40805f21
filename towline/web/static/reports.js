// Results of drills, benchmarks and load tests that stand in the directory which the server was given.

import { ask, el, moment, replace, table, text } from "./dom.js";

export const reports = {
  title: "Reports",
  parts: [],
  show(main, rest) {
    const name = rest.join("/");
    const box = el("div", { id: "reports" });
    replace(main, el("h1", {}, "Drills and benchmarks"), box);
    (name ? one(box, name) : all(box)).catch((error) => replace(box, el("p.bad", {}, error.message)));
    return null;
  },
};

async function all(box) {
  const said = await ask("/api/reports");
  if (said.directory === null) {
    replace(box, el("p", {}, "No directory was named: start the page with --reports DIR, as build/drills, where drills leave their results."));
    return;
  }
  const rows = said.reports.map((each) => [
    el("a", { href: `#/reports/${each.path.split("/").map(encodeURIComponent).join("/")}` }, each.title),
    each.kind, verdict(each.passed), moment(each.made_ms), each.path]);
  replace(box, el("p.soft", {}, `In ${said.directory}`),
    table("", [text("result"), text("kind"), text(""), text("made"), text("file")], rows),
    rows.length ? "" : el("p", {}, "There is none yet."));
}

async function one(box, path) {
  const said = await ask("/api/report", { path });
  const file = (name) => `/api/file?${new URLSearchParams({ path: name })}`;
  const pictures = said.files.filter((name) => name.endsWith(".png"));
  const others = said.files.filter((name) => !name.endsWith(".png"));
  replace(box, el("p", {}, el("a", { href: "#/reports" }, "All results")),
    el("section.card", {}, el("h2", {}, said.title, " ", verdict(said.passed)),
      pictures.map((name) => el("img", { src: file(name), alt: `Picture ${name}`, loading: "lazy" })),
      el("dl", {}, said.facts.map(([key, value]) => [el("dt", {}, key), el("dd", {}, value)])),
      said.tables.map((each) => table(each.caption, each.columns.map(text), each.rows)),
      el("p", {}, "Download: ", others.map((name) => [el("a", { href: file(name), download: true }, name), " "]))));
}

function verdict(passed) {
  if (passed === null) return "";
  return el(passed ? "span.tag.good" : "span.tag.bad", {}, passed ? "passed" : "FAILED");
}
