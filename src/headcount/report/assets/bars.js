// Without places there is no map: counts and the largest moves of the time as bars with their intervals, and all times as a heat map.

const MOST_BARS = 40;

function spans(table, rows) {
  const out = { array: [], arrayminus: [] };
  for (const r of rows) {
    out.array.push(table.upper[r] === null ? 0 : Math.max(0, table.upper[r] - table.mean[r]));
    out.arrayminus.push(table.lower[r] === null ? 0 : Math.max(0, table.mean[r] - table.lower[r]));
  }
  return out;
}

function horizontal(id, table, rows, names, texts, title, colours) {
  const at = rows.map((_, k) => k);
  return draw(id, [{
    type: "bar", orientation: "h", x: rows.map((r) => table.mean[r]), y: at, hoverinfo: "text", text: texts, textposition: "none", customdata: rows,
    marker: { color: colours, opacity: 0.9, line: { color: css("dot"), width: rows.map((_, k) => (colours[k] === css("card") ? 1.2 : 0)) } }, error_x: { type: "data", symmetric: false, ...spans(table, rows), color: css("ink"), thickness: 1.2, width: 3 },
  }], {
    height: 90 + 24 * Math.max(3, rows.length), margin: { l: 10, r: 20, t: 34, b: 44 }, dragmode: false,
    title: { text: title, font: { size: 14 }, x: 0, xanchor: "left", xref: "paper", y: 1, yref: "paper", yanchor: "bottom", pad: { b: 10 } },
    xaxis: axis({ title: { text: "individuals", standoff: 6 }, rangemode: "tozero" }),
    yaxis: axis({ tickvals: at, ticktext: names, autorange: "reversed", ticklen: 0, showgrid: false }),
  });
}

function countBars() {
  const all = [...nodeAt[state.time].values()];
  const rows = all.length <= MOST_BARS ? all : [...all].sort((a, b) => nodes.mean[b] - nodes.mean[a]).slice(0, MOST_BARS);
  const texts = rows.map((r) => {
    return `<b>${short(data.cells[nodes.c[r]])}</b><br>${[`${count(nodes.mean[r])} individuals`, ...rangeLine(nodes, r), seenText(r), ...doubtLine(nodes, r)].join("<br>")}`;
  });
  const some = rows.length < all.length ? `, the ${rows.length} fullest of ${all.length}` : "";
  const colours = rows.map((r) => css(chain && nodes.c[r] === state.cell ? "warm" : "accent"));
  return horizontal("map-chart", nodes, rows, rows.map((r) => short(data.cells[nodes.c[r]], 18)), texts, `Counts ${chain ? "at" : "of"} ${plain(timeName(state.time))}${some}`, colours);
}

function pairName(row, most) {
  const first = short(data.cells[flows.o[row]], most), second = short(data.cells[flows.d[row]], most);
  return chain ? `${first} → ${second}` : `${short(data.times[flows.t[row]], most)} = ${first}, ${short(data.times[flows.u[row]], most)} = ${second}`;
}

const barMoves = () => leaving[state.time].filter((r) => flows.mean[r] > 0 && flows.mean[r] >= state.least && (!chain || (isMove(r) && (!state.only || flows.o[r] === state.cell || flows.d[r] === state.cell)))).slice(0, Math.min(state.arrows, MOST_BARS));

function flowBars() {
  const rows = barMoves();
  byId("flow-chart").hidden = rows.length === 0;
  if (!rows.length) return null;
  const texts = rows.map((r) => [`<b>${pairName(r, 26)}</b>`, `${count(flows.mean[r])} individuals${sureOf(r) ? ` (${sureOf(r)})` : ""}`, ...rangeLine(flows, r), ...doubtLine(flows, r)].join("<br>"));
  const title = margins ? "Largest flows" : chain ? `Largest moves after ${plain(timeName(state.time))}` : `Largest pairs with ${plain(timeName(state.time))}`;
  return horizontal("flow-chart", flows, rows, rows.map((r) => pairName(r, 16)), texts, title, rows.map((r) => css(CLASS_COLOURS[sureOf(r)])));
}

const plotlyScale = () => { const scale = ramp(isDark() ? DEEP : BLUES); return [0, 0.2, 0.4, 0.6, 0.8, 1].map((s) => [s, scale(s)]); };

function heatMap() {
  const rows = data.cells.map((_, c) => data.times.map((_, t) => { const r = nodeAt[t].get(c); return r === undefined ? null : nodes.mean[r]; }));
  const root = rows.map((line) => line.map((v) => (v === null ? null : Math.sqrt(Math.max(0, v)))));
  const text = rows.map((line, c) => line.map((v, t) => {
    const r = nodeAt[t].get(c);
    return r === undefined ? "" : `<b>${short(data.cells[c])}</b>, ${plain(timeName(t))}<br>${[`${count(v)} individuals`, ...rangeLine(nodes, r), ...doubtLine(nodes, r)].join("<br>")}`;
  }));
  const step = Math.max(1, Math.ceil(data.cells.length / 40)), at = data.cells.map((_, c) => c).filter((c) => c % step === 0);
  const columns = data.times.map((_, t) => t), across = Math.max(1, Math.ceil(columns.length / 12));
  byId("heat-chart").hidden = false;
  return draw("heat-chart", [{
    type: "heatmap", z: root, x: columns, y: data.cells.map((_, c) => c), text, hoverinfo: "text", colorscale: plotlyScale(), zmin: 0, zmax: Math.sqrt(fullest), showscale: false, xgap: 1, ygap: 1,
  }], {
    height: Math.min(900, 130 + 18 * Math.max(6, data.cells.length)), margin: { l: 10, r: 14, t: 34, b: 44 }, dragmode: false,
    title: { text: "All cells at all times: mean count", font: { size: 14 }, x: 0, xanchor: "left", xref: "paper", y: 1, yref: "paper", yanchor: "bottom", pad: { b: 10 } },
    xaxis: axis({ tickvals: columns.filter((t) => t % across === 0), ticktext: columns.filter((t) => t % across === 0).map((t) => short(data.times[t], 12)), title: { text: "time", standoff: 6 }, showgrid: false }),
    yaxis: axis({ tickvals: at, ticktext: at.map((c) => short(data.cells[c], 18)), autorange: "reversed", showgrid: false }),
  });
}
