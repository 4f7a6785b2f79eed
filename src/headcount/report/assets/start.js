// Wire the controls to the state and the state to the pictures.

function drawAll(what) {
  byId("time").value = String(state.time);
  byId("time-label").textContent = timeName(state.time);
  byId("time").setAttribute("aria-valuetext", timeName(state.time));
  if (mapped) drawMap(); else { if (!margins) countBars(); flowBars(); }
  caption();
  if (what.some((name) => ["theme", "width"].includes(name))) drawStrip();
  markNow();
  if (!chain) return;
  if (byId("cell").value !== String(state.cell)) byId("cell").value = String(state.cell);
  if (margins) { fillAside(); return; }
  if (playing === null && what.some((name) => ["cell", "time", "theme", "width"].includes(name))) drawSeries();
  if (what.some((name) => ["theme", "width"].includes(name))) drawPresent();
  if (!mapped && what.some((name) => ["theme", "width"].includes(name))) heatMap();
  fillAside();
}

function listen(id, event, read) {
  byId(id).addEventListener(event, (happened) => change(read(happened.target)));
}

function choose(event) {
  const point = event.points.find((p) => p.customdata !== undefined);
  if (point) change({ cell: nodes.c[point.customdata] });
}

function saveMap() {
  if (!flows.mean.length || !chain) { saveTable("counts.csv", ["time", "cell", "mean", "lower", "upper"], [...nodeAt[state.time].values()].map((r) => [data.times[state.time], labelOf(nodes.c[r]), nodes.mean[r], nodes.lower[r], nodes.upper[r]])); return; }
  const rows = mapped ? shownMoves().flatMap((m) => m.rows) : barMoves();
  saveTable("moves.csv", ["time", "origin", "dest", "mean", "lower", "upper"], rows.map((r) => [data.times[flows.t[r]], labelOf(flows.o[r]), labelOf(flows.d[r]), flows.mean[r], flows.lower[r], flows.upper[r]]));
}

function arrange() {
  const last = data.times.length - 1;
  byId("time").max = String(last);
  byId("time").setAttribute("aria-label", chain ? "Time" : "Variable");
  if (last === 0) byId("play").disabled = true;
  byId("player").hidden = last === 0 || margins !== null;
  if (margins) for (const id of ["series", "strip-note"]) byId(id).hidden = true;
  if (margins && !mapped) byId("map-chart").hidden = true;
  data.cells.forEach((name, k) => byId("cell").append(element("option", { value: String(k) }, name)));
  byId("cell-hint").textContent = mapped ? "or choose it on the map" : "or choose its bar above";
  for (const id of ["colour-box", "zoom", "save-png", "save-svg"]) byId(id).hidden = !mapped;
  byId("show-box").hidden = !areas;
  byId("tiles-box").hidden = !places?.tiles;
  byId("together-box").hidden = !mapped || areas || data.cells.length < 12;
  // What a flow owes to the model and what to the counts: prior against posterior spread.
  const told = Math.round(100 * (data.told ?? 0));
  if (data.told !== null) byId("told").textContent = told < 1 ? "Where moves go is the model's word: the counts make it no more certain than the model alone." : `Where moves go is ${100 - told} % the model's word: the counts take away ${told} % of the variance that moves have under the model alone.`;
  if (places?.tiles) byId("tiles-word").textContent = `background from ${places.tiles.host} (asks the network)`;
  if (margins) byId("colour").querySelector('[value="change"]').textContent = COLOURS.change.title;
  byId("colour").value = state.colour; byId("show").value = state.show;
  if (!mapped) byId("arrows-word").textContent = chain ? "Moves" : "Pairs";
  if (!flows.mean.length) byId("controls").hidden = true;
  byId("routes-box").hidden = !mapped || margins;
  if (!chain) {
    for (const id of ["series", "here", "only-box", "routes-box", "speed-box", "play", "strip", "strip-note"]) byId(id).hidden = true;
    byId("map-title").textContent = "Counts, variable by variable";
  }
  if (window.innerWidth > 700) byId("options").open = true;
  for (const [known, value] of [[areas, "mean"], [data.check, "residual"], [trust.ranges, "sd"]]) if (!known) byId("colour").querySelector(`[value="${value}"]`).remove();
  checkChart();
  curves("trace-chart", "trace-box", data.trace, ["residual", "log_evidence"], ["residual"], data.tolerance);
  curves("ascent-chart", "ascent-box", data.ascent, ["objective", "evidence", "error", "residual"].filter((name) => name !== "evidence" || !data.ascent?.objective), ["error", "residual"], null);
}

function start() {
  const last = data.times.length - 1;
  arrange();
  listen("time", "input", (target) => { stop(); return { time: Number(target.value) }; });
  listen("arrows", "change", (target) => ({ arrows: Number(target.value) }));
  listen("least", "change", (target) => ({ least: Number(target.value) }));
  listen("colour", "change", (target) => ({ colour: target.value }));
  listen("show", "change", (target) => ({ show: target.value }));
  listen("speed", "change", (target) => ({ speed: Number(target.value) }));
  listen("together", "change", (target) => ({ together: target.checked }));
  listen("tiles", "change", (target) => ({ tiles: target.checked }));
  listen("only", "change", (target) => ({ only: target.checked }));
  listen("routes", "change", (target) => ({ routes: target.checked }));
  listen("cell", "change", (target) => ({ cell: Number(target.value) }));
  byId("play").addEventListener("click", play);
  byId("save-png").addEventListener("click", () => savePicture("png"));
  byId("save-svg").addEventListener("click", () => savePicture("svg"));
  byId("save-map").addEventListener("click", saveMap);
  byId("save-series").addEventListener("click", saveSeries);
  byId("strip").addEventListener("click", (event) => { stop(); const box = byId("strip").getBoundingClientRect(); change({ time: Math.max(0, Math.min(last, Math.round((event.clientX - box.left - 9) / (box.width - 18) * last))) }); });
  byId("theme").addEventListener("click", () => {
    const dark = isDark();
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    change({ theme: !dark });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => change({ theme: event.matches }));
  byId("copy")?.addEventListener("click", () => navigator.clipboard?.writeText(byId("command").textContent).then(() => { byId("copy").textContent = "Copied"; }, () => { byId("copy").textContent = "Select it"; }));
  let wide = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== wide) { wide = window.innerWidth; change({ width: wide }); } });

  if (mapped) makeMap();
  onChange(drawAll);
  startMatrix();
  makeTables();
  for (const link of document.querySelectorAll("nav a")) link.hidden = byId(link.hash.slice(1)).hidden;
  // A quarter of the way in, at the fullest cell: something has happened by then.
  const time = Math.floor(last / 4);
  const cell = [...nodeAt[time].entries()].reduce((best, [c, r]) => (best === null || nodes.mean[r] > nodes.mean[best[1]] ? [c, r] : best), null);
  change({ time, cell: cell === null ? 0 : cell[0], theme: null });
  if (!mapped && !margins) byId("map-chart").on("plotly_click", choose);
  document.documentElement.dataset.ready = "yes";
}

start();
