// The main table: sortable, best and second best of the rows shown are marked, the paper's numbers on demand.

const tableView = { sort: null, descending: true, paper: "hidden" };

/** Return a run's row with its printed values: ACR, then certified accuracy by radius. */
const rowOf = (run) => ({
  run,
  group: `${run.dataset}\n${run.sigma}`,
  rivals: run.rivals,
  images: data.images.which[run.id],
  values: run.printed,
});

const paperAt = (run, radius) => run.paper?.accuracy.find(([at]) => Math.abs(at - radius) < 1e-6)?.[1];

/** Return the paper's ACR and accuracies for a run; missing ones are undefined. */
const paperValues = (run) => [run.paper?.acr, ...data.radii.map((radius) => paperAt(run, radius))];

const sorters = {
  dataset: (run) => run.dataset ?? "",
  sigma: (run) => run.sigma ?? 0,
  name: (run) => run.label.toLowerCase(),
  acr: (run) => run.acr[0],
  abstained: (run) => run.abstained / run.images,
  images: (run) => run.images,
  ...Object.fromEntries(data.radii.map((_, i) => [`r${i}`, (run) => run.table[i] / run.images])),
};

function tableRuns() {
  const runs = shownRuns();
  if (!tableView.sort) return runs;
  const key = sorters[tableView.sort],
    sign = tableView.descending ? -1 : 1;
  return [...runs].sort((a, b) => (key(a) < key(b) ? -sign : key(a) > key(b) ? sign : a.id - b.id));
}

/** Sort on the first click (text ascending, numbers descending), reverse on the second, restore on the third. */
function sortBy(column) {
  const descending = !["name", "sigma", "dataset"].includes(column);
  if (tableView.sort !== column) Object.assign(tableView, { sort: column, descending });
  else if (tableView.descending === descending) tableView.descending = !descending;
  else tableView.sort = null;
  drawTable();
  byId("table").querySelector(`[data-column="${column}"] button`).focus();
}

function heading(column, text, kind = "") {
  const on = tableView.sort === column;
  return h(
    "th",
    {
      scope: "col",
      class: kind,
      "data-column": column,
      "aria-sort": on ? (tableView.descending ? "descending" : "ascending") : null,
    },
    h(
      "button",
      { type: "button", onclick: () => sortBy(column) },
      text,
      h("span", { class: "arrow", "aria-hidden": "true" }, on ? (tableView.descending ? "↓" : "↑") : ""),
    ),
  );
}

function paperRow(run) {
  if (tableView.paper === "hidden" || !run.paper) return null;
  const values = run.printed.map(Number),
    printed = paperValues(run),
    differences = tableView.paper === "difference";
  const cell = (i, digits) =>
    printed[i] === undefined ? "" : differences ? signed(values[i] - printed[i], digits) : printed[i].toFixed(digits);
  return h(
    "tr",
    { class: "paper" },
    severalDatasets() && h("td"),
    h("td"),
    h("th", { scope: "row" }, differences ? "difference from paper" : "paper"),
    h("td", {}, cell(0, 3)),
    h("td"),
    ...data.radii.map((_, i) => h("td", {}, cell(i + 1, 1))),
    h("td"),
    h("td"),
  );
}

function drawTable() {
  const rows = tableRuns().map(rowOf),
    marks = rankMarks(rows);
  let last = null;
  const body = rows.flatMap(({ run, group, values }, k) => {
    const first = tableView.sort === null && last !== null && last !== group;
    last = group;
    const row = h(
      "tr",
      { class: first ? "first" : null, "data-run": run.id },
      severalDatasets() && h("td", { class: "text" }, run.datasetName),
      h("td", {}, sigmaText(run.sigma)),
      h(
        "th",
        { scope: "row" },
        swatch(
          run,
          rows.map((other) => other.run),
        ),
        run.label,
      ),
      ...values.flatMap((value, i) => {
        const cell = h(
          "td",
          { class: marks[k][i] || null },
          marks[k][i] === "best" ? h("b", {}, value) : marks[k][i] === "second" ? h("u", {}, value) : value,
        );
        return i === 0
          ? [cell, h("td", { class: "quiet" }, `${run.acr[2].toFixed(3)}–${run.acr[3].toFixed(3)}`)]
          : [cell];
      }),
      h("td", { class: "quiet" }, ((100 * run.abstained) / run.images).toFixed(1)),
      h("td", { class: "quiet" }, run.images.toLocaleString("en")),
    );
    return [row, paperRow(run)].filter(Boolean);
  });
  const head = h(
    "tr",
    {},
    severalDatasets() && heading("dataset", "dataset", "text"),
    heading("sigma", "σ"),
    heading("name", "run", "text run-name"),
    heading("acr", "ACR"),
    h("th", { scope: "col" }, "95 %"),
    ...data.radii.map((radius, i) => heading(`r${i}`, radius.toFixed(2))),
    heading("abstained", "abst. %"),
    heading("images", "images"),
  );
  byId("table").replaceChildren(
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, "Average certified radius and certified accuracy in percent by radius"),
      h("thead", {}, head),
      h("tbody", {}, ...body),
    ),
  );
  const noted = rows.filter(({ run }) => run.note);
  byId("notes").replaceChildren(
    ...noted.map(({ run }) => h("li", {}, h("b", {}, `${run.label}, ${aboutRun(run)}: `), run.note)),
  );
}

panels.push(drawTable);
