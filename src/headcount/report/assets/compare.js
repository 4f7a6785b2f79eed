// Two results side by side, on one scale, and their difference; what is hollow may be chance.

const found = data.comparison;
const countsAt = data.times.map(() => []), movesAt = data.times.map(() => []);
found.nodes.t.forEach((t, r) => countsAt[t].push(r));
found.flows.t.forEach((t, r) => { if (found.flows.o[r] !== found.flows.d[r]) movesAt[t].push(r); });
movesAt.forEach((rows) => rows.sort((a, b) => Math.abs(found.flows.difference[b]) - Math.abs(found.flows.difference[a])));
const ranged = found.nodes.lower.some((v) => v !== null); // two results without ranges have none of their difference
const differing = (table, row) => [line(`${signed(table.difference[row])}${ranged ? ` (${percent}: ${signed(table.lower[row])} to ${signed(table.upper[row])})` : ""}`), ...(ranged ? [line(table.clear[row] ? "a clear difference" : "may be chance", "quiet")] : [])];
const bothFull = robust([...found.nodes.first, ...found.nodes.second].filter((v) => v > 0.5));
const differs = robust(found.nodes.difference.map(Math.abs));
const movesDiffer = robust(found.flows.difference.map(Math.abs));

function panel(id, sizeOf, paint) {
  const box = byId(id), wide = box.clientWidth || 360, shape = (top - bottom) / (right - left), high = Math.round(Math.min(440, Math.max(200, wide * shape)));
  const unit = Math.min(wide / (right - left), high / (top - bottom)), at = (c) => [wide / 2 + (places.x[c] - (left + right) / 2) * unit, high / 2 - (places.y[c] - (bottom + top) / 2) * unit];
  const svg = drawn("svg", { class: "map-svg", viewBox: `0 0 ${wide} ${high}`, role: "img" }), spacing = Math.max(12, places.spacing * unit);
  if (places.ground) {
    const { ground } = places, path = (lists, close) => lists.map((steps) => { let x = 0, y = 0, d = ""; for (let k = 0; k < steps.length; k += 2) { x += steps[k]; y += steps[k + 1]; d += `${k ? "L" : "M"}${x},${-y}`; } return d + (close ? "Z" : ""); }).join("");
    const shift = `translate(${wide / 2 + (ground.x - (left + right) / 2) * unit},${high / 2 - (ground.y - (bottom + top) / 2) * unit}) scale(${unit * ground.unit})`;
    svg.append(drawn("g", { transform: shift }, drawn("path", { class: "land", d: path(ground.land, true) }), drawn("path", { class: "border", d: path(ground.borders, false) })));
  }
  paint(svg, at, spacing);
  for (const r of countsAt[state.time]) {
    const [x, y] = at(found.nodes.c[r]), { size, kind } = sizeOf(r, spacing);
    svg.append(drawn("circle", { class: `disc ${kind}`, "data-row": String(r), cx: x.toFixed(1), cy: y.toFixed(1), r: Math.max(1.2, size).toFixed(2) }));
  }
  box.replaceChildren(svg);
}
const disc = (column) => (r, spacing) => ({ size: Math.min(0.8 * spacing, 0.42 * spacing * Math.sqrt(Math.max(0, column[r]) / bothFull)), kind: "" });
function differenceDisc(r, spacing) {
  const value = found.nodes.difference[r];
  return { size: Math.min(0.8 * spacing, 0.42 * spacing * Math.sqrt(Math.abs(value) / differs)), kind: `${value > 0 ? "more" : "fewer"} ${!ranged || found.nodes.clear[r] ? "" : "hollow"}` };
}
function differenceArrows(svg, at, spacing) {
  for (const r of movesAt[state.time].slice(0, 15)) {
    const value = found.flows.difference[r], width = Math.max(1, Math.min(8, 0.22 * spacing) * Math.min(1.3, Math.abs(value) / movesDiffer));
    svg.append(drawn("path", { class: `arrow ${value > 0 ? "more" : "fewer"} ${!ranged || found.flows.clear[r] ? "" : "hollow"}`, "data-flow": String(r), d: arrow(at(found.flows.o[r]), at(found.flows.d[r]), width, [3, 3]).d }));
  }
}

function drawCompared() {
  byId("time").value = String(state.time); byId("time-label").textContent = timeName(state.time);
  if (!mapped) return;
  const nothing = () => {};
  panel("first", disc(found.nodes.first), nothing);
  panel("second", disc(found.nodes.second), nothing);
  panel("difference", differenceDisc, differenceArrows);
  const clear = countsAt[state.time].filter((r) => found.nodes.clear[r]).length;
  byId("map-caption").textContent = ranged ? `${timeName(state.time)}: ${clear} of ${countsAt[state.time].length} cells clearly differ.` : "";
  byId("legend").replaceChildren(...[["more", "more in the second"], ["fewer", "fewer in the second"], ["hollow", "may be chance"]].slice(0, ranged ? 3 : 2).map(([kind, words]) => element("span", {}, element("i", { class: `swatch ${kind}` }), words)));
}

function rowText(row) {
  const { nodes: n } = found;
  return [line(cut(data.cells[n.c[row]]), "strong"), line(`${count(n.first[row])} → ${count(n.second[row])}`), ...differing(n, row)];
}
function flowText(row) {
  const { flows: f } = found;
  return [line(`${cut(data.cells[f.o[row]])} → ${cut(data.cells[f.d[row]])}`, "strong"), line(`${count(f.first[row])} → ${count(f.second[row])} individuals`), ...differing(f, row)];
}

function compareTables() {
  const columns = (table) => ["first", "second", "difference", ...(ranged ? ["lower", "upper"] : [])].map((name) => figure(name, table[name])).concat(!ranged ? [] : [{ title: "clear", value: (row) => table.clear[row], text: (row) => (table.clear[row] ? "yes" : "no") }]);
  const [one, two] = chain ? ["time", "cell"] : ["variable", "state"];
  sheet("table-nodes", "Counts", found.nodes.first.length, [named(one, found.nodes.t, data.times), named(two, found.nodes.c, data.cells), ...columns(found.nodes)], { by: 4, sign: -1 });
  if (!found.flows.first.length) return;
  const ends = chain ? [named("time", found.flows.t, data.times), named("origin", found.flows.o, data.cells), named("dest", found.flows.d, data.cells)]
    : [named("variable", found.flows.t, data.times), named("state", found.flows.o, data.cells), named("other", found.flows.u, data.times), named("other state", found.flows.d, data.cells)];
  sheet("table-flows", chain ? "Flows" : "Pairs", found.flows.first.length, [...ends, ...columns(found.flows)], { by: ends.length + 2, sign: -1 });
}

function startCompare() {
  byId("time").max = String(data.times.length - 1);
  if (!mapped) byId("map").hidden = true;
  byId("time").addEventListener("input", (event) => change({ time: Number(event.target.value) }));
  byId("theme").addEventListener("click", () => { document.documentElement.dataset.theme = isDark() ? "light" : "dark"; change({ theme: null }); });
  window.addEventListener("resize", () => change({ width: null }));
  const tip = byId("tip"), stage = document.querySelector(".trio");
  stage.addEventListener("pointermove", (event) => {
    const { row, flow } = event.target.dataset ?? {}, text = row !== undefined ? rowText(Number(row)) : flow !== undefined ? flowText(Number(flow)) : null;
    tip.hidden = text === null;
    if (text === null) return;
    tip.replaceChildren(...text);
    const box = stage.getBoundingClientRect();
    tip.style.left = `${Math.max(0, Math.min(event.clientX - box.left + 14, box.width - tip.offsetWidth - 4))}px`;
    tip.style.top = `${event.clientY - box.top + 16}px`;
  });
  onChange(drawCompared);
  compareTables();
  const most = countsAt.map((rows) => sum(rows.map((r) => Math.abs(found.nodes.difference[r])))), time = most.indexOf(Math.max(...most));
  change({ time: Math.max(0, time) });
  document.documentElement.dataset.ready = "yes";
}

startCompare();
