// Colour says the method and dashes the noise level; where all runs are of one method, colour says the run.
// The colours are in the style sheet, one list for each scheme.

const COLOURS = 8;
const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [14, 4], [4, 6]];

const ownNames = unique(data.runs.filter((run) => !run.method).map((run) => run.label));
const oneMethod = data.runs.length > 1 && unique(data.runs.map((run) => run.methodName)).length === 1;
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

function colourSlot(run) {
  if (oneMethod) return run.id % COLOURS;
  return run.method ? slots.get(run.method) : (7 + ownNames.indexOf(run.label)) % COLOURS;
}

const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const colourOf = (run) => css(`--run-${colourSlot(run)}`);

/** Among the runs on view: by noise level, or, where that leaves two alike, by a run's place among those of its colour. */
function dashOf(run, runs) {
  if (oneMethod) return [];
  const look = (other) => `${colourSlot(other)} ${other.sigma}`;
  const alike = runs.length !== unique(runs.map(look)).length;
  const order = alike
    ? runs.filter((other) => colourSlot(other) === colourSlot(run)).map((other) => other.id)
    : unique(runs.map((other) => other.sigma)).sort((a, b) => a - b);
  return DASHES[Math.max(0, order.indexOf(alike ? run.id : run.sigma)) % DASHES.length];
}

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

/** What colours and dashes mean, for plots without a legend of their own. */
function keys(runs) {
  const methods = unique(runs.map(colourSlot)).map((slot) => runs.find((run) => colourSlot(run) === slot));
  const sigmas = oneMethod ? [] : unique(runs.map((run) => run.sigma)).sort((a, b) => a - b);
  const levels = sigmas.map((sigma) => runs.find((run) => run.sigma === sigma));
  return [
    ...methods.map((run) =>
      h("span", {}, stroke(`var(--run-${colourSlot(run)})`, 3), oneMethod ? run.title : run.methodName),
    ),
    ...(levels.length > 1 ? levels : []).map((run) =>
      h("span", {}, stroke("currentColor", 2, dashOf(run, runs)), `σ ${sigmaText(run.sigma)}`),
    ),
  ];
}
