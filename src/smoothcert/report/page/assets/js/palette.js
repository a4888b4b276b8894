// Colour says the method and dashes the noise level; where the filters leave one method, colour may say the run.
// The colours are in the style sheet, one list for each scheme.

const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [14, 4], [4, 6]];

const ownNames = unique(data.runs.filter((run) => !run.method).map((run) => run.label));
// The order gives the two strongest colours to the methods that are compared most.
const slots = new Map([
  ["catrs", 0],
  ["gaussian", 1],
  ["smoothadv", 2],
  ["consistency", 3],
  ["smoothmix", 4],
  ["macer", 5],
  ["stability", 6],
]);

// By run: each run's place among those that the filters leave; null while colour says the method.
let byRun = null;

/** Colour runs one by one where the page has one method alone, or where runs of one would look alike. */
function chooseColours() {
  const runs = filteredRuns();
  const several = (all) => unique(all.map((run) => run.methodName)).length > 1;
  const alike = unique(runs.map((run) => `${run.dataset} ${run.sigma}`)).length < runs.length;
  const single = runs.length > 1 && !several(runs) && (alike || !several(data.runs));
  byRun = single ? new Map(runs.map((run, i) => [run.id, i])) : null;
}

panels.push(chooseColours); // before everything that is coloured

function colourSlot(run) {
  if (byRun) return (byRun.get(run.id) ?? 0) % COLOURS;
  return run.method ? slots.get(run.method) : (7 + ownNames.indexOf(run.label)) % COLOURS;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = (run) => css(`--run-${colourSlot(run)}`);

/** Among the runs on view: by noise level, or, where they share one, by a run's place among those of its colour. */
function dashOf(run, runs) {
  if (byRun) return DASHES[Math.floor((byRun.get(run.id) ?? 0) / COLOURS) % DASHES.length];
  const levels = unique(runs.map((other) => other.sigma)).sort((a, b) => a - b);
  const order = levels.length > 1 ? levels.indexOf(run.sigma) : runs.filter(sameColour(run)).indexOf(run);
  return DASHES[Math.max(0, order) % DASHES.length];
}

const sameColour = (run) => (other) => colourSlot(other) === colourSlot(run);

/** A colour of the style sheet, #rrggbb, let through in part. */
const faded = (colour, share) =>
  colour +
  Math.round(255 * share)
    .toString(16)
    .padStart(2, "0");

const stroke = (colour, width, dash = []) =>
  s(
    "svg",
    { class: "swatch", viewBox: "0 0 26 10", "aria-hidden": "true" },
    s("line", {
      x1: 0,
      x2: 26,
      y1: 5,
      y2: 5,
      stroke: colour,
      "stroke-width": width,
      "stroke-dasharray": dash.join(" "),
    }),
  );

/** A short line in a run's colour and dashes, for legends. */
const swatch = (run, runs) => stroke(`var(--run-${colourSlot(run)})`, 2.5, dashOf(run, runs));

/** What colours mean, for plots without a legend of their own. */
function colourKeys(runs) {
  const shown = byRun ? runs : unique(runs.map(colourSlot)).map((slot) => runs.find((run) => colourSlot(run) === slot));
  return shown.map((run) =>
    h(
      "span",
      {},
      byRun ? swatch(run, runs) : stroke(`var(--run-${colourSlot(run)})`, 3),
      byRun ? run.title : run.methodName,
    ),
  );
}

/** What colours and dashes mean. */
function keys(runs) {
  const sigmas = byRun ? [] : unique(runs.map((run) => run.sigma)).sort((a, b) => a - b);
  const levels = sigmas.length > 1 ? sigmas.map((sigma) => runs.find((run) => run.sigma === sigma)) : [];
  const dashes = levels.map((run) =>
    h("span", {}, stroke("currentColor", 2, dashOf(run, runs)), `σ ${sigmaText(run.sigma)}`),
  );
  return [...colourKeys(runs), ...dashes];
}
