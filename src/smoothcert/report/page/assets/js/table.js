// The main table: sortable, with marks for the best and second best shown rows, and a checkbox to hide each run.

import { copyButtons } from "./copy.js";
import { data, paperAt, withPaper } from "./data.js";
import { byId, h, segmented, setControls, unbroken } from "./dom.js";
import { count, fixed, points, sigmaText, signed } from "./format.js";
import { swatch } from "./palette.js";
import { change, filteredRuns, panel, RUNS, setter, state, toggled } from "./state.js";
import { rankMarks } from "./statistics.js";

const sorters = {
  sigma: (run) => run.sigma ?? 0,
  name: (run) => run.label.toLowerCase(),
  acr: (run) => run.acr[0],
  abstained: (run) => run.abstained / run.images,
  images: (run) => run.images,
  ...Object.fromEntries(data.radii.map((_, i) => [`r${i}`, (run) => run.table[i] / run.images])),
};

/** Return the rows with their marks, in the chosen order; hidden runs are not ranked. */
export function tableRows() {
  const order = sorters[state.sort];
  const sign = state.descending ? -1 : 1;
  const runs = filteredRuns();
  if (order) runs.sort((a, b) => (order(a) < order(b) ? -sign : order(a) > order(b) ? sign : a.id - b.id));
  const rows = runs.map((run) => ({ run, hidden: state.hidden.has(run.id), rivals: run.rivals, values: run.printed }));
  const ranked = rows.filter((row) => !row.hidden);
  const marks = rankMarks(ranked);
  return rows.map((row) => ({ ...row, marks: row.hidden ? row.values.map(() => "") : marks[ranked.indexOf(row)] }));
}

/** Sort on the first click (text ascending, numbers descending), reverse on the second, restore on the third. */
function sortBy(column) {
  const descending = !["name", "sigma"].includes(column);
  if (state.sort !== column) change({ sort: column, descending });
  else if (state.descending === descending) change({ descending: !descending });
  else change({ sort: null, descending: true });
  byId("table").querySelector(`[data-column="${column}"] button`).focus();
}

function heading(column, text, kind = "") {
  const on = state.sort === column;
  const order = state.descending ? "descending" : "ascending";
  const arrow = h("span", { class: "arrow", "aria-hidden": "true" }, on ? (state.descending ? "↓" : "↑") : "");
  return h(
    "th",
    { scope: "col", class: kind, "data-column": column, "aria-sort": on ? order : null },
    h("button", { type: "button", onclick: () => sortBy(column) }, text, arrow),
  );
}

function paperRow(run) {
  if (state.paper === "hidden" || !run.paper) return null;
  const printed = [run.paper.acr, ...data.radii.map((radius) => paperAt(run, radius))];
  const gaps = state.paper === "difference";
  const cell = (i, digits) =>
    printed[i] === undefined
      ? ""
      : gaps
        ? signed(Number(run.printed[i]) - printed[i], digits)
        : fixed(printed[i], digits);
  const title = h("th", { scope: "row" }, gaps ? "difference from paper" : "paper");
  const cells = data.radii.map((_, i) => h("td", {}, cell(i + 1, 1)));
  return h("tr", { class: "paper" }, h("td"), title, h("td", {}, cell(0, 3)), h("td"), ...cells, h("td"), h("td"));
}

function valueCell(value, mark) {
  const shown = mark === "best" ? h("b", {}, value) : mark === "second" ? h("u", {}, value) : value;
  return h("td", { class: mark || null }, shown);
}

function runRow({ run, hidden, values, marks }, first) {
  const box = h("input", {
    type: "checkbox",
    checked: !hidden,
    "aria-label": `Show ${run.title}`,
    onchange: () => change({ hidden: toggled(state.hidden, run.id) }),
  });
  const name = h("span", { class: run.label.length <= 26 ? "short" : null }, ...unbroken(run.label));
  const [acr, ...accuracies] = values.map((value, i) => valueCell(value, marks[i]));
  return h(
    "tr",
    { class: [first && "first", hidden && "hidden-run"].filter(Boolean).join(" ") || null, "data-run": run.id },
    h("td", {}, sigmaText(run.sigma)),
    h("th", { scope: "row" }, h("label", {}, box, swatch(run), name)),
    acr,
    h("td", { class: "quiet" }, run.interval.join("–")),
    ...accuracies,
    h("td", { class: "quiet" }, points(run.abstained / run.images)),
    h("td", { class: "quiet" }, count(run.images)),
  );
}

function drawTable() {
  drawControls();
  const rows = tableRows();
  const body = rows.flatMap((row, i) => {
    const before = rows[i - 1]?.run;
    const first = !state.sort && before && (before.sigma !== row.run.sigma || before.images !== row.run.images);
    return [runRow(row, first), row.hidden ? null : paperRow(row.run)].filter(Boolean);
  });
  const head = h(
    "tr",
    {},
    heading("sigma", "σ"),
    heading("name", "run", "text run-name"),
    heading("acr", "ACR"),
    h("th", { scope: "col" }, "95 %"),
    ...data.radii.map((radius, i) => heading(`r${i}`, radius.toFixed(2))),
    heading("abstained", "abst. %"),
    heading("images", "images"),
  );
  const caption = h(
    "caption",
    { class: "unseen" },
    "Average certified radius and certified accuracy in percent by radius",
  );
  byId("table").replaceChildren(h("table", {}, caption, h("thead", {}, head), h("tbody", {}, ...body)));
  const noted = rows.filter(({ run, hidden }) => run.note && !hidden);
  byId("notes").replaceChildren(...noted.map(({ run }) => h("li", {}, h("b", {}, `${run.title}: `), run.note)));
}

function drawControls() {
  const choices = [
    ["hidden", "Results only"],
    ["values", "With paper"],
    ["difference", "Difference from paper"],
  ];
  setControls(
    byId("table-controls"),
    withPaper && segmented("Paper's numbers", choices, state.paper, setter("paper")),
    copyButtons(() => tableRows().filter((row) => !row.hidden)),
  );
}

panel("table", [...RUNS, "sort", "descending", "paper"], drawTable);
