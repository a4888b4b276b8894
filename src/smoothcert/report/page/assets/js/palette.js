// Colours stand for methods and dashes for noise levels; with a single method, colours may stand for runs.
// The style sheet defines the colours of both schemes.

const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [14, 4], [4, 6]];

const ownNames = unique(data.runs.filter((run) => !run.method).map((run) => run.label));
// The methods compared most often get the two strongest colours.
const slots = new Map([
  ["catrs", 0],
  ["gaussian", 1],
  ["smoothadv", 2],
  ["consistency", 3],
  ["smoothmix", 4],
  ["macer", 5],
  ["stability", 6],
]);

// Position of each filtered run if colours stand for runs; null while they stand for methods.
let byRun = null;

/** Colour by run if the page has a single method, or if runs of the filtered method would look alike. */
function chooseColours() {
  const runs = filteredRuns();
  const several = (all) => unique(all.map((run) => run.methodName)).length > 1;
  const alike = unique(runs.map((run) => `${run.dataset} ${run.sigma}`)).length < runs.length;
  const single = runs.length > 1 && !several(runs) && (alike || !several(data.runs));
  byRun = single ? new Map(runs.map((run, i) => [run.id, i])) : null;
}

panels.push(chooseColours); // before all panels that use colours

function colourSlot(run) {
  if (byRun) return (byRun.get(run.id) ?? 0) % COLOURS;
  return run.method ? slots.get(run.method) : (7 + ownNames.indexOf(run.label)) % COLOURS;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = (run) => css(`--run-${colourSlot(run)}`);

/** Return the dashes of a run: by noise level or, if all runs share one, by position among runs of its colour. */
function dashOf(run, runs) {
  if (byRun) return DASHES[Math.floor((byRun.get(run.id) ?? 0) / COLOURS) % DASHES.length];
  const levels = unique(runs.map((other) => other.sigma)).sort((a, b) => a - b);
  const order = levels.length > 1 ? levels.indexOf(run.sigma) : runs.filter(sameColour(run)).indexOf(run);
  return DASHES[Math.max(0, order) % DASHES.length];
}

const sameColour = (run) => (other) => colourSlot(other) === colourSlot(run);

/** Return a colour #rrggbb with an opacity. */
const faded = (colour, opacity) =>
  colour +
  Math.round(255 * opacity)
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

/** Create a short line in a run's colour and dashes. */
const swatch = (run, runs) => stroke(`var(--run-${colourSlot(run)})`, 2.5, dashOf(run, runs));

/** Explain the colours, for plots without a legend. */
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

/** Explain colours and dashes. */
function legendKeys(runs) {
  const sigmas = byRun ? [] : unique(runs.map((run) => run.sigma)).sort((a, b) => a - b);
  const levels = sigmas.length > 1 ? sigmas.map((sigma) => runs.find((run) => run.sigma === sigma)) : [];
  const dashes = levels.map((run) =>
    h("span", {}, stroke("currentColor", 2, dashOf(run, runs)), `σ ${sigmaText(run.sigma)}`),
  );
  return [...colourKeys(runs), ...dashes];
}
