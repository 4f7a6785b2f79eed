// One cell over time, the numbers beside the map, and the curves of the run itself.

function drawSeries() {
  const rows = data.times.map((_, t) => nodeAt[t].get(state.cell)).filter((r) => r !== undefined);
  const x = rows.map((r) => data.timeValues[nodes.t[r]]);
  const pick = (column) => rows.map((r) => column[r]);
  const texts = rows.map((r) => [`<b>${plain(timeName(nodes.t[r]))}</b>`, `${count(nodes.mean[r])} individuals`, ...rangeLine(nodes, r), seenText(r), ...doubtLine(nodes, r)].join("<br>"));
  const band = { x, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  const here = data.timeValues[state.time];
  byId("series-title").textContent = `${cellTitle(state.cell)} over time`;
  return draw("series-chart", [
    ...(trust.ranges ? [{ ...band, y: pick(nodes.lower) },
      { ...band, y: pick(nodes.upper), fill: "tonexty", fillcolor: tint(css(trust.nodes === null ? "accent" : "dot"), 0.22), name: `${percent} range${trust.nodes === null ? "" : ", in doubt"}`, showlegend: true }] : []),
    { x, y: pick(nodes.mean), type: "scatter", mode: "lines+markers", name: "inferred", text: texts, hoverinfo: "text", line: { color: css("accent"), width: 2.2 }, marker: { size: 5 } },
    {
      x, y: pick(seen), type: "scatter", mode: "markers", name: scaled ? "counted, scaled to individuals" : "counted", hoverinfo: "skip",
      marker: { size: 8, color: rows.map((r) => css(inDoubt(nodes, r) ? "card" : "warm")), line: { color: css("warm"), width: 1.6 } },
    },
  ], {
    height: 320, showlegend: true, legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, margin: { l: 10, r: 14, t: 30, b: 40 }, hovermode: "x", dragmode: fine ? "zoom" : false,
    shapes: [...aheadShape(), { type: "line", x0: here, x1: here, yref: "paper", y0: 0, y1: 1, line: { color: css("soft"), width: 1, dash: "dot" } }],
    xaxis: timeAxis(), yaxis: axis({ title: { text: "individuals", standoff: 6 }, rangemode: "tozero" }),
  });
}
function aheadShape() {
  if (data.forecastFrom === null) return [];
  const [x0, x1] = [data.forecastFrom, data.times.length - 1].map((t) => data.timeValues[t]);
  return [{ type: "rect", x0, x1, yref: "paper", y0: 0, y1: 1, fillcolor: tint(css("warm"), 0.1), line: { width: 0 }, layer: "below", label: { text: "forecast", textposition: "top center" } }];
}
// How many there are in all, where that is not known or changes.
function drawPresent() {
  const means = data.times.map((_, t) => sum([...nodeAt[t].values()].map((r) => nodes.mean[r] ?? 0))), sds = data.times.map((_, t) => data.sums?.present[t] ?? null);
  const open = data.size !== null || largest(means) - Math.min(...means) > 0.5;
  byId("present-chart").hidden = !open || !chain || data.cellsInAll > data.cells.length;
  if (byId("present-chart").hidden) return;
  const ends = means.map((m, t) => sumEnds(m, sds[t])), band = { x: data.timeValues, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false };
  draw("present-chart", [
    ...(ends.every((e) => e !== null) ? [{ ...band, y: ends.map((e) => e[0]) }, { ...band, y: ends.map((e) => e[1]), fill: "tonexty", fillcolor: tint(css(trust.nodes === null ? "accent" : "dot"), 0.22) }] : []),
    { x: data.timeValues, y: means, type: "scatter", mode: "lines+markers", line: { color: css("accent"), width: 2.2 }, marker: { size: 5 }, hoverinfo: "text", text: means.map((m, t) => `<b>${plain(timeName(t))}</b><br>${withRange(m, sds[t])} individuals`) },
  ], {
    height: 240, margin: { l: 10, r: 14, t: 34, b: 40 }, dragmode: false, xaxis: timeAxis(), yaxis: axis({ title: { text: "individuals", standoff: 6 }, rangemode: "tozero" }),
    title: { text: `Individuals in all${ends[0] === null ? "" : `, ${percent} ranges`}`, font: { size: 14 }, x: 0, xanchor: "left", xref: "paper", y: 1, yref: "paper", yanchor: "bottom", pad: { b: 10 } },
  });
}
function saveSeries() {
  const rows = data.times.map((_, t) => nodeAt[t].get(state.cell)).filter((r) => r !== undefined);
  saveTable("cell.csv", ["time", "cell", "counted", "counted_per_rate", "mean", "lower", "upper"], rows.map((r) => [data.times[nodes.t[r]], labelOf(state.cell), nodes.observed[r], seen[r], nodes.mean[r], nodes.lower[r], nodes.upper[r]]));
}

function tint(colour, alpha) {
  const [r, g, b] = [1, 3, 5].map((k) => parseInt(colour.slice(k, k + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

function moveList(title, rows, end, most = 4) {
  if (!rows.length) return [];
  const lines = rows.slice(0, most).map((r) => element("tr", {}, element("td", {}, data.cells[flows[end][r]]), element("td", {}, count(flows.mean[r])), ...(trust.ranges ? [element("td", { class: "quiet" }, range(flows, r))] : [])));
  return [element("h4", {}, title), element("table", {}, element("tbody", {}, ...lines))];
}

// Of a table with two margins: both totals of the chosen cell, where its individuals go and where they come from.
function marginsAside(box) {
  const both = [0, 1].map((t) => nodeAt[t].get(state.cell)), total = (row, t) => [element("h4", {}, data.times[t]), element("p", {}, `${count(nodes.mean[row])}${range(nodes, row) ? ` (${range(nodes, row)})` : ""}, ${seenText(row)}`), ...doubtLine(nodes, row).map((text) => element("p", { class: "quiet" }, text))];
  const of = (end) => leaving[0].filter((r) => flows[end][r] === state.cell && flows.mean[r] > 0);
  box.replaceChildren(element("h3", {}, cellTitle(state.cell)), ...both.flatMap((row, t) => (row === undefined ? [] : total(row, t))), ...moveList("From here to", of("o"), "d", 8), ...moveList("To here from", of("d"), "o", 8));
}
function fillAside() {
  if (margins) { marginsAside(byId("here")); return; }
  const row = nodeAt[state.time].get(state.cell), box = byId("here");
  if (row === undefined) { box.replaceChildren(); return; }
  const out = leaving[state.time].filter((r) => flows.o[r] === state.cell);
  const stay = out.find((r) => flows.d[r] === state.cell);
  const arrive = state.time > 0 ? leaving[state.time - 1].filter((r) => flows.d[r] === state.cell && flows.o[r] !== state.cell) : [];
  box.replaceChildren(
    element("h3", {}, cellTitle(state.cell)), element("p", { class: "quiet" }, timeName(state.time)),
    element("p", { class: "big" }, count(nodes.mean[row])), ...rangeLine(nodes, row).map((text) => element("p", {}, text)), element("p", { class: "quiet" }, seenText(row)),
    ...doubtLine(nodes, row).map((text) => element("p", { class: "quiet" }, text)),
    ...inAndOut(),
    ...moveList("Came from", arrive, "o"),
    ...(stay === undefined ? [] : [element("h4", {}, "Stay"), element("p", {}, `${count(flows.mean[stay])}${range(flows, stay) ? ` (${range(flows, stay)})` : ""}`)]),
    ...moveList("Leave to", out.filter((r) => r !== stay), "d"),
  );
}

// Who comes into the chosen cell and who leaves it during the step on the map, with ranges of the sums.
let ends_ = null;
function throughCell(t, c) {
  if (ends_ === null) {
    ends_ = { d: data.times.map(() => new Float64Array(data.cells.length)), o: data.times.map(() => new Float64Array(data.cells.length)) };
    flows.mean.forEach((mean, r) => { if (isMove(r)) for (const end of ["o", "d"]) ends_[end][flows.t[r]][flows[end][r]] += mean; });
  }
  const into = ends_.d[t][c], out = ends_.o[t][c], sds = data.sums;
  return [["in", into, sds?.into[t]?.[c], 0], ["out", out, sds?.out[t]?.[c], 0], ["net", into - out, sds?.net[t]?.[c], -Infinity]];
}
function inAndOut() {
  if (!leaving[state.time].length) return [];
  const rows = throughCell(state.time, state.cell).map(([name, mean, sd, least]) => element("tr", {}, element("td", {}, name), element("td", {}, least < 0 ? signed(mean) : count(mean)), element("td", { class: "quiet" }, sumRange(mean, sd, least))));
  return [element("h4", {}, "During the next step"), element("table", { id: "through" }, element("tbody", {}, ...rows))];
}

function caption() {
  const box = byId("map-caption"), moves = leaving[state.time];
  if (!moves.length) { box.textContent = chain ? "This is the last time: no moves follow." : "No pairs begin with this variable."; return; }
  if (!chain) { box.textContent = trust.ranges ? "Thin lines show the range." : ""; return; }
  const moved = sum(moves.filter(isMove).map((r) => flows.mean[r])), shown = mapped ? shownMoves() : barMoves();
  const carried = sum(shown.map((m) => (mapped ? m.mean : flows.mean[m])));
  if (margins) {
    const stay = sum(moves.filter((r) => !isMove(r)).map((r) => flows.mean[r]));
    box.textContent = `${withRange(moved, data.sums?.moved[0])} go to another cell, ${count(stay)} to their own; the ${shown.length} ${mapped ? "lines" : "bars"} shown carry ${count(carried)} (${Math.round(100 * carried / Math.max(moved, 1e-9))} %).`;
    return;
  }
  if (state.routes && mapped) {
    box.textContent = `${ROUTES} routes of those in ${short(data.cells[state.cell])} at ${timeName(state.time)}, to ${timeName(data.times.length - 1)}: drawn by expected flows, if each step depends on the cell alone. Choose a cell on the map.`;
    return;
  }
  const share = moved > 0 ? ` (${Math.round(100 * carried / moved)} %)` : "", more = mapped && data.cells.length >= 12 && carried < moved / 3 && !state.together ? " Group the cells (options) to see more of them." : "";
  box.textContent = `${withRange(moved, data.sums?.moved[state.time])} individuals move before ${timeName(state.time + 1)}; the ${shown.length} ${mapped ? "arrows" : "bars"} shown carry ${count(carried)} of them${share}.${more}`;
}

// Histogram of the probability of a smaller count, with the band that holds 95 % of the bars where the model is right.
function checkChart() {
  const pit = (data.check?.pit ?? []).filter((v) => v !== null), bars = 10;
  byId("check-box").hidden = pit.length < 20;
  if (byId("check-box").hidden) return;
  const share = Array.from({ length: bars }, (_, k) => pit.filter((v) => Math.min(bars - 1, Math.floor(v * bars)) === k).length / pit.length);
  const even = 1 / bars, width = 1.96 * Math.sqrt(even * (1 - even) / pit.length);
  const paint = () => {
    if (!byId("check-box").open) return;
    draw("check-chart", [{ type: "bar", x: share.map((_, k) => (k + 0.5) / bars), y: share, width: 0.95 / bars, marker: { color: css("accent") }, hoverinfo: "skip" }], {
      height: 240, margin: { l: 10, r: 14, t: 10, b: 40 }, dragmode: false, xaxis: axis({ range: [0, 1], title: { text: "probability of a smaller count" } }), yaxis: axis({ rangemode: "tozero", title: { text: "share of the counts" } }),
      shapes: [{ type: "rect", xref: "paper", x0: 0, x1: 1, y0: Math.max(0, even - width), y1: even + width, fillcolor: tint(css("accent"), 0.12), line: { width: 0 } }],
    });
  };
  byId("check-box").addEventListener("toggle", paint);
  onChange((what) => { if (what.includes("theme")) paint(); });
}

// Curves of the run: one panel per quantity, at most two; `falls` have a logarithmic axis.
function curves(id, box, table, wanted, falls, goal) {
  const names = table === null ? [] : wanted.filter((name) => table[name]?.some((v) => v !== null)).slice(0, 2);
  byId(box).hidden = names.length === 0 || table.iteration.length < 2;
  if (byId(box).hidden) return;
  const paint = () => {
    if (!byId(box).open) return;
    const two = names.length > 1;
    const traces = names.map((name, k) => ({
      x: table.iteration, y: table[name], type: "scatter", mode: "lines+markers", marker: { size: 5 }, line: { color: css("accent") }, xaxis: "x", yaxis: k === 0 ? "y" : "y2",
    }));
    const side = (name, domain) => axis({
      domain, title: { text: plain(name.replaceAll("_", " ")) }, ...(falls.includes(name) ? { type: "log", exponentformat: "power", dtick: 1 } : {}),
    });
    const lines = names.map((name, k) => ({ type: "line", xref: "paper", x0: 0, x1: 1, yref: k === 0 ? "y" : "y2", y0: goal, y1: goal, line: { color: css("warm"), dash: "dash", width: 1 } }));
    draw(id, traces, {
      height: two ? 420 : 260, margin: { l: 10, r: 14, t: 10, b: 40 }, hovermode: "x", dragmode: false,
      xaxis: axis({ title: { text: "iteration" }, anchor: two ? "y2" : "y" }),
      yaxis: side(names[0], two ? [0.56, 1] : [0, 1]), ...(two ? { yaxis2: side(names[1], [0, 0.44]) } : {}),
      shapes: goal ? lines.filter((_, k) => names[k] === "residual") : [],
    });
  };
  byId(box).addEventListener("toggle", paint);
  onChange((what) => { if (what.includes("theme")) paint(); });
}
