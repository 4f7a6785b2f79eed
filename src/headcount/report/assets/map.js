// The map: ground, areas or discs (area is the count), the largest moves as arrows, names; cells that lie too close are drawn as groups.

const WIDE = data.wide; // sds on either side of a mean that its range takes
const CELL_ROOM = 9; // pixels between cells below which they are grouped
const GROUP_SIDE = 34; // pixels of a group's square
const changes = nodes.mean.map((mean, row) => {
  const next = nodeAt[nodes.t[row] + 1]?.get(nodes.c[row]);
  return next === undefined || mean === null || nodes.mean[next] === null ? null : nodes.mean[next] - mean;
});

// How far a count lies from what all others let one expect, in standard deviations; null where it was not checked.
const residualOf = nodes.mean.map(() => null);
if (data.check) data.check.residual.forEach((value, k) => { const row = nodeAt[data.check.t[k]].get(data.check.c[k]); if (row !== undefined) residualOf[row] = value; });

const ramp = (colours) => (share) => {
  const at = Math.min(1, Math.max(0, share)) * (colours.length - 1), k = Math.min(colours.length - 2, Math.floor(at)), part = at - k;
  const [a, b] = [colours[k], colours[k + 1]].map((c) => [1, 3, 5].map((j) => parseInt(c.slice(j, j + 2), 16)));
  return `rgb(${a.map((v, j) => Math.round(v + part * (b[j] - v))).join(",")})`;
};
const BLUES = ["#eef3f8", "#c6dbef", "#8fc1de", "#4f9bcb", "#2171b5", "#0b4a8f", "#08306b"];
const DEEP = ["#242d38", "#1f4560", "#1c6285", "#2484a8", "#49a9bf", "#8fd0cd", "#e3f5d9"];
const AMBER = ["#f3efe6", "#f2d9a0", "#eab55a", "#d98a2b", "#b45f16", "#7f3d0e"];
const PURPLE_ORANGE = ["#b35806", "#f1a340", "#d8d8dc", "#998ec3", "#542788"];
const isDark = () => document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && window.matchMedia("(prefers-color-scheme: dark)").matches);

// Robust limits: one crowded cell must not make all others look alike, so colours end at the 98 % quantile.
const robust = (values) => Math.max(1e-9, quantile(values.filter((v) => v > 0), 0.98));
const fullest = robust(nodes.mean.filter((m) => m > 0.5));
const COLOURS = {
  mean: { title: "individuals", low: 0, high: Math.sqrt(fullest), root: true, scale: () => ramp(isDark() ? DEEP : BLUES), value: (r) => Math.sqrt(Math.max(0, nodes.mean[r] ?? 0)) },
  change: { title: margins ? `${cut(data.times[1], 14)} less ${cut(data.times[0], 14)}` : "change to the next time", low: -robust(changes.map(Math.abs)), high: robust(changes.map(Math.abs)), scale: () => ramp(PURPLE_ORANGE), value: (r) => changes[r] ?? 0 },
  sd: { title: "uncertainty (± individuals)", low: 0, high: robust(nodes.sd), scale: () => ramp(AMBER), value: (r) => nodes.sd[r] ?? 0 },
  residual: { title: "counted less or more than expected (sds)", low: -3, high: 3, scale: () => ramp(PURPLE_ORANGE), value: (r) => residualOf[r] ?? 0 },
  none: null,
};

// ---- the view: map units to pixels
const view = { width: 0, height: 0, unit: 1, k: 1, x: 0, y: 0 };
const [left, bottom, right, top] = mapped ? places.box : [0, 0, 1, 1];
const px = (x) => view.width / 2 + view.x + (x - (left + right) / 2) * view.unit * view.k;
const py = (y) => view.height / 2 + view.y - (y - (bottom + top) / 2) * view.unit * view.k;

function fitView() {
  const room = byId("map-chart").clientWidth || 700, most = Math.max(240, Math.min(640, window.innerHeight * 0.66));
  const shape = (top - bottom) / (right - left);
  view.width = room;
  view.height = Math.round(Math.min(most, Math.max(240, room * shape)));
  view.unit = Math.min(view.width / (right - left), view.height / (top - bottom));
}

// ---- cells, or groups of cells that lie too close to be told apart at this zoom
const levels = new Map();
const GROUPS = 12; // about as many groups as arrows between all of them can still be told apart
function grouping() {
  if (state.together) {
    if (!levels.has("together")) levels.set("together", asGroups(halved(GROUPS)));
    return levels.get("together");
  }
  const spacing = places.spacing * view.unit * view.k;
  const alone = spacing >= CELL_ROOM || data.cells.length < 40;
  const level = alone ? "cells" : Math.round(2 * Math.log2(view.unit * view.k));
  if (!levels.has(level)) levels.set(level, alone ? eachCell() : grouped(GROUP_SIDE / 2 ** (level / 2)));
  return levels.get(level);
}
const weight = data.cells.map(() => 0);
nodes.mean.forEach((mean, row) => { weight[nodes.c[row]] += mean ?? 0; });
const eachCell = () => measured({ alone: true, of: data.cells.map((_, c) => c), list: data.cells.map((name, c) => ({ cells: [c], x: places.x[c], y: places.y[c], name })) });
function grouped(side) {
  const found = new Map();
  data.cells.forEach((_, c) => {
    const key = `${Math.floor(places.x[c] / side)},${Math.floor(places.y[c] / side)}`;
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(c);
  });
  return asGroups([...found.values()]);
}
// Groups that hold about equally many individuals: the fullest is halved across its longer side until there are enough.
function halved(most) {
  const parts = [data.cells.map((_, c) => c)], full = (cells) => (cells.length > 1 ? sum(cells.map((c) => weight[c])) : -1);
  while (parts.length < most && parts.some((cells) => cells.length > 1)) {
    const k = parts.reduce((best, cells, at) => (full(cells) > full(parts[best]) ? at : best), 0), cells = parts[k];
    const wide = (values) => Math.max(...cells.map((c) => values[c])) - Math.min(...cells.map((c) => values[c])), axis = wide(places.x) > wide(places.y) ? places.x : places.y;
    cells.sort((a, b) => axis[a] - axis[b]);
    const half = full(cells) / 2;
    let cut_ = 0, held = 0;
    while (cut_ < cells.length - 1 && (cut_ === 0 || held + weight[cells[cut_]] / 2 < half)) { held += weight[cells[cut_]]; cut_ += 1; }
    parts.splice(k, 1, cells.slice(0, cut_), cells.slice(cut_));
  }
  return parts;
}
function asGroups(parts) {
  const of = [], list = parts.map((cells, g) => {
    cells.forEach((c) => { of[c] = g; });
    const all = sum(cells.map((c) => weight[c])) || 1, main = cells.reduce((a, c) => (weight[c] > weight[a] ? c : a), cells[0]);
    const centre = (values) => sum(cells.map((c) => (weight[c] || all / cells.length / 1e6) * values[c])) / sum(cells.map((c) => weight[c] || all / cells.length / 1e6));
    return { cells, x: centre(places.x), y: centre(places.y), name: cells.length > 1 ? `${data.cells[main]} +${cells.length - 1}` : data.cells[main] };
  });
  return measured({ alone: false, of, list });
}
// Counts per time and group, and what a full disc stands for.
function measured(groups) {
  groups.mean = data.times.map(() => groups.list.map(() => 0));
  nodes.mean.forEach((mean, row) => { groups.mean[nodes.t[row]][groups.of[nodes.c[row]]] += Math.max(0, mean ?? 0); });
  const all = groups.mean.flat();
  groups.full = robust(all.filter((v) => v > 0.5));
  groups.most = largest(all);
  groups.moves = new Map();
  return groups;
}
// Moves between groups that start at a time, largest first. One of one row keeps its range. That of a sum is roughly that of independent
// rows: who goes one way does not go another, so the true one is rather narrower (of joint draws of the examples 0.5 to 1.1 times as wide).
function movesBetween(groups, t) {
  if (groups.moves.has(t)) return groups.moves.get(t);
  const pairs = new Map();
  for (const row of leaving[t]) {
    const o = groups.of[flows.o[row]], d = groups.of[flows.d[row]];
    if (o === d || !(flows.mean[row] > 0)) continue;
    const key = o * groups.list.length + d, known = pairs.get(key);
    if (known) { known.mean += flows.mean[row]; known.row = null; known.rows.push(row); } else pairs.set(key, { o, d, mean: flows.mean[row], row, rows: [row] });
  }
  const made = [...pairs.values()].sort((a, b) => b.mean - a.mean);
  for (const move of made) {
    const widest = WIDE * Math.sqrt(sum(move.rows.map((r) => (flows.sd[r] ?? 0) ** 2)));
    Object.assign(move, { lower: trust.ranges ? Math.max(0, move.mean - widest) : null, upper: move.mean + widest, reliable: move.rows.every((r) => flows.reliable[r]) });
  }
  groups.moves.set(t, made);
  return made;
}
function shownMoves(groups = grouping()) {
  const own = groups.of[state.cell];
  return movesBetween(groups, state.time).filter((m) => m.mean >= state.least && (!state.only || m.o === own || m.d === own)).slice(0, state.arrows);
}

// ---- sizes
const moveScale = Math.max(1e-9, quantile(flows.mean.filter((m, row) => m > 0.5 && isMove(row)), 0.995));
const room = (groups) => Math.max(14, groups.alone ? places.spacing * view.unit * view.k : GROUP_SIDE);
const perRoot = (groups) => Math.min(Math.min(30, 0.4 * room(groups)) / Math.sqrt(groups.full), Math.min(60, room(groups)) / Math.sqrt(groups.most));
const widest = (groups) => Math.min(15, Math.max(5, 0.3 * room(groups)));
const widthOf = (mean, groups) => Math.max(1, widest(groups) * Math.min(1.25, mean / moveScale));

// A curved arrow in pixels from p to q, bending to the left: b(s) = (1−s)²p + 2s(1−s)c + s²q; thin at its start, so that short ones show their direction too.
function arrow(p, q, wanted, gaps) {
  const along = [q[0] - p[0], q[1] - p[1]], length = Math.hypot(...along) || 1, bend = 0.18, steps = 10;
  const c = [(p[0] + q[0]) / 2 + bend * along[1], (p[1] + q[1]) / 2 - bend * along[0]];
  const at = (s) => [0, 1].map((k) => (1 - s) ** 2 * p[k] + 2 * s * (1 - s) * c[k] + s ** 2 * q[k]);
  const normal = (s) => {
    const d = [0, 1].map((k) => 2 * (1 - s) * (c[k] - p[k]) + 2 * s * (q[k] - c[k])), n = Math.hypot(...d) || 1;
    return [-d[1] / n, d[0] / n];
  };
  const free = length - gaps[0] - gaps[1], hop = free < 10;
  const [before, after] = hop ? [length * 0.2, length * 0.2] : gaps;
  // A short arrow is narrow too: as wide as long it would be a diamond, which points both ways.
  const seen = length - before - after, width = Math.min(wanted, 0.34 * seen), head = Math.min(Math.max(5, 1.9 * width), 0.55 * seen), wing = Math.max(head * 0.52, width * 0.8);
  const first = before / length, neck = 1 - (after + head) / length, one = [], other = [];
  for (let k = 0; k <= steps; k += 1) {
    const s = first + (neck - first) * k / steps, half = width / 2 * (0.25 + 0.75 * k / steps), [x, y] = at(s), [u, v] = normal(s);
    one.push([x + half * u, y + half * v]); other.unshift([x - half * u, y - half * v]);
  }
  const [x, y] = at(neck), [u, v] = normal(neck);
  const outline = [...one, [x + wing * u, y + wing * v], at(1 - after / length), [x - wing * u, y - wing * v], ...other];
  return { d: `M${outline.map((point) => point.map((w) => w.toFixed(1)).join(",")).join("L")}Z`, at, hop };
}

const NICE = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7];
const niceBelow = (value) => NICE.filter((v) => v <= value).pop() ?? Number(value.toPrecision(1));

// ---- tiles: asked for only once a reader switches them on; each is laid where its corners are on this map's projection (Lambert's azimuthal)
const MOST_TILES = 80;
function onMap(lon, lat) {
  const { lon: east, lat: north, radius } = places.tiles, rad = Math.PI / 180, l = (lon - east) * rad, f = lat * rad, c = north * rad;
  const k = radius * Math.sqrt(2 / (1 + Math.sin(c) * Math.sin(f) + Math.cos(c) * Math.cos(f) * Math.cos(l)));
  return [px(k * Math.cos(f) * Math.sin(l)), py(k * (Math.cos(c) * Math.sin(f) - Math.sin(c) * Math.cos(f) * Math.cos(l)))];
}
function inDegrees(u, v) {
  const { lon, lat, radius } = places.tiles, rad = Math.PI / 180, s = view.unit * view.k;
  const x = (u - view.width / 2 - view.x) / s + (left + right) / 2, y = (bottom + top) / 2 - (v - view.height / 2 - view.y) / s, far = Math.hypot(x, y) || 1e-9, c = 2 * Math.asin(Math.min(1, far / (2 * radius)));
  return [lon + Math.atan2(x * Math.sin(c), far * Math.cos(lat * rad) * Math.cos(c) - y * Math.sin(lat * rad) * Math.sin(c)) / rad, Math.asin(Math.cos(c) * Math.sin(lat * rad) + y * Math.sin(c) * Math.cos(lat * rad) / far) / rad];
}
function drawTiles() {
  if (!places.tiles || !state.tiles) { layers.tiles.replaceChildren(); return; }
  const round = 2 * Math.PI * places.tiles.radius * Math.cos(places.tiles.lat * Math.PI / 180), rim = [0, 0.5, 1].flatMap((a) => [0, 0.5, 1].map((b) => inDegrees(a * view.width, b * view.height)));
  const column = (lon, n) => Math.floor((lon + 180) / 360 * n), row = (lat, n) => Math.floor((1 - Math.asinh(Math.tan(lat * Math.PI / 180)) / Math.PI) / 2 * n);
  const north = (j, n) => Math.atan(Math.sinh(Math.PI * (1 - 2 * j / n))) * 180 / Math.PI, ends = (values) => [Math.min(...values), Math.max(...values)];
  let z = Math.max(0, Math.min(19, Math.round(Math.log2(round * view.unit * view.k / 256)))), i, j;
  do { const n = 2 ** z; i = ends(rim.map(([lon]) => column(lon, n))); j = ends(rim.map(([, lat]) => Math.max(0, Math.min(n - 1, row(lat, n))))); z -= 1; } while (z >= 0 && (i[1] - i[0] + 1) * (j[1] - j[0] + 1) > MOST_TILES);
  z += 1;
  const n = 2 ** z, made = [];
  for (let a = i[0]; a <= i[1]; a += 1) for (let b = j[0]; b <= j[1]; b += 1) {
    const [o, e, s] = [[a, b], [a + 1, b], [a, b + 1]].map(([u, v]) => onMap(u / n * 360 - 180, north(v, n)));
    const href = places.tiles.url.replace("{z}", z).replace("{x}", ((a % n) + n) % n).replace("{y}", b);
    made.push(drawn("image", { href, width: "1.004", height: "1.004", preserveAspectRatio: "none", transform: `matrix(${[e[0] - o[0], e[1] - o[1], s[0] - o[0], s[1] - o[1], o[0], o[1]].join(" ")})` }));
  }
  layers.tiles.replaceChildren(...made);
}
// A bar of a round length at the lower left: km (or m) where there are degrees, units of the map elsewhere.
function drawScale() {
  const s = view.unit * view.k, long = niceBelow(110 / s), high = view.height - 10, wide = long * s;
  const text = !places.geographic ? `${long < 1 ? long : count(long)} ${long === 1 ? "unit" : "units"}` : long < 1 ? `${count(1000 * long)} m` : `${count(long)} km`;
  layers.scale.replaceChildren(drawn("path", { class: "scale", d: `M10,${high - 5}V${high}H${(10 + wide).toFixed(1)}V${high - 5}` }), drawn("text", { class: "scale-text", x: 14, y: high - 5 }, text));
}

// ---- layers, bottom to top
const layers = {};
let svg = null;
function makeMap() {
  svg = drawn("svg", { id: "map-svg", role: "img", "aria-labelledby": "map-title" });
  for (const name of ["ground", "tiles", "lines", "cells", "arrows", "discs", "hops", "packets", "names", "scale"]) { layers[name] = drawn("g", { class: name }); svg.append(layers[name]); }
  const path = (lists, close) => lists.map((steps) => { let x = 0, y = 0, d = ""; for (let k = 0; k < steps.length; k += 2) { x += steps[k]; y += steps[k + 1]; d += `${k ? "L" : "M"}${x},${-y}`; } return d + (close ? "Z" : ""); }).join("");
  if (places.ground) layers.ground.append(drawn("path", { class: "grid", d: path(places.ground.grid, false) }), drawn("path", { class: "land", d: path(places.ground.land, true) }), drawn("path", { class: "border", d: path(places.ground.borders, false) }));
  if (places.lines) layers.lines.append(drawn("path", { class: "own", d: path(places.lines.lines, false) }));
  if (areas) data.cells.forEach((_, c) => { if (places.shapes.rings[c]) layers.cells.append(drawn("path", { class: "area", "data-cell": String(c), d: path(places.shapes.rings[c], true) })); });
  const tip = byId("tip");
  byId("map-chart").append(svg);
  svg.addEventListener("pointermove", (event) => {
    const text = event.target.dataset?.cell !== undefined ? cellText(Number(event.target.dataset.cell)) : event.target.dataset?.move !== undefined ? moveText(event.target.dataset.move) : null;
    tip.hidden = text === null;
    if (text === null) return;
    tip.replaceChildren(...text);
    const box = byId("map-chart").getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    tip.style.left = `${Math.max(0, Math.min(x + 14, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${y + 16 + tip.offsetHeight > box.height ? Math.max(0, y - tip.offsetHeight - 10) : y + 16}px`;
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
  svg.addEventListener("click", (event) => { if (event.target.dataset?.cell !== undefined && !dragged) change({ cell: Number(event.target.dataset.cell) }); });
  zooming();
}

const line = (text, kind = "") => element("div", { class: kind }, text);
function cellText(cell) {
  const groups = grouping(), group = groups.list[groups.of[cell]];
  if (group.cells.length > 1) return [line(`${cut(group.name)}: ${group.cells.length} cells`, "strong"), line(`${count(groups.mean[state.time][groups.of[cell]])} individuals together`), line("zoom in to see each", "quiet")];
  const r = nodeAt[state.time].get(cell);
  if (r === undefined) return [line(cut(data.cells[cell]), "strong")];
  const moved = changes[r] === null || margins ? [] : [line(`${signed(changes[r])} to the next time`, "quiet")];
  return [line(cut(cellName(cell)), "strong"), line(`${count(nodes.mean[r])} ${margins ? data.times[0] : "individuals"}`), ...rangeLine(nodes, r).map((text) => line(text)), line(seenText(r), "quiet"), ...moved, ...doubtLine(nodes, r).map((text) => line(text, "quiet"))];
}
function moveText(which) {
  const groups = grouping(), move = shownMoves(groups)[Number(which)];
  if (!move) return null;
  const title = line(`${cut(groups.list[move.o].name)} → ${cut(groups.list[move.d].name)}`, "strong"), many = line(`${count(move.mean)} individuals`);
  if (move.row === null) return [title, many, ...(trust.ranges ? [line(`${percent}: about ${count(Math.round(move.lower))} – ${count(Math.round(move.upper))}`)] : []), line(`${move.rows.length} moves together; zoom in to see each`, "quiet")];
  const words = sureOf(move.row);
  return [title, many, ...rangeLine(flows, move.row).map((text) => line(text)), ...[...(words && words !== "in doubt" ? [words] : []), ...doubtLine(flows, move.row)].map((text) => line(text, "quiet"))];
}

// ---- zoom: buttons, two fingers, the wheel with Ctrl or ⌘; dragging moves a map that is zoomed in
let dragged = false;
function zoomBy(factor, x = view.width / 2, y = view.height / 2) {
  const k = Math.min(40, Math.max(1, view.k * factor)), f = k / view.k;
  view.x = (view.x + view.width / 2 - x) * f + x - view.width / 2;
  view.y = (view.y + view.height / 2 - y) * f + y - view.height / 2;
  view.k = k;
  if (k === 1) { view.x = 0; view.y = 0; }
  drawMap();
}
function zooming() {
  const held = new Map();
  const spot = (event) => { const box = svg.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  svg.addEventListener("wheel", (event) => { if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoomBy(Math.exp(-event.deltaY / 300), ...spot(event)); } }, { passive: false });
  svg.addEventListener("dblclick", (event) => zoomBy(2, ...spot(event)));
  svg.addEventListener("pointerdown", (event) => { held.set(event.pointerId, spot(event)); dragged = false; });
  for (const end of ["pointerup", "pointercancel", "pointerleave"]) svg.addEventListener(end, (event) => held.delete(event.pointerId));
  svg.addEventListener("pointermove", (event) => {
    if (!held.has(event.pointerId)) return;
    const before = held.get(event.pointerId), now = spot(event);
    if (held.size === 2) {
      const other = [...held.entries()].find(([id]) => id !== event.pointerId)[1];
      held.set(event.pointerId, now);
      zoomBy(Math.hypot(now[0] - other[0], now[1] - other[1]) / Math.max(1, Math.hypot(before[0] - other[0], before[1] - other[1])), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
    } else if (view.k > 1 && Math.hypot(now[0] - before[0], now[1] - before[1]) > 2) {
      dragged = true; held.set(event.pointerId, now);
      view.x += now[0] - before[0]; view.y += now[1] - before[1]; drawMap();
    }
  });
  byId("zoom-in").addEventListener("click", () => zoomBy(1.6));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.6));
  byId("zoom-all").addEventListener("click", () => zoomBy(0));
}

// ---- drawing
const scene = { groups: null, moves: [], kinds: [], curves: [], discs: [] };
function drawMap() {
  fitView();
  svg.setAttribute("viewBox", `0 0 ${view.width} ${view.height}`);
  svg.style.height = `${view.height}px`;
  svg.style.touchAction = view.k > 1 ? "none" : "pan-y";
  const shift = (grid) => `translate(${px(grid.x)},${py(grid.y)}) scale(${view.unit * view.k * grid.unit})`;
  if (places.ground) layers.ground.setAttribute("transform", shift(places.ground));
  if (places.lines) layers.lines.setAttribute("transform", shift(places.lines));
  if (areas) layers.cells.setAttribute("transform", shift(places.shapes));
  drawTiles();
  drawScale();
  byId("map").dataset.show = state.show; svg.dataset.tiles = String(state.tiles); // arrows take colours that areas do not have
  const groups = grouping();
  scene.groups = groups;
  drawAreas();
  drawDiscs(groups);
  drawArrows(groups);
  layers.packets.replaceChildren();
  drawNames(groups);
  legend(groups);
}

function colourOf(row) {
  const kind = COLOURS[state.colour];
  return kind === null || row === undefined ? null : kind.scale()((kind.value(row) - kind.low) / (kind.high - kind.low));
}

function drawAreas() {
  layers.cells.style.display = areas && state.show === "areas" ? "" : "none";
  if (!areas || state.show !== "areas") return;
  for (const path of layers.cells.children) {
    const cell = Number(path.dataset.cell);
    path.style.fill = colourOf(nodeAt[state.time].get(cell)) ?? "none";
    path.classList.toggle("chosen", cell === state.cell);
  }
  const chosen = [...layers.cells.children].find((path) => path.classList.contains("chosen"));
  if (chosen) layers.cells.append(chosen);
}

function drawDiscs(groups) {
  const root = perRoot(groups), byCell = nodeAt[state.time], made = [];
  scene.discs = [];
  if (state.show === "areas") { layers.discs.replaceChildren(); return; }
  const shape = groups.list.length > 1500 ? "bare" : "";
  groups.list.forEach((group, g) => {
    const mean = groups.mean[state.time][g], x = px(group.x), y = py(group.y);
    if (x < -60 || y < -60 || x > view.width + 60 || y > view.height + 60) return;
    const single = group.cells.length === 1, row = single ? byCell.get(group.cells[0]) : undefined;
    const main = single ? group.cells[0] : group.cells.reduce((a, c) => (weight[c] > weight[a] ? c : a), group.cells[0]);
    const change = single ? undefined : sum(group.cells.map((c) => changes[byCell.get(c)] ?? 0)), full = COLOURS.change;
    const fill = single ? colourOf(row) : state.colour === "change" ? full.scale()((change / Math.sqrt(group.cells.length) - full.low) / (full.high - full.low)) : null;
    const disc = drawn("circle", { class: `disc ${shape}`, "data-cell": String(main), cx: x.toFixed(1), cy: y.toFixed(1), r: Math.max(1.6, root * Math.sqrt(mean)).toFixed(2) });
    if (fill) disc.style.fill = fill;
    made.push(disc);
    scene.discs.push({ disc, g });
    const upper = single && row !== undefined && nodes.upper[row] !== null ? root * Math.sqrt(Math.max(0, nodes.upper[row])) : 0;
    // A ring on the rim of its own disc, as of an exact count, would only fray it.
    if (upper > root * Math.sqrt(mean) + 0.8 && !shape && (upper >= 5 || !inDoubt(nodes, row))) made.push(drawn("circle", { class: inDoubt(nodes, row) ? "upper rough" : "upper", cx: x.toFixed(1), cy: y.toFixed(1), r: upper.toFixed(2) }));
    if (group.cells.includes(state.cell)) made.push(drawn("circle", { class: "ring", cx: x.toFixed(1), cy: y.toFixed(1), r: (Math.max(6, root * Math.sqrt(Math.max(mean, (single && nodes.upper[row]) || 0))) + 4).toFixed(1) }));
  });
  layers.discs.replaceChildren(...made);
}

const ROUTES = 40; // lines that can still be told apart
let onward = null; // by time and cell, the rows of what leaves it
// Cells that individuals in a cell go through from a time on, drawn by expected flows, each step depending on the cell alone; the same at every look.
function routesFrom(cell, from) {
  if (onward === null) onward = leaving.map((rows) => { const of = new Map(); rows.forEach((r) => of.set(flows.o[r], [...(of.get(flows.o[r]) ?? []), r])); return of; });
  let seed = 1;
  const chance = () => { seed = (seed + 0x6d2b79f5) | 0; let v = Math.imul(seed ^ (seed >>> 15), 1 | seed); v = (v + Math.imul(v ^ (v >>> 7), 61 | v)) ^ v; return ((v ^ (v >>> 14)) >>> 0) / 4294967296; };
  return Array.from({ length: ROUTES }, () => {
    const way = [cell];
    for (let t = from; t < data.times.length - 1; t += 1) {
      const rows = onward[t].get(way[way.length - 1]) ?? [];
      let left = chance() * sum(rows.map((r) => flows.mean[r]));
      const next = rows.find((r) => { left -= flows.mean[r]; return left <= 0; });
      if (next === undefined) break;
      way.push(flows.d[next]);
    }
    return way;
  });
}
function drawRoutes() {
  const ways = routesFrom(state.cell, state.time), apart = (k) => 0.25 * (k - ROUTES / 2); // pixels, so that lines of one way are seen beside each other
  const path = (way, k) => way.filter((c, j) => j === 0 || c !== way[j - 1]).map((c, j) => `${j ? "L" : "M"}${(px(places.x[c]) + apart(k)).toFixed(1)},${(py(places.y[c]) + apart(k)).toFixed(1)}`).join("");
  layers.arrows.replaceChildren(...ways.map((way, k) => drawn("path", { class: "route", d: path(way, k) })));
  layers.hops.replaceChildren();
  Object.assign(scene, { moves: [], kinds: [], curves: [] });
}

function drawArrows(groups) {
  if (state.routes) { drawRoutes(); return; }
  const root = state.show === "areas" ? 0 : perRoot(groups), moves = shownMoves(groups), under = [], over = [];
  const spot = (g) => [px(groups.list[g].x), py(groups.list[g].y)], rim = (g) => 2 + root * Math.sqrt(groups.mean[state.time][g]);
  scene.moves = moves;
  scene.kinds = moves.map((move) => (move.row === null ? certainty(move.lower, move.mean, move.reliable) : sureOf(move.row)));
  scene.curves = moves.map((move, k) => {
    const made = arrow(spot(move.o), spot(move.d), widthOf(move.mean, groups), [rim(move.o), rim(move.d)]);
    (made.hop ? over : under).push(drawn("path", { class: `arrow ${dashed(scene.kinds[k])}${widthOf(move.mean, groups) < 2.5 ? " thin" : ""}`, "data-move": String(k), d: made.d }));
    return made;
  });
  // Small ones lie on large ones and are seen; those too short to show beside their discs lie above them.
  layers.arrows.replaceChildren(...under);
  layers.hops.replaceChildren(...over);
}

// Names of the fullest, as many as fit without covering one another.
function drawNames(groups) {
  const order = groups.list.map((_, g) => g).sort((a, b) => groups.mean[state.time][b] - groups.mean[state.time][a]);
  const taken = narrow() ? [] : [[view.width - 46, 0, 46, 118]], made = [], most = Math.max(3, Math.min(10, Math.floor(view.width / 90))), root = state.show === "areas" ? 0 : perRoot(groups);
  const own = groups.of[state.cell];
  for (const g of [own, ...order.slice(0, 3 * most).filter((g) => g !== own)]) {
    if (made.length >= most || (g !== own && groups.mean[state.time][g] < 0.02 * groups.full)) break;
    const text = cut(groups.list[g].name, 24), wide = 6.7 * text.length, x = px(groups.list[g].x), y = py(groups.list[g].y), r = root * Math.sqrt(groups.mean[state.time][g]);
    const spots = root ? [[x, y - r - 6, "middle"], [x + r + 5, y + 4, "start"], [x - r - 5, y + 4, "end"], [x, y + r + 14, "middle"]] : [[x, y + 4, "middle"]];
    for (const [a, b, anchor] of spots) {
      const box = [anchor === "middle" ? a - wide / 2 : anchor === "start" ? a : a - wide, b - 12, wide, 15];
      if (box[0] < 2 || box[1] < 2 || box[0] + box[2] > view.width - 2 || b > view.height - 3) continue;
      if (taken.some((t) => box[0] < t[0] + t[2] && t[0] < box[0] + box[2] && box[1] < t[1] + t[3] && t[1] < box[1] + box[3])) continue;
      taken.push(box); made.push(drawn("text", { x: a.toFixed(1), y: b.toFixed(1), "text-anchor": anchor }, text));
      break;
    }
  }
  layers.names.replaceChildren(...made);
}

// Between two times: discs grow and shrink, and what moves travels along its arrow, drawn to the same scale.
function between(share) {
  const { groups, moves, curves, discs } = scene, next = groups.mean[state.time + 1];
  if (!next) return;
  const root = perRoot(groups), smooth = share * share * (3 - 2 * share);
  for (const { disc, g } of discs) disc.setAttribute("r", Math.max(1.6, root * Math.sqrt(groups.mean[state.time][g] * (1 - smooth) + next[g] * smooth)).toFixed(2));
  if (layers.packets.childElementCount !== moves.length) layers.packets.replaceChildren(...moves.map((m) => drawn("circle", { class: "packet", r: Math.max(1.5, root * Math.sqrt(m.mean)).toFixed(2) })));
  moves.forEach((_, k) => { const [x, y] = curves[k].at(smooth), dot = layers.packets.children[k]; dot.setAttribute("cx", x.toFixed(1)); dot.setAttribute("cy", y.toFixed(1)); });
}

// ---- the legend, drawn with samples
const textWide = (text) => 6.7 * text.length + 4;
// Keys of the legend, drawn: the same on the page and in kept pictures.
function keysOf(groups) {
  const keys = [], label = (x, y, text, anchor = "start") => drawn("text", { x: x.toFixed(1), y: y.toFixed(1), "text-anchor": anchor }, text);
  const key = (title, wide, high, parts) => keys.push({ title, wide: Math.ceil(wide), high: Math.ceil(high), parts });
  if (state.show === "discs") {
    const root = perRoot(groups), big = niceBelow(groups.full), middle = Math.max(3, root * Math.sqrt(big)) + 2, parts = [];
    let x = 1;
    for (const v of [big, niceBelow(big / 8)]) {
      const r = Math.max(1.6, root * Math.sqrt(v));
      parts.push(drawn("circle", { class: "disc plain", cx: (x + r).toFixed(1), cy: middle, r: r.toFixed(2) }), label(x + 2 * r + 5, middle + 4, count(v)));
      x += 2 * r + textWide(count(v)) + 18;
    }
    key(margins ? data.times[0] : "individuals", x, Math.max(18, 2 * middle), parts);
  }
  const kind = COLOURS[state.colour];
  if (kind !== null) {
    const scale = kind.scale(), wide = 170, parts = Array.from({ length: 34 }, (_, k) => drawn("rect", { x: 5 * k, y: 0, width: 5.3, height: 11, style: `fill:${scale((k + 0.5) / 34)}` }));
    const ticks = kind.root ? [0, niceBelow(fullest / 1.3), niceBelow(fullest / 6)].map((v) => [Math.sqrt(v), count(v)]) : (kind.low < 0 ? [kind.low, kind.high, 0] : [0, kind.high]).map((v) => [v, `${v > 0 && kind.low < 0 ? "+" : ""}${count(Number(v.toPrecision(2)))}`]);
    const taken = []; // both ends come first; what is between them gives way
    for (const [v, text] of ticks) {
      const at = wide * Math.min(1, (v - kind.low) / (kind.high - kind.low)), long = textWide(text), from = Math.max(0, Math.min(wide - long + 4, at - long / 2));
      if (taken.some(([a, b]) => from < b && from + long > a)) continue;
      taken.push([from, from + long]);
      parts.push(label(from, 25, text));
    }
    key(kind.title, wide, 29, parts);
  }
  if (scene.moves.length) {
    const samples = [niceBelow(moveScale), niceBelow(moveScale / 4)].filter((v, k, all) => all.indexOf(v) === k), high = Math.max(18, widest(groups) + 14), parts = [], kinds = new Set(scene.kinds);
    let x = 2;
    for (const v of samples) { parts.push(drawn("path", { class: `arrow ${dashed(scene.kinds[0])}`, d: arrow([x, high / 2 + 2], [x + 42, high / 2 + 2], widthOf(v, groups), [0, 0]).d }), label(x + 48, high / 2 + 5, count(v))); x += 66 + textWide(count(v)); }
    key("moving", x, high, parts);
    const shown = Object.keys(trust.classes).filter((name) => kinds.has(name)), swatches = [];
    x = 1;
    for (const name of shown) { swatches.push(drawn("rect", { class: `arrow ${dashed(name)}`, x, y: 4, width: 11, height: 11, rx: 2 }), label(x + 16, 14, name)); x += 30 + textWide(name); }
    if (shown.length) key(`how sure (${percent} range)`, x, 18, swatches);
  }
  return keys;
}
function legend(groups) {
  byId("legend").replaceChildren(...keysOf(groups).map(({ title, wide, high, parts }) => element("div", { class: "key" }, element("div", { class: "key-title" }, title), drawn("svg", { width: wide, height: high, class: "sample" }, ...parts))));
  byId("doubt").textContent = trust.warning;
}

// ---- keeping the picture: it travels without its page, so its legend and what to be warned of go with it
const KEPT = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-opacity", "opacity", "font-size", "font-family", "font-weight", "paint-order", "vector-effect", "stroke-dasharray", "display"];
function styled(source) {
  const copy = source.cloneNode(true), from = [source, ...source.querySelectorAll("*")], to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((node, k) => { const style = getComputedStyle(node); to[k].setAttribute("style", KEPT.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";")); });
  return copy;
}
function wrapped(text, most) {
  const lines = [""];
  for (const word of text.split(" ")) { if (lines.at(-1) && lines.at(-1).length + word.length + 1 > most) lines.push(word); else lines[lines.length - 1] += `${lines.at(-1) ? " " : ""}${word}`; }
  return lines.filter(Boolean);
}
function pictureOf() {
  const head = 46, wide = view.width, parts = [], letters = Math.floor((wide - 20) / 6);
  const words = (x, y, text, size, colour, anchor = "start") => parts.push(drawn("text", { x, y, style: `font:${size}px system-ui, sans-serif;fill:${css(colour)};text-anchor:${anchor}` }, text));
  words(10, 20, document.title, 15, "ink"); if (!margins) words(10, 38, timeName(state.time), 13, "soft");
  const map = styled(svg);
  map.querySelector(".tiles").replaceChildren(); // a picture asks nothing of the network
  for (const [name, value] of Object.entries({ x: 0, y: head, width: wide, height: view.height })) map.setAttribute(name, String(value));
  parts.push(map);
  let x = 10, y = head + view.height + 8, deep = 0;
  for (const key of byId("legend").children) {
    const sample = styled(key.querySelector("svg")), title = key.querySelector(".key-title").textContent, long = Math.max(Number(sample.getAttribute("width")), textWide(title));
    if (x > 10 && x + long > wide - 10) { x = 10; y += deep + 6; deep = 0; }
    words(x, y + 12, title, 11, "soft");
    sample.setAttribute("overflow", "visible"); sample.setAttribute("x", String(x)); sample.setAttribute("y", String(y + 17));
    parts.push(sample);
    x += long + 24; deep = Math.max(deep, 20 + Number(sample.getAttribute("height")));
  }
  y += deep + 8;
  for (const text of wrapped(trust.warning, letters)) { words(10, y + 10, text, 12, "bad"); y += 16; }
  for (const text of wrapped(byId("map-caption").textContent, letters)) { words(10, y + 10, text, 11, "soft"); y += 15; }
  words(10, y + 12, "headcount", 11, "soft");
  if (places.ground) words(wide - 10, y + 12, "Land: Natural Earth", 11, "soft", "end");
  const high = Math.ceil(y + 20), whole = drawn("svg", { xmlns: "http://www.w3.org/2000/svg", width: wide, height: high, viewBox: `0 0 ${wide} ${high}` }, drawn("rect", { width: wide, height: high, style: `fill:${css("card")}` }), ...parts);
  return { text: new XMLSerializer().serializeToString(whole), high };
}
const fileTime = () => data.times[state.time].replace(/[^\w-]+/g, "-");
function savePicture(kind) {
  const { text, high } = pictureOf();
  if (kind === "svg") { save(`map-${fileTime()}.svg`, text, "image/svg+xml"); return; }
  const image = new Image(), canvas = element("canvas", { width: 2 * view.width, height: 2 * high });
  image.onload = () => { canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height); canvas.toBlob((blob) => save(`map-${fileTime()}.png`, blob, "image/png")); };
  image.src = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
}
