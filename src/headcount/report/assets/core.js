// What all parts share: the data, the state of the page, numbers and labels as people read them, one way to draw a chart.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const chain = data.kind === "chain";
const mapped = data.places !== null;
const percent = `${Number((100 * data.level).toPrecision(6))} %`;
const state = { time: 0, cell: 0, arrows: 30, least: 0, colour: "mean", only: false };
const listeners = [];
const onChange = (redraw) => listeners.push(redraw);
const change = (what) => { Object.assign(state, what); listeners.forEach((redraw) => redraw(Object.keys(what))); };

// Row of the table of counts for (time, cell), and rows of flows that leave a time, largest first.
const nodeAt = data.times.map(() => new Map());
data.nodes.t.forEach((t, row) => nodeAt[t].set(data.nodes.c[row], row));
const leaving = data.times.map(() => []);
data.flows.t.forEach((t, row) => leaving[t].push(row));
leaving.forEach((rows) => rows.sort((a, b) => (data.flows.mean[b] ?? -1) - (data.flows.mean[a] ?? -1)));

const whole = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return (value < 0 ? "−" : "") + whole(Math.abs(value));
  const size = Math.abs(value);
  if (size < 0.01) return value > 0 ? "< 0.01" : "> −0.01";
  return (value < 0 ? "−" : "") + (size < 100 ? size.toFixed(size < 10 ? 2 : 1) : whole(Math.round(size)));
}

const spread = (table, row) => table.lower[row] === null ? "" : `median ${count(table.median[row])}, `;
const range = (table, row) => table.lower[row] === null ? "no interval" : `${count(table.lower[row])} – ${count(table.upper[row])}`;

// Plotly reads a little HTML in texts; a label must never be read so.
const plain = (label) => String(label).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const short = (label, most = 26) => plain(label.length > most ? `${label.slice(0, most - 1)}…` : label);
const timeName = (t) => `${chain ? "time" : "variable"} ${data.times[t]}`;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string") made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// How sure a flow is: maybe none (the interval reaches below ½), firm (its lower end is at least half the mean), open.
const CERTAINTY = [["firm", "accent"], ["open", "sky"], ["maybe none", "vague"]];
function certainty(row) {
  const low = data.flows.lower[row];
  if (low === null) return "open";
  return low < 0.5 ? "maybe none" : low >= data.flows.mean[row] / 2 ? "firm" : "open";
}

function axis(extra = {}) {
  return {
    gridcolor: css("grid"), zeroline: false, linecolor: css("line"), tickcolor: css("line"), automargin: true,
    title: { standoff: 8 }, ...extra,
  };
}

const fine = window.matchMedia("(pointer: fine)").matches;
function draw(id, traces, layout) {
  const target = byId(id);
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, hovermode: "closest", dragmode: fine ? "zoom" : false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: css("ink") },
    hoverlabel: { align: "left", bgcolor: css("card"), bordercolor: css("soft"), font: { color: css("ink"), size: 13 } },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: css("vague"), activecolor: css("accent") },
    margin: { l: 12, r: 12, t: 12, b: 12 }, height: 380,
  };
  // Only what stays on this machine: a picture to keep, and zooming where there is a mouse for it.
  const config = { displaylogo: false, responsive: true, displayModeBar: fine ? "hover" : false, modeBarButtons: [["toImage", "zoom2d", "pan2d", "resetScale2d"]] };
  target.style.height = `${layout.height}px`;
  return Plotly.react(target, traces, { ...base, ...layout }, config);
}

// Times on an axis: where they lie if they are numbers or dates, evenly spaced under their names otherwise.
function timeAxis(extra = {}) {
  const title = { text: chain ? "time" : "variable", standoff: 8 };
  if (data.timeKind === "date") return axis({ type: "date", title, ...extra });
  if (data.timeKind === "number") return axis({ type: "linear", title, ...(data.timeValues.every(Number.isInteger) && data.times.length < 12 ? { dtick: 1 } : {}), ...extra });
  const step = Math.max(1, Math.ceil(data.times.length / 12));
  const at = data.timeValues.filter((_, k) => k % step === 0);
  return axis({ type: "linear", title, tickvals: at, ticktext: at.map((k) => short(data.times[k], 14)), ...extra });
}
