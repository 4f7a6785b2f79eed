// The map: one disc per cell (area is the count), the interval as rings, the largest moves as arrows.

const { nodes, flows, places } = data;

function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : 1;
}

const means = nodes.mean.filter((m) => m !== null);
const most = means.reduce((a, b) => Math.max(a, b), 1e-9);
// One crowded start must not make everything else a dot: the scale is that of a full cell, the 98 % quantile.
const full = Math.max(1e-9, quantile(means.filter((m) => m > 0.5), 0.98));
const widest = flows.mean.reduce((a, m, row) => (flows.o[row] !== flows.d[row] && m > a ? m : a), 1e-9);
const mostSd = quantile(nodes.sd.filter((s) => s > 0), 0.98);
const changes = nodes.mean.map((mean, row) => {
  const next = nodeAt[nodes.t[row] + 1]?.get(nodes.c[row]);
  return next === undefined || mean === null || nodes.mean[next] === null ? null : nodes.mean[next] - mean;
});
const mostChange = Math.max(1e-9, quantile(changes.filter((c) => c).map(Math.abs), 0.98));

const even = (...colours) => colours.map((colour, k) => [k / (colours.length - 1), colour]);
const VIRIDIS = even("#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725");
const CIVIDIS = even("#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838");
const PURPLE_ORANGE = even("#b35806", "#f1a340", "#d8d8dc", "#998ec3", "#542788");
const COLOURS = {
  mean: { title: "individuals (square-root scale)", scale: VIRIDIS, low: 0, high: Math.sqrt(full), value: (row) => Math.sqrt(Math.max(0, nodes.mean[row] ?? 0)), root: true },
  sd: { title: "standard deviation, individuals", scale: CIVIDIS, low: 0, high: mostSd, value: (row) => nodes.sd[row] ?? 0 },
  change: { title: "change to the next time, individuals", scale: PURPLE_ORANGE, low: -mostChange, high: mostChange, value: (row) => changes[row] ?? 0 },
};

function rootTicks(high) {
  const nice = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6];
  const fit = nice.filter((v) => Math.sqrt(v) <= high);
  return fit.filter((v, k) => k === 0 || (Math.sqrt(v) > 0.14 * high && (k + 1 === fit.length || Math.sqrt(fit[k + 1]) - Math.sqrt(v) > 0.07 * high)));
}

// The key of the colours, in HTML: it wraps with the page, which Plotly's own does not.
function colourKey(kind) {
  const stops = kind.scale.map(([share, colour]) => `${colour} ${100 * share}%`).join(", ");
  const ticks = kind.root ? rootTicks(kind.high).map((v) => [Math.sqrt(v), whole(v)]) : [0, 0.25, 0.5, 0.75, 1].map((s) => { const v = kind.low + s * (kind.high - kind.low); return [v, count(Number(v.toPrecision(2)))]; });
  const marks = ticks.map(([v, text]) => element("span", { style: `left:${100 * (v - kind.low) / (kind.high - kind.low)}%` }, text));
  byId("colour-key").replaceChildren(element("div", { class: "ramp", style: `background:linear-gradient(to right, ${stops})` }), element("div", { class: "marks" }, ...marks), element("div", {}, `Disc: ${kind.title}`));
}

// Size of the picture and pixels a flat map unit; a margin of one cell, or of the fullest disc.
function frame() {
  const width = byId("map-chart").clientWidth || 700;
  const margins = { l: 46, r: 10, t: 8, b: 44 };
  const edge = Math.max(0.75 * places.spacing, 1.05 * radius(most));
  const ends = (values, pad) => [values.reduce((a, b) => Math.min(a, b)) - pad, values.reduce((a, b) => Math.max(a, b)) + pad];
  const x = ends(places.x, edge / places.stretch), y = ends(places.y, edge);
  const spanX = (x[1] - x[0]) * places.stretch, spanY = y[1] - y[0];
  const room = width - margins.l - margins.r;
  const height = Math.min(620, Math.max(200, room * spanY / spanX));
  const scale = Math.min(room / spanX, height / spanY);
  return { x, y, margins, height: height + margins.t + margins.b, scale };
}

// Radius of a count's disc in flat map units: area is the count.
const radius = (value) => places.spacing * Math.min(0.42 / Math.sqrt(full), 1 / Math.sqrt(most)) * Math.sqrt(Math.max(0, value ?? 0));

function discs(view) {
  const rows = [...nodeAt[state.time].values()];
  const size = (value) => 2 * view.scale * radius(value);
  const at = { x: rows.map((r) => places.x[nodes.c[r]]), y: rows.map((r) => places.y[nodes.c[r]]) };
  const kind = COLOURS[state.colour];
  const text = rows.map((r) => {
    const seen = nodes.observed[r] === null ? "not observed" : `observed ${count(nodes.observed[r])}`;
    const sure = nodes.reliable[r] || nodes.sd[r] === 0 ? "" : "<br>interval not reliable";
    const moved = changes[r] === null ? "" : `<br>change to the next time ${changes[r] > 0 ? "+" : ""}${count(changes[r])}`;
    return `<b>cell ${short(data.cells[nodes.c[r]])}</b><br>${count(nodes.mean[r])} individuals<br>${spread(nodes, r)}${percent}: ${range(nodes, r)}, sd ${count(nodes.sd[r])}<br>${seen}${moved}${sure}`;
  });
  const chosen = nodeAt[state.time].get(state.cell);
  return [
    { ...at, type: "scatter", mode: "markers", hoverinfo: "skip", marker: { size: 3, color: css("dot") } },
    {
      ...at, type: "scatter", mode: "markers", hoverinfo: "text", text, customdata: rows.map((r) => nodes.c[r]), name: "counts",
      marker: {
        size: rows.map((r) => Math.max(3, size(nodes.mean[r]))), color: rows.map(kind.value), colorscale: kind.scale, cmin: kind.low, cmax: kind.high,
        showscale: false, line: { width: 0 }, opacity: 1,
      },
    },
    {
      ...at, type: "scatter", mode: "markers", hoverinfo: "skip", name: "upper",
      marker: { symbol: "circle-open", size: rows.map((r) => size(nodes.upper[r])), color: css("ink"), opacity: rows.map((r) => (nodes.reliable[r] ? 0.75 : 0.3)), line: { width: 1 } },
    },
    {
      x: [places.x[state.cell]], y: [places.y[state.cell]], type: "scatter", mode: "markers", hoverinfo: "skip", name: "chosen",
      marker: { symbol: "circle-open", size: [Math.max(16, size(chosen === undefined ? 0 : nodes.upper[chosen] ?? nodes.mean[chosen]) + 9)], color: css("warm"), line: { width: 2.5 } },
    },
  ];
}

// Rows of the moves to draw: largest first, no stays, above the threshold, of the chosen cell if asked.
function shownMoves() {
  return leaving[state.time].filter((r) => flows.o[r] !== flows.d[r] && flows.mean[r] > 0 && flows.mean[r] >= state.least
    && (!state.only || flows.o[r] === state.cell || flows.d[r] === state.cell)).slice(0, state.arrows);
}

// Outline of a curved arrow from p to q in flat map units: b(s) = (1−s)²p + 2s(1−s)c + s²q, bending to the left.
function arrow(p, q, width, gaps) {
  const along = [q[0] - p[0], q[1] - p[1]], length = Math.hypot(...along), bend = 0.16, steps = 10;
  const c = [(p[0] + q[0]) / 2 - bend * along[1], (p[1] + q[1]) / 2 + bend * along[0]];
  const [before, after] = gaps.map((gap) => Math.min(gap, length / 3));
  const head = Math.min(2.1 * width, 0.5 * (length - before - after));
  const at = (s) => [0, 1].map((k) => (1 - s) ** 2 * p[k] + 2 * s * (1 - s) * c[k] + s ** 2 * q[k]);
  const normal = (s) => {
    const d = [0, 1].map((k) => 2 * (1 - s) * (c[k] - p[k]) + 2 * s * (q[k] - c[k])), n = Math.hypot(...d);
    return [-d[1] / n, d[0] / n];
  };
  const first = before / length, neck = 1 - (after + head) / length, left = [], right = [];
  for (let k = 0; k <= steps; k += 1) {
    const s = first + (neck - first) * k / steps, half = width / 2 * (0.35 + 0.65 * k / steps), [x, y] = at(s), [u, v] = normal(s);
    left.push([x + half * u, y + half * v]); right.unshift([x - half * u, y - half * v]);
  }
  const [x, y] = at(neck), [u, v] = normal(neck), wing = 0.62 * head;
  const outline = [...left, [x + wing * u, y + wing * v], at(1 - after / length), [x - wing * u, y - wing * v], ...right];
  return { outline, grips: [at(first + 0.5 * (neck - first)), at(first + 0.75 * (neck - first)), [x, y]] };
}

function arrows(rows, view) {
  const flat = (cell) => [places.x[cell] * places.stretch, places.y[cell]];
  const shapes = Object.fromEntries(CERTAINTY.map(([kind]) => [kind, { x: [], y: [] }]));
  const grip = { x: [], y: [], text: [] };
  for (const row of rows) {
    const width = 0.17 * places.spacing * Math.max(0.12, Math.sqrt(flows.mean[row] / widest));
    const rims = [flows.o[row], flows.d[row]].map((cell) => {
      const here = nodeAt[state.time].get(cell);
      return 0.05 * places.spacing + (here === undefined ? 0 : radius(nodes.upper[here] ?? nodes.mean[here]));
    });
    const { outline, grips } = arrow(flat(flows.o[row]), flat(flows.d[row]), width, rims);
    const kind = certainty(row), shape = shapes[kind];
    for (const [x, y] of [...outline, outline[0]]) { shape.x.push(x / places.stretch); shape.y.push(y); }
    shape.x.push(null); shape.y.push(null);
    const sure = flows.reliable[row] ? "" : "<br>interval not reliable";
    const text = `<b>${short(data.cells[flows.o[row]])} → ${short(data.cells[flows.d[row]])}</b><br>${count(flows.mean[row])} individuals (${kind})<br>${spread(flows, row)}${percent}: ${range(flows, row)}, sd ${count(flows.sd[row])}${sure}`;
    for (const [x, y] of grips) { grip.x.push(x / places.stretch); grip.y.push(y); grip.text.push(text); }
  }
  const fills = [...CERTAINTY].reverse().map(([kind, colour]) => ({
    ...shapes[kind], type: "scatter", mode: "lines", fill: "toself", fillcolor: css(colour), hoverinfo: "skip", name: kind, opacity: 0.85,
    line: { width: view.scale * places.spacing < 50 ? 0.2 : 0.8, color: css("card") }, // an edge keeps crossing arrows apart
  }));
  return [...fills, { ...grip, type: "scatter", mode: "markers", hoverinfo: "text", name: "flows", marker: { size: 11, opacity: 0, color: css("accent") } }];
}

function drawMap() {
  const view = frame(), moves = shownMoves();
  const degrees = places.geographic;
  colourKey(COLOURS[state.colour]);
  return draw("map-chart", [...discs(view), ...arrows(moves, view)], {
    height: view.height, margin: view.margins,
    xaxis: axis({ range: view.x, title: { text: degrees ? "longitude (°)" : "x (map units)", standoff: 6 }, constrain: "domain", showgrid: false, nticks: 7 }),
    yaxis: axis({ range: view.y, title: { text: degrees ? "latitude (°)" : "y (map units)", standoff: 6 }, scaleanchor: "x", scaleratio: 1 / places.stretch, constrain: "domain", showgrid: false, nticks: 7 }),
  });
}
