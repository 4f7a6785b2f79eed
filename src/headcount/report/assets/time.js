// The player: a slider under a strip of totals, with ticks at all times there is room for, longer and named where days, months or numbers begin.

// Totals over what was counted: what was counted there (scaled to individuals), what is inferred there; and how many move on.
const totals = data.times.map((_, t) => {
  const rows = [...nodeAt[t].values()].filter((r) => seen[r] !== null);
  return { counted: rows.length ? sum(rows.map((r) => seen[r])) : null, inferred: rows.length ? sum(rows.map((r) => nodes.mean[r] ?? 0)) : null, moved: sum(leaving[t].filter(isMove).map((r) => flows.mean[r])) };
});

function drawStrip() {
  const box = byId("strip"), wide = box.clientWidth || 600, high = 74, inset = 9, last = Math.max(1, data.times.length - 1);
  const x = (t) => inset + (wide - 2 * inset) * t / last, floor = high - 16;
  const known = totals.map((v) => v.counted).concat(totals.map((v) => v.inferred)).filter((v) => v !== null), peak = largest(known), busiest = largest(totals.map((v) => v.moved));
  const y = (v) => floor - 2 - (floor - 8) * v / (1.05 * peak), bar = Math.max(1, Math.min(9, 0.5 * (wide - 2 * inset) / last));
  const parts = [];
  totals.forEach((v, t) => { if (t < last && v.moved > 0) parts.push(drawn("rect", { class: "moved", x: (x(t + 0.5) - bar / 2).toFixed(1), y: (floor - 22 * v.moved / busiest).toFixed(1), width: bar.toFixed(1), height: (22 * v.moved / busiest).toFixed(1) })); });
  const drawnTimes = totals.map((v, t) => [v.inferred, t]).filter(([v]) => v !== null);
  if (drawnTimes.length) parts.push(drawn("path", { class: "total", d: `M${drawnTimes.map(([v, t]) => `${x(t).toFixed(1)},${y(v).toFixed(1)}`).join("L")}` }));
  totals.forEach((v, t) => { if (v.counted !== null) parts.push(drawn("circle", { class: "counted", cx: x(t).toFixed(1), cy: y(v.counted).toFixed(1), r: data.times.length > 120 ? 1.2 : 2.2 })); });
  let free = -100;
  const begins = data.times.map((_, t) => tickName(t).begins);
  const use = dates !== null && begins.filter(Boolean).length >= 3 ? (t) => begins[t] : () => true;
  data.times.forEach((_, t) => {
    if (use(t) || x(1) - x(0) >= 4) parts.push(drawn("line", { class: "tick", x1: x(t), x2: x(t), y1: floor, y2: floor + (use(t) ? 4 : 2) }));
    if (!use(t)) return;
    const text = tickName(t).text, length = 6.5 * text.length, anchor = t === 0 ? "start" : x(t) > wide - 30 ? "end" : "middle";
    const begin = x(t) - length * { start: 0, middle: 0.5, end: 1 }[anchor];
    if (begin < free + 8) return;
    free = begin + length;
    parts.push(drawn("text", { x: x(t).toFixed(1), y: high - 3, "text-anchor": anchor }, text));
  });
  parts.push(drawn("line", { class: "now", id: "now", x1: x(state.time), x2: x(state.time), y1: 2, y2: floor }));
  box.replaceChildren(drawn("svg", { width: wide, height: high, viewBox: `0 0 ${wide} ${high}`, "aria-hidden": "true" }, ...parts));
  byId("strip-note").replaceChildren(...(known.length ? [element("i", { class: "dot" }), "counted", ...(scaled ? [" (scaled)"] : []), element("i", { class: "stroke" }), "inferred there"] : []), ...(chain && busiest > 0.01 ? [element("i", { class: "block" }), "moving"] : []));
}
function markNow(share = 0) {
  const wide = byId("strip").clientWidth || 600, last = Math.max(1, data.times.length - 1), x = 9 + (wide - 18) * (state.time + share) / last;
  byId("now")?.setAttribute("x1", x); byId("now")?.setAttribute("x2", x);
}

// Playing: one step takes about a second at speed 1; in between, what moves is on its way.
const STEP = 1300;
let playing = null;
function stop() {
  if (playing !== null) cancelAnimationFrame(playing.frame);
  playing = null;
  byId("play").textContent = "▶"; byId("play").setAttribute("aria-label", "Play");
  if (mapped && svg !== null) layers.packets.replaceChildren();
}
function play() {
  if (playing !== null) { stop(); change({ time: state.time }); return; }
  byId("play").textContent = "❚❚"; byId("play").setAttribute("aria-label", "Pause");
  if (state.time === data.times.length - 1) change({ time: 0 });
  playing = { from: null, frame: 0 };
  const step = (now) => {
    if (playing === null) return;
    if (playing.from === null) playing.from = now;
    const share = (now - playing.from) * state.speed / STEP;
    if (share >= 1) {
      playing.from = now;
      change({ time: state.time + 1 });
      if (state.time >= data.times.length - 1) { stop(); return; }
    } else if (!calm) { if (mapped) between(share); markNow(share); }
    playing.frame = requestAnimationFrame(step);
  };
  playing.frame = requestAnimationFrame(step);
}
