// What all parts share: the data, the state of the page, numbers and labels as people read them, one way to draw a chart.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const { nodes, flows, places } = data;
const chain = data.kind === "chain";
const margins = data.margins ?? null; // a table of two margins: what is special about its page
const mapped = places !== null;
const areas = mapped && places.shapes !== null;
const percent = `${Number((100 * data.level).toPrecision(6))} %`;
const state = { time: 0, cell: 0, arrows: 30, least: 0, colour: areas ? "mean" : "change", show: areas ? "areas" : "discs", only: false, speed: 1, tiles: false, together: false, routes: false };
const listeners = [];
const onChange = (redraw) => listeners.push(redraw);
const change = (what) => { Object.assign(state, what); listeners.forEach((redraw) => redraw(Object.keys(what))); };

// Row of the table of counts for (time, cell), and rows of flows that leave a time, largest first.
const nodeAt = data.times.map(() => new Map());
nodes.t.forEach((t, row) => nodeAt[t].set(nodes.c[row], row));
const leaving = data.times.map(() => []);
flows.t.forEach((t, row) => leaving[t].push(row));
leaving.forEach((rows) => rows.sort((a, b) => (flows.mean[b] ?? -1) - (flows.mean[a] ?? -1)));
const isMove = (row) => flows.o[row] !== flows.d[row];

// What was counted, on the scale of individuals: divided by how many counts one individual gives.
const seen = nodes.observed.map((count, row) => (count === null || !data.rate ? count : count / (Array.isArray(data.rate) ? data.rate[row] ?? 1 : data.rate)));
const scaled = Array.isArray(data.rate) || (data.rate !== null && data.rate !== 1);
const seenText = (row) => {
  if (nodes.observed[row] === null) return "not counted";
  return `counted ${count(nodes.observed[row])}${scaled ? `, which stands for ${count(seen[row])}` : ""}`;
};

const whole = (value) => String(value).replace(/\B(?=(\d{3})+(?!\d))/g, "\u202f");
function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Number.isInteger(value)) return (value < 0 ? "−" : "") + whole(Math.abs(value));
  const size = Math.abs(value);
  if (size < 0.01) return value > 0 ? "< 0.01" : "> −0.01";
  return (value < 0 ? "−" : "") + (size < 100 ? size.toFixed(size < 10 ? 2 : 1) : whole(Math.round(size)));
}

// Ranges in words. An engine without ranges gets none, and nothing is said about them.
const { trust } = data;
const range = (table, row) => (table.lower[row] === null ? "" : table.sd[row] === 0 ? "exactly" : `${count(table.lower[row])}\u00a0–\u00a0${count(table.upper[row])}`);
const rangeLine = (table, row) => (range(table, row) === "" ? [] : table.sd[row] === 0 ? ["known exactly"] : [`${percent}: ${range(table, row)}`]);
// Why a range cannot be relied on: a reason that holds for the whole table, or that of its row.
function doubtLine(table, row) {
  if (range(table, row) === "" || table.sd[row] === 0) return [];
  const whole = trust[table === flows ? "flows" : "nodes"];
  return whole !== null ? [trust.why[whole]] : table.reliable[row] ? [] : [trust.why[table.mean[row] > data.population / 2 ? "many" : "few"]];
}
const inDoubt = (table, row) => doubtLine(table, row).length > 0;
// The range of a sum of flows, from the sd of its joint draws: mean ± z sd, whole numbers; nothing where there are no draws.
// A whole number of mean m has a variance of f (1 − f) at least, f the fraction of m: that of rare moves which no draw has.
const spread = (mean, sd) => { const f = mean - Math.floor(mean), least = f * (1 - f); return Math.max(sd, least < 1e-6 + 1e-5 * Math.abs(mean) ? 0 : Math.sqrt(least)); };
const sumEnds = (mean, sd, least = 0) => (sd === undefined || sd === null ? null : [Math.max(least, Math.round(mean - data.wide * spread(mean, sd))), Math.round(mean + data.wide * spread(mean, sd))]);
const sumRange = (mean, sd, least = 0) => { const ends = sumEnds(mean, sd, least); return ends === null ? "" : spread(mean, sd) < 1e-9 ? "exactly" : ends[0] < 0 ? `${signed(ends[0])} to ${signed(ends[1])}` : `${count(ends[0])} – ${count(ends[1])}`; };
const withRange = (mean, sd, least = 0) => { const text = sumRange(mean, sd, least); return `${least < 0 ? signed(mean) : count(mean)}${text && ` (${text})`}`; };
const signed = (value) => `${value > 0 ? "+" : ""}${count(value)}`;
const beforeText = (o, d) => (margins?.before ? [`before: ${count(margins.before[o]?.[d] ?? 0)}`] : []);
const sum = (values) => values.reduce((a, b) => a + b, 0);
const largest = (values, least = 1e-9) => values.reduce((a, b) => (b > a ? b : a), least);
function quantile(values, share) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length ? sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] : 1;
}

// Plotly reads a little HTML in texts; a label must never be read so.
const plain = (label) => String(label).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const cut = (label, most = 26) => (label.length > most ? `${label.slice(0, most - 1)}…` : label);
const short = (label, most = 26) => plain(cut(label, most));

// Times as people say them: a date is a date, a number needs the word.
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const dates = data.timeKind === "date" ? data.timeValues.map((text) => ({ year: text.slice(0, 4), month: Number(text.slice(5, 7)) - 1, day: Number(text.slice(8, 10)), hour: text.slice(11, 16) })) : null;
const hours = dates !== null && dates.some((date) => date.hour && date.hour !== "00:00");
// Whether a time was forecast: nothing was counted there.
const ahead = (t) => data.forecastFrom !== null && t > data.forecastFrom;
function timeName(t) {
  return ahead(t) ? `${plainTime(t)} (forecast)` : plainTime(t);
}
function plainTime(t) {
  if (dates !== null) { const { year, month, day, hour } = dates[t]; return `${day} ${MONTHS[month]} ${year}${hours ? `, ${hour}` : ""}`; }
  return data.timeKind === "number" ? `${chain ? "time" : "variable"} ${data.times[t]}` : data.times[t];
}
// Short names for ticks, and whether a tick begins something (a month, a year, a day).
function tickName(t) {
  if (dates === null) return { text: cut(data.times[t], 12), begins: false };
  const { year, month, day, hour } = dates[t], before = t > 0 ? dates[t - 1] : null;
  const begins = before === null || (hours ? before.day !== day : before.month !== month);
  return { text: hours ? (begins ? `${day} ${MONTHS[month]}` : hour) : before !== null && before.year !== year ? `${day} ${MONTHS[month]} ${year}` : `${day} ${MONTHS[month]}`, begins };
}

// A cell as people say it: its name, or its number with the word. Files that are kept have its label, as the tables do.
const labelOf = (c) => (data.labels ?? data.cells)[c];
const cellName = (c) => (/^-?\d+(\.\d+)?$/.test(data.cells[c]) ? `cell ${data.cells[c]}` : data.cells[c]);
const cellTitle = (c) => cellName(c).replace(/^cell (?=-?\d)/, "Cell ");

function put(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name in made && typeof value !== "string" && !(made instanceof SVGElement)) made[name] = value; else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
const element = (tag, attributes = {}, ...children) => put(document.createElement(tag), attributes, children);
const drawn = (tag, attributes = {}, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// How sure a flow is, as `certainty` in Python says it; the classes and their words come from there.
const CLASS_COLOURS = { "": "accent", sure: "accent", "less sure": "sky", "perhaps none": "vague", "in doubt": "card" };
const dashed = (words) => words.replaceAll(" ", "-") || "plain";
function certainty(low, mean, reliable) {
  if (low === null || low === undefined) return "";
  return trust.flows !== null ? "in doubt" : low < 0.5 ? "perhaps none" : reliable && low >= mean / 2 ? "sure" : "less sure";
}
const sureOf = (row) => certainty(flows.lower[row], flows.mean[row], flows.reliable[row]);

function axis(extra = {}) {
  return {
    gridcolor: css("grid"), zeroline: false, linecolor: css("line"), tickcolor: css("line"), automargin: true,
    title: { standoff: 8 }, ...extra,
  };
}

const fine = window.matchMedia("(pointer: fine)").matches;
const narrow = () => window.innerWidth <= 560;
const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
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
  const title = { text: chain ? "" : "variable", standoff: 8 };
  if (data.timeKind === "date") return axis({ type: "date", title, ...extra });
  if (data.timeKind === "number") return axis({ type: "linear", title: { text: chain ? "time" : "variable", standoff: 8 }, ...(data.timeValues.every(Number.isInteger) && data.times.length < 12 ? { dtick: 1 } : {}), ...extra });
  const step = Math.max(1, Math.ceil(data.times.length / 12));
  const at = data.timeValues.filter((_, k) => k % step === 0);
  return axis({ type: "linear", title, tickvals: at, ticktext: at.map((k) => short(data.times[k], 14)), ...extra });
}

// What a person keeps: a file made here, of what is shown.
function save(name, content, type) {
  const link = element("a", { href: URL.createObjectURL(new Blob([content], { type })), download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
const quoted = (value) => { const text = value === null || value === undefined ? "" : String(value); return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text; };
const saveTable = (name, head, rows) => save(name, `${[head, ...rows].map((row) => row.map(quoted).join(",")).join("\n")}\n`, "text/csv");
