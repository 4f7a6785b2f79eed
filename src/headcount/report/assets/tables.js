// Tables that sort by any column, filter by label and turn pages; missing numbers come last whichever way they are sorted.

const PAGE = 12;

function compare(a, b, sign) {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  return sign * (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), undefined, { numeric: true }));
}

// columns: [{ title, name (left-aligned text), value(row) to sort by, text(row) to show }]
function sheet(id, title, size, columns, first) {
  let order = Array.from({ length: size }, (_, k) => k), page = 0, by = first.by, sign = first.sign, wanted = "";
  const body = element("tbody"), status = element("span"), back = element("button", { type: "button" }, "← Previous"), next = element("button", { type: "button" }, "Next →");
  const heads = columns.map((column, k) => {
    const button = element("button", { type: "button" }, column.title);
    button.addEventListener("click", () => { sign = by === k ? -sign : column.name ? 1 : -1; by = k; page = 0; arrange(); });
    return element("th", { scope: "col", class: column.name ? "name" : "" }, button);
  });
  const short = size <= PAGE; // nothing to look for, no page to turn
  const search = element("input", { type: "search", placeholder: "Filter by label", "aria-label": `Filter ${title} by label` });
  search.addEventListener("input", () => { wanted = search.value.trim().toLowerCase(); page = 0; arrange(); });
  back.addEventListener("click", () => { page -= 1; show(); });
  next.addEventListener("click", () => { page += 1; show(); });

  function arrange() {
    const names = columns.filter((column) => column.name);
    order = Array.from({ length: size }, (_, k) => k);
    if (wanted) order = order.filter((row) => names.some((column) => `${column.text(row)} ${column.label?.(row) ?? ""}`.toLowerCase().includes(wanted)));
    order.sort((a, b) => compare(columns[by].value(a), columns[by].value(b), sign) || a - b);
    heads.forEach((head, k) => { if (k === by) head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending"); else head.removeAttribute("aria-sort"); });
    show();
  }

  function show() {
    const from = page * PAGE, rows = order.slice(from, from + PAGE);
    body.replaceChildren(...rows.map((row) => element("tr", {}, ...columns.map((column) => element("td", { class: column.name ? "name" : "" }, String(column.text(row)))))));
    status.textContent = order.length ? `${whole(from + 1)} – ${whole(from + rows.length)} of ${whole(order.length)} rows` : "no rows";
    back.disabled = page === 0; next.disabled = from + PAGE >= order.length;
  }

  const keep = element("button", { type: "button", class: "save" }, "CSV");
  // A cell with a name is kept with its label, by which the tables know it, and its name.
  const kept = (row) => columns.flatMap((column) => (column.label ? [column.label(row), column.text(row)] : [column.name ? column.text(row) : column.value(row)]));
  keep.addEventListener("click", () => saveTable(`${id.replace("table-", "")}.csv`, columns.flatMap((column) => (column.label ? [column.title, `${column.title}_name`] : [column.title])), order.map(kept)));
  const table = element("table", { class: "sorted", id }, element("thead", {}, element("tr", {}, ...heads)), body);
  byId("table-list").append(element("div", { class: "sheet" }, element("div", { class: "sheet-head" }, element("h3", {}, title), ...(short ? [] : [search]), keep),
    element("div", { class: "scroller" }, table), ...(short ? [] : [element("div", { class: "pager" }, back, status, next)])));
  arrange();
}

const named = (title, codes, labels) => ({ title, name: true, value: (row) => codes[row], text: (row) => labels[codes[row]], ...(labels === data.cells && data.labels ? { label: (row) => labelOf(codes[row]) } : {}) });
const figure = (title, column) => ({ title, value: (row) => column[row], text: (row) => count(column[row]) });
const summaryColumns = (table) => {
  const ends = [(1 - data.level) / 2, (1 + data.level) / 2].map((q) => `${Number((100 * q).toPrecision(4))} %`);
  if (!trust.ranges) return [figure("mean", table.mean)];
  return [figure("mean", table.mean), figure("median", table.median), figure("sd", table.sd), figure(ends[0], table.lower), figure(ends[1], table.upper),
    { title: "reliable", value: (row) => table.reliable[row], text: (row) => (table.reliable[row] ? "yes" : "no") }];
};

function makeTables() {
  const [first, second] = margins ? ["total", "cell"] : chain ? ["time", "cell"] : ["variable", "state"];
  if (data.weights) {
    const columns = Object.entries(data.weights).map(([name, values]) => (typeof values[0] === "string"
      ? { title: name.replaceAll("_", " "), name: true, value: (row) => values[row], text: (row) => values[row] }
      : { title: name.replaceAll("_", " "), value: (row) => values[row], text: (row) => (values[row] === null ? "–" : String(Number(values[row].toPrecision(4))).replace("-", "−")) }));
    sheet("table-weights", "Learned weights", Object.values(data.weights)[0].length, columns, { by: 0, sign: 1 });
  }
  sheet("table-nodes", "Counts", nodes.mean.length, [named(first, nodes.t, data.times), named(second, nodes.c, data.cells), figure("counted", nodes.observed), ...summaryColumns(nodes)], { by: 0, sign: 1 });
  if (chain && !margins && flows.mean.length && data.flowsInAll === flows.mean.length) {
    const steps = data.times.slice(0, -1).flatMap((_, t) => data.cells.map((_, c) => [t, c, ...throughCell(t, c)]));
    const ends = ([, mean, sd, least]) => (trust.ranges && data.sums ? sumEnds(mean, sd, least) ?? [null, null] : []);
    const columns = ["in", "out", "net"].flatMap((name, k) => [figure(name, steps.map((row) => row[2 + k][1])), ...(data.sums ? ["from", "to"].map((end, e) => figure(`${name} ${end}`, steps.map((row) => ends(row[2 + k])[e] ?? null))) : [])]);
    sheet("table-through", "Moves into and out of cells", steps.length, [named("time", steps.map((row) => row[0]), data.times), named("cell", steps.map((row) => row[1]), data.cells), ...columns], { by: 2, sign: -1 });
  }
  const ends = chain
    ? [...(margins ? [] : [named("time", flows.t, data.times)]), named("origin", flows.o, data.cells), named("dest", flows.d, data.cells)]
    : [named("variable", flows.t, data.times), named("state", flows.o, data.cells), named("other", flows.u, data.times), named("other state", flows.d, data.cells)];
  if (flows.mean.length) sheet("table-flows", chain ? "Flows" : "Pairs", flows.mean.length, [...ends, ...(margins?.before ? [figure("before", flows.o.map((o, r) => margins.before[o][flows.d[r]]))] : []), ...summaryColumns(flows)], { by: ends.length, sign: -1 });
}
