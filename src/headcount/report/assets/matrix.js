// Who went where: origins against destinations as a heat map, and what goes between chosen cells, added up over time.

const MOST_ROWS = margins ? 80 : 30;
const matrix = { span: "all", layer: "mean" };
const picked = { from: new Set(), to: new Set() };

const MOST_THROUGH = 150; // cells up to which steps are multiplied: L³ operations each

// Where those of the first time are at the last, through all steps: F₀ diag(1/n₁) F₁ diag(1/n₂) …, of expected flows.
function throughAll() {
  const size = data.cells.length, at = (t) => { const table = Array.from({ length: size }, () => new Float64Array(size)); for (const r of leaving[t]) table[flows.o[r]][flows.d[r]] = flows.mean[r]; return table; };
  let made = at(0);
  for (let t = 1; t < data.times.length - 1; t += 1) {
    const next = at(t), shares = next.map((row) => { const all = sum([...row]); return all > 0 ? row.map((v) => v / all) : row; });
    made = made.map((row) => { const out = new Float64Array(size); row.forEach((v, k) => { if (v > 1e-12) shares[k].forEach((p, j) => { out[j] += v * p; }); }); return out; });
  }
  return made;
}
// Means of a matrix and their sds: of one step those of its flows, of all times and through all steps those of the joint draws.
function matrixOf() {
  const size = data.cells.length, mean = new Map(), sd = new Map(), low = new Map(), key = (o, d) => o * size + d;
  if (matrix.span === "through") throughAll().forEach((row, o) => row.forEach((v, d) => { if (v > 0) { mean.set(key(o, d), v); if (data.sums?.through) sd.set(key(o, d), data.sums.through[o][d]); } }));
  else for (const r of matrix.span === "all" ? leaving.flat() : leaving[state.time]) {
    const k = key(flows.o[r], flows.d[r]);
    mean.set(k, (mean.get(k) ?? 0) + flows.mean[r]);
    if (matrix.span === "step" || data.times.length === 2) { sd.set(k, flows.sd[r]); low.set(k, r); } else if (data.sums?.pairs) sd.set(k, data.sums.pairs[flows.o[r]][flows.d[r]]);
  }
  const through = data.cells.map(() => 0), own = matrix.span === "through" || margins;
  for (const [k, v] of mean) { const o = Math.floor(k / size), d = k % size; if (own || o !== d) { through[o] += v; through[d] += v; } }
  const busiest = data.cells.map((_, c) => c).sort((a, b) => through[b] - through[a]).slice(0, MOST_ROWS).sort((a, b) => a - b);
  const text = (o, d) => { const k = key(o, d), r = low.get(k), range_ = r !== undefined ? rangeLine(flows, r).concat(doubtLine(flows, r)) : sumRange(mean.get(k) ?? 0, sd.get(k)) ? [`${percent}: ${sumRange(mean.get(k) ?? 0, sd.get(k))}`] : []; return [`<b>${short(data.cells[o])} → ${short(data.cells[d])}</b>`, `${count(mean.get(k) ?? 0)} individuals`, ...range_, ...beforeText(o, d)].join("<br>"); };
  return { own, cells: busiest, mean, sd, key, text };
}
function drawMatrix() {
  const { own, cells, mean, sd, key, text } = matrixOf(), relative = matrix.layer === "relative" && sd.size > 0;
  const value = (o, d) => { const k = key(o, d), m = mean.get(k) ?? 0; return relative ? (m >= 0.5 ? (sd.get(k) ?? 0) / m : null) : Math.sqrt(m); };
  const z = cells.map((o) => cells.map((d) => (o === d && !own ? null : value(o, d)))), high = relative ? 1 : Math.sqrt(robust([...mean].filter(([k]) => own || Math.floor(k / data.cells.length) !== k % data.cells.length).map(([, v]) => v)));
  const at = cells.map((_, k) => k), names = cells.map((c) => short(data.cells[c], narrow() ? 9 : 20)), some = cells.length < data.cells.length ? `, the ${cells.length} busiest of ${whole(data.cells.length)} cells` : "";
  const said = { all: margins ? "" : "All moves added up", step: `Moves after ${timeName(state.time)}`, through: `Where those of ${timeName(0)} are at ${timeName(data.times.length - 1)}, by expected flows, if each step depends on the cell alone` }[matrix.span];
  byId("matrix-note").textContent = `${[said + some, "rows: from; columns: to"].filter(Boolean).join(". ").replace(/^, t/, "T").replace(". rows", ". Rows").replace(/^rows/, "Rows")}.${relative ? " Colour: sd ÷ mean, where at least half an individual is expected." : ""}`;
  const ticks = relative ? [0, 0.5, 1] : [0, niceBelow(high ** 2 / 6), niceBelow(high ** 2 / 1.2)].filter((v, k, all) => all.indexOf(v) === k);
  const scale = relative ? [0, 0.25, 0.5, 0.75, 1].map((v) => [v, ramp(AMBER)(v)]) : plotlyScale();
  const around = Math.max(190, 90 + 7 * largest(names.map((name) => name.length))), height = Math.min(510 + around, around + 17 * Math.max(8, cells.length));
  // Names that would lie on one another give way.
  const [across, down] = [byId("matrix-chart").clientWidth - around + 80, height - around].map((room) => Math.max(1, Math.ceil(12 * cells.length / Math.max(1, room))));
  const named = (step) => ({ tickvals: at.filter((k) => k % step === 0), ticktext: names.filter((_, k) => k % step === 0), showgrid: false });
  const one = (id, z, texts) => draw(id, [{
    type: "heatmap", z, x: at, y: at, text: texts, hoverinfo: "text", colorscale: scale, zmin: 0, zmax: high, xgap: 1, ygap: 1, hoverongaps: false,
    colorbar: { orientation: "h", thickness: 9, len: 0.6, x: 0, xanchor: "left", y: 1.01, yanchor: "bottom", outlinewidth: 0, tickvals: ticks.map((v) => (relative ? v : Math.sqrt(v))), ticktext: ticks.map((v) => (relative ? `${Math.round(100 * v)} %` : count(v))) },
  }], {
    height, margin: { l: 10, r: 10, t: 34, b: 10 }, dragmode: false,
    xaxis: axis({ ...named(across), tickangle: -60, side: "bottom" }), yaxis: axis({ ...named(down), autorange: "reversed" }),
  });
  const texts = cells.map((o) => cells.map((d) => (o === d && !own ? "" : text(o, d))));
  one("matrix-chart", z, texts);
  if (!margins?.before) return;
  byId("old-note").textContent = `The matrix that was given, on the same scale: ${count(sum(margins.before.flat()))} in all.`;
  one("old-chart", cells.map((o) => cells.map((d) => (relative ? null : Math.sqrt(margins.before[o][d])))), texts);
}
// Both margins of a table: how many leave and arrive, with ranges and what was counted.
function drawTotals() {
  const through = data.cells.map((_, c) => sum([0, 1].map((t) => nodes.mean[nodeAt[t].get(c)] ?? 0))), cells = data.cells.map((_, c) => c).sort((a, b) => through[b] - through[a]).slice(0, MOST_BARS);
  const at = cells.map((_, k) => k), traces = [];
  [["accent", -0.2], ["sky", 0.2]].forEach(([colour, shift], t) => {
    const rows = cells.map((c) => nodeAt[t].get(c));
    traces.push({ type: "bar", orientation: "h", name: plain(data.times[t]), x: rows.map((r) => nodes.mean[r]), y: at.map((k) => k + shift), width: 0.36, marker: { color: css(colour) }, hoverinfo: "text", textposition: "none", text: rows.map((r) => [`<b>${short(data.cells[nodes.c[r]])}</b>`, `${count(nodes.mean[r])} ${plain(data.times[t])}`, ...rangeLine(nodes, r), seenText(r), ...doubtLine(nodes, r)].join("<br>")), error_x: { type: "data", symmetric: false, ...spans(nodes, rows), color: css("ink"), thickness: 1.1, width: 2 } });
    traces.push({ type: "scatter", mode: "markers", name: "counted", showlegend: t === 0, x: rows.map((r) => seen[r]), y: at.map((k) => k + shift), marker: { size: 6, color: css("warm") }, hoverinfo: "skip" });
  });
  byId("totals-chart").hidden = false;
  return draw("totals-chart", traces, {
    height: 110 + 30 * Math.max(4, cells.length), margin: { l: 10, r: 20, t: 60, b: 44 }, dragmode: false, barmode: "overlay", showlegend: true, legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0, yref: "paper" },
    title: { text: `Totals of ${cells.length < data.cells.length ? `the ${cells.length} busiest of ${whole(data.cells.length)}` : "all"} cells`, font: { size: 14 }, x: 0, xanchor: "left", xref: "paper", yref: "container", y: 0.985, yanchor: "top" },
    xaxis: axis({ title: { text: "individuals", standoff: 6 }, rangemode: "tozero" }), yaxis: axis({ tickvals: at, ticktext: cells.map((c) => short(data.cells[c], narrow() ? 14 : 26)), autorange: "reversed", ticklen: 0, showgrid: false }),
  });
}
function saveMatrix() {
  const { mean, sd } = matrixOf(), size = data.cells.length;
  saveTable("matrix.csv", ["origin", "dest", "mean", ...(sd.size ? ["sd"] : [])], [...mean].map(([k, v]) => [labelOf(Math.floor(k / size)), labelOf(k % size), v, ...(sd.size ? [sd.get(k) ?? null] : [])]));
}

// Expected moves per step between two sets of cells.
function movesPicked() {
  return leaving.slice(0, -1).map((rows) => sum(rows.filter((r) => isMove(r) && (!picked.from.size || picked.from.has(flows.o[r])) && (!picked.to.size || picked.to.has(flows.d[r]))).map((r) => flows.mean[r])));
}
function drawBetween() {
  const steps = movesPicked(), x = data.timeValues.slice(1);
  let total = 0;
  const running = steps.map((v) => { total += v; return total; });
  const names = (cells) => (cells.size === 0 ? "anywhere" : [...cells].slice(0, 3).map((c) => cut(data.cells[c], 16)).join(", ") + (cells.size > 3 ? ` and ${cells.size - 3} more` : ""));
  // The range of all moves, or of one pair, is that of its joint draws; of another choice that of independent pairs, roughly.
  const every = !picked.from.size && !picked.to.size, pairs = every || !data.sums?.pairs ? [] : (picked.from.size ? [...picked.from] : data.cells.map((_, c) => c)).flatMap((o) => (picked.to.size ? [...picked.to] : data.cells.map((_, c) => c)).filter((d) => d !== o).map((d) => data.sums.pairs[o][d]));
  const sd = every ? data.sums?.whole : pairs.length ? Math.sqrt(sum(pairs.map((sd) => sd ** 2))) : null, range_ = sumRange(total, sd);
  byId("between-note").textContent = `${count(total)}${range_ && ` (${percent}: ${every || pairs.length === 1 ? "" : "about "}${range_})`} moves from ${names(picked.from)} to ${names(picked.to)}, from ${timeName(0)} to ${timeName(data.times.length - 1)}.`;
  return draw("between-chart", [
    { x, y: steps, type: "bar", name: "each step", marker: { color: css("sky") }, hovertemplate: "%{y:.3~s} moves<extra></extra>" },
    { x, y: running, type: "scatter", mode: "lines", name: "added up", line: { color: css("accent"), width: 2.2 }, hovertemplate: "%{y:.4~s} so far<extra></extra>" },
  ], { height: 300, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 10, r: 14, t: 30, b: 40 }, hovermode: "x", dragmode: false, xaxis: timeAxis(), yaxis: axis({ title: { text: "moves", standoff: 6 }, rangemode: "tozero" }) });
}

function startMatrix() {
  byId("moves").hidden = !chain || !flows.mean.length;
  if (byId("moves").hidden) return;
  for (const end of ["from", "to"]) {
    const box = byId(`between-${end}`);
    data.cells.forEach((name, c) => box.append(element("option", { value: String(c) }, name)));
    box.addEventListener("change", () => { picked[end] = new Set([...box.selectedOptions].map((o) => Number(o.value))); drawBetween(); });
  }
  if (data.times.length < 3 || data.cells.length > MOST_THROUGH || data.cellsInAll > data.cells.length || data.flowsInAll > flows.mean.length) byId("matrix-span").querySelector('[value="through"]').remove();
  byId("matrix-layer").hidden = !trust.ranges;
  byId("matrix-layer").addEventListener("change", (event) => { matrix.layer = event.target.value; drawMatrix(); });
  byId("matrix-span").addEventListener("change", (event) => { matrix.span = event.target.value; drawMatrix(); });
  byId("save-matrix").addEventListener("click", saveMatrix);
  byId("save-between").addEventListener("click", () => saveTable("between.csv", ["time", "mean"], movesPicked().map((v, t) => [data.times[t], v])));
  if (margins) {
    byId("moves-title").textContent = "The matrix";
    for (const id of ["between-box", "matrix-span"]) byId(id).hidden = true;
    byId("old-box").hidden = !margins.before;
    if (!margins.before) byId("matrix-chart").closest(".pair").classList.add("alone");
    onChange((what) => { if (what.some((name) => ["theme", "width"].includes(name))) { drawMatrix(); drawTotals(); } });
    return;
  }
  onChange((what) => {
    if (what.some((name) => ["theme", "width"].includes(name)) || (what.includes("time") && matrix.span === "step")) drawMatrix();
    if (what.some((name) => ["theme", "width"].includes(name))) drawBetween();
  });
}
