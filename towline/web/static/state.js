// What the server has told: the nodes, and lists by key. Views are called when something is new.

export const state = {
  nodes: {}, groups: {}, happened: [], trouble: "", nowMs: 0, heardAt: 0, connected: false,
  lists: {}, why: {},
};

let stream = null;
let wanted = null;
let listener = () => {};

export function onNews(call) {
  listener = call;
}

// One stream, with the lists that the view shows.
export function follow(parts) {
  const text = parts.join(",");
  if (stream && wanted === text && stream.readyState !== EventSource.CLOSED) return;
  stream?.close();
  wanted = text;
  const opened = new EventSource(`/api/live?parts=${text}`);
  stream = opened;
  opened.onerror = () => {
    if (stream !== opened) return;
    state.connected = false;
    listener("link");
    if (opened.readyState === EventSource.CLOSED) setTimeout(() => stream === opened && follow(parts), 2000);
  };
  opened.addEventListener("state", heard((said) => {
    Object.assign(state, { nodes: said.nodes, groups: said.groups, happened: said.happened, trouble: said.trouble });
    for (const part of parts) delete state.lists[part];
    return "nodes";
  }));
  opened.addEventListener("names", heard((said) => {
    Object.assign(state, { groups: said.groups, trouble: said.trouble });
    return "nodes";
  }));
  opened.addEventListener("nodes", heard((said) => {
    for (const [name, sections] of Object.entries(said.nodes)) {
      state.nodes[name] = { ...state.nodes[name], ...sections };
    }
    if (said.happened) state.happened = [...state.happened, ...said.happened].slice(-100);
    return "nodes";
  }));
  for (const part of parts) opened.addEventListener(part, heard((said) => listed(part, said)));
}

function heard(take) {
  return (event) => {
    const said = JSON.parse(event.data);
    if (said.now_ms) state.nowMs = said.now_ms;
    state.heardAt = performance.now();
    state.connected = true;
    listener(take(said));
  };
}

function listed(part, said) {
  const rows = said.all ? new Map() : state.lists[part] ?? new Map();
  for (const row of said.all ?? said.rows ?? []) rows.set(row[0], row);
  for (const key of said.gone ?? []) rows.delete(key);
  state.lists[part] = rows;
  state.why[part] = said.why ?? [];
  return part;
}

export function labelOf(name, node) {
  return node.head ? `${node.head.broker_name}-${node.head.broker_id}` : name.replace("tcp://", "");
}

// Group -> [name, node]..., masters in front. A node that never answered is of the group that the cluster file says.
export function byGroup() {
  const found = new Map();
  for (const [name, node] of Object.entries(state.nodes)) {
    const group = node.head?.broker_name ?? state.groups[name] ?? "";
    if (!found.has(group)) found.set(group, []);
    found.get(group).push([name, node]);
  }
  for (const nodes of found.values()) {
    nodes.sort((a, b) => rank(a[1]) - rank(b[1]) || labelOf(...a).localeCompare(labelOf(...b)));
  }
  return new Map([...found].sort((a, b) => a[0].localeCompare(b[0])));
}

export function leads(node) {
  return node.reach?.answers && node.head?.role === "master";
}

function rank(node) {
  return leads(node) ? 0 : node.reach?.answers ? 1 : 2;
}
