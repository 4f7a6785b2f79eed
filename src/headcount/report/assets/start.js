// Wire the controls to the state and the state to the pictures.

function drawAll(what) {
  byId("time").value = String(state.time);
  byId("time-label").textContent = timeName(state.time);
  byId("time").setAttribute("aria-valuetext", timeName(state.time));
  if (mapped) drawMap(); else { countBars(); flowBars(); }
  caption();
  if (!chain) return;
  if (byId("cell").value !== String(state.cell)) byId("cell").value = String(state.cell);
  if (what.some((name) => ["cell", "time", "theme"].includes(name))) drawSeries();
  if (!mapped && what.some((name) => ["theme", "width"].includes(name))) heatMap();
  fillAside();
}

function listen(id, event, read) {
  byId(id).addEventListener(event, (happened) => change(read(happened.target)));
}

let playing = null;
function stop() {
  clearInterval(playing); playing = null;
  byId("play").textContent = "▶"; byId("play").setAttribute("aria-label", "Play");
}
function play() {
  if (playing !== null) { stop(); return; }
  byId("play").textContent = "❚❚"; byId("play").setAttribute("aria-label", "Pause");
  if (state.time === data.times.length - 1) change({ time: 0 });
  playing = setInterval(() => {
    if (state.time >= data.times.length - 1) stop(); else change({ time: state.time + 1 });
  }, 900);
}

function choose(event) {
  const point = event.points.find((p) => p.customdata !== undefined);
  if (point) change({ cell: mapped ? point.customdata : nodes.c[point.customdata] });
}

function start() {
  const last = data.times.length - 1;
  byId("time").max = String(last);
  byId("time").setAttribute("aria-label", chain ? "Time" : "Variable");
  if (last === 0) byId("play").disabled = true;
  data.cells.forEach((name, k) => byId("cell").append(element("option", { value: String(k) }, name)));
  byId("cell-hint").textContent = mapped ? "or choose it on the map" : "or choose its bar above";
  byId("colour-box").hidden = !mapped;
  if (!mapped) byId("arrows-word").textContent = chain ? "Moves" : "Pairs";
  if (!flows.mean.length) byId("controls").hidden = true;
  if (!chain) {
    for (const id of ["series", "here", "only-box"]) byId(id).hidden = true;
    document.querySelector(".split").classList.add("alone");
    document.querySelector('nav a[href="#series"]').remove();
    document.querySelector('nav a[href="#map"]').textContent = "Counts";
    byId("map-title").textContent = "Counts, variable by variable";
  }
  curves("trace-chart", "trace-box", data.trace, ["residual", "log_evidence"], ["residual"], data.tolerance);
  curves("ascent-chart", "ascent-box", data.ascent, ["objective", "evidence", "error", "residual"].filter((name) => name !== "evidence" || !data.ascent?.objective), ["error", "residual"], null);

  listen("time", "input", (target) => { stop(); return { time: Number(target.value) }; });
  listen("arrows", "change", (target) => ({ arrows: Number(target.value) }));
  listen("least", "change", (target) => ({ least: Number(target.value) }));
  listen("colour", "change", (target) => ({ colour: target.value }));
  listen("only", "change", (target) => ({ only: target.checked }));
  listen("cell", "change", (target) => ({ cell: Number(target.value) }));
  byId("play").addEventListener("click", play);
  byId("theme").addEventListener("click", () => {
    const dark = document.documentElement.dataset.theme === "dark" || (!document.documentElement.dataset.theme && window.matchMedia("(prefers-color-scheme: dark)").matches);
    document.documentElement.dataset.theme = dark ? "light" : "dark";
    change({ theme: !dark });
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => change({ theme: event.matches }));
  byId("copy")?.addEventListener("click", () => navigator.clipboard?.writeText(byId("command").textContent).then(() => { byId("copy").textContent = "Copied"; }, () => { byId("copy").textContent = "Select it"; }));
  let wide = window.innerWidth;
  window.addEventListener("resize", () => { if (window.innerWidth !== wide) { wide = window.innerWidth; change({ width: wide }); } });

  onChange(drawAll);
  makeTables();
  // A quarter of the way in, at the fullest cell: something has happened by then.
  const time = Math.floor(last / 4);
  const cell = [...nodeAt[time].entries()].reduce((best, [c, r]) => (best === null || nodes.mean[r] > nodes.mean[best[1]] ? [c, r] : best), null);
  change({ time, cell: cell === null ? 0 : cell[0], theme: null });
  byId("map-chart").on("plotly_click", choose);
}

start();
