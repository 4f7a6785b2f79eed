// Who went where: origins against destinations as a heat map, and what goes between chosen cells, added up over time.

const MOST_ROWS = 30;
const matrix = { span: "all", most: Math.min(MOST_ROWS, data.cells.length) };
const picked = { from: new Set(), to: new Set() };

function matrixOf() {
  const rows = (matrix.span === "all" ? leaving.flat() : leaving[state.time]).filter(isMove);
  const through = data.cells.map(() => 0), pairs = new Map();
  for (const r of rows) {
    through[flows.o[r]] += flows.mean[r]; through[flows.d[r]] += flows.mean[r];
    const key = flows.o[r] * data.cells.length + flows.d[r];
    pairs.set(key, (pairs.get(key) ?? 0) + flows.mean[r]);
  }
  const busiest = data.cells.map((_, c) => c).sort((a, b) => through[b] - through[a]).slice(0, MOST_ROWS);
  return { cells: busiest.sort((a, b) => a - b), value: (o, d) => pairs.get(o * data.cells.length + d) ?? 0 };
}
function drawMatrix() {
  const { cells, value } = matrixOf();
  const z = cells.map((o) => cells.map((d) => (o === d ? null : value(o, d)))), high = robust(z.flat().filter((v) => v !== null));
  const text = cells.map((o) => cells.map((d) => (o === d ? "" : `<b>${short(data.cells[o])} → ${short(data.cells[d])}</b><br>${count(value(o, d))} individuals`)));
  const at = cells.map((_, k) => k), names = cells.map((c) => short(data.cells[c], 14)), some = cells.length < data.cells.length ? `, the ${cells.length} busiest of ${whole(data.cells.length)} cells` : "";
  byId("matrix-note").textContent = `${matrix.span === "all" ? "All moves added up" : `Moves after ${timeName(state.time)}`}${some}. Rows: from; columns: to.`;
  return draw("matrix-chart", [{ type: "heatmap", z: z.map((row) => row.map((v) => (v === null ? null : Math.sqrt(v)))), x: at, y: at, text, hoverinfo: "text", colorscale: plotlyScale(), zmin: 0, zmax: Math.sqrt(high), showscale: false, xgap: 1, ygap: 1, hoverongaps: false }], {
    height: Math.min(640, 120 + 17 * Math.max(8, cells.length)), margin: { l: 10, r: 10, t: 6, b: 10 }, dragmode: false,
    xaxis: axis({ tickvals: at, ticktext: names, showgrid: false, tickangle: -60, side: "bottom" }), yaxis: axis({ tickvals: at, ticktext: names, autorange: "reversed", showgrid: false }),
  });
}
function saveMatrix() {
  const rows = matrix.span === "all" ? leaving.flat() : leaving[state.time], pairs = new Map();
  for (const r of rows) { const key = `${flows.o[r]},${flows.d[r]}`; pairs.set(key, (pairs.get(key) ?? 0) + flows.mean[r]); }
  saveTable("matrix.csv", ["origin", "dest", "mean"], [...pairs].map(([key, mean]) => { const [o, d] = key.split(",").map(Number); return [labelOf(o), labelOf(d), mean]; }));
}

// Expected moves per step between two sets of cells; ranges of single flows give none of their sum, so none is drawn.
function movesPicked() {
  return leaving.slice(0, -1).map((rows) => sum(rows.filter((r) => isMove(r) && (!picked.from.size || picked.from.has(flows.o[r])) && (!picked.to.size || picked.to.has(flows.d[r]))).map((r) => flows.mean[r])));
}
function drawBetween() {
  const steps = movesPicked(), x = data.timeValues.slice(1);
  let total = 0;
  const running = steps.map((v) => { total += v; return total; });
  const names = (cells) => (cells.size === 0 ? "anywhere" : [...cells].slice(0, 3).map((c) => cut(data.cells[c], 16)).join(", ") + (cells.size > 3 ? ` and ${cells.size - 3} more` : ""));
  byId("between-note").textContent = `${count(total)} moves from ${names(picked.from)} to ${names(picked.to)}, from ${timeName(0)} to ${timeName(data.times.length - 1)}.`;
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
  byId("matrix-span").addEventListener("change", (event) => { matrix.span = event.target.value; drawMatrix(); });
  byId("save-matrix").addEventListener("click", saveMatrix);
  byId("save-between").addEventListener("click", () => saveTable("between.csv", ["time", "mean"], movesPicked().map((v, t) => [data.times[t], v])));
  onChange((what) => {
    if (what.some((name) => ["theme", "width"].includes(name)) || (what.includes("time") && matrix.span === "step")) drawMatrix();
    if (what.some((name) => ["theme", "width"].includes(name))) drawBetween();
  });
}
