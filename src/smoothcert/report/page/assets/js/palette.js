// Colors stand for methods, or for runs if there is a single method with several runs at a noise level. Methods without
// a color of their own get colors that no other method on the page has, if enough colors are left. Dashes distinguish
// runs of the same color.

import { data } from "./data.js";
import { css, s, unique } from "./dom.js";
import { filteredRuns, state } from "./state.js";

const COLORS = 8;
export const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [14, 4], [4, 6]];

const slots = new Map(data.runs.map((run) => [run.methodName, data.colors[run.method]]));
const taken = new Set(slots.values());
const free = [7, 0, 1, 2, 3, 4, 5, 6].filter((slot) => !taken.has(slot));
const others = [...slots.keys()].filter((name) => slots.get(name) === undefined);
others.forEach((name, i) => {
  slots.set(name, free[i % free.length]);
});

let known = {};

/** Return the position of each run if colors stand for runs, else null. */
function positions() {
  if (known.dataset === state.dataset && known.sigmas === state.sigmas && known.methods === state.methods)
    return known.places;
  const runs = filteredRuns();
  const names = unique(runs.map((run) => run.methodName));
  const alike = unique(runs.map((run) => run.sigma)).length < runs.length;
  const places = names.length === 1 && alike ? new Map(runs.map((run, i) => [run.id, i])) : null;
  known = { dataset: state.dataset, sigmas: state.sigmas, methods: state.methods, places };
  return places;
}

export function colorSlot(run) {
  const places = positions();
  if (places) return (places.get(run.id) ?? 0) % COLORS;
  return slots.get(run.methodName);
}

export const colorOf = (run) => css(`--run-${colorSlot(run)}`);

/** Return the dashes of a run by its position among the given runs of its color. */
export function dashOf(run, runs) {
  const slot = colorSlot(run);
  return DASHES[Math.max(0, runs.filter((other) => colorSlot(other) === slot).indexOf(run)) % DASHES.length];
}

export const dashed = (dash) => (dash.length ? dash.join(" ") : null);

/** Create a small rectangle in a run's color. */
export const swatch = (run) =>
  s(
    "svg",
    { class: "swatch", viewBox: "0 0 14 10", "aria-hidden": "true" },
    s("rect", { x: 0, y: 1, width: 14, height: 8, rx: 2, fill: `var(--run-${colorSlot(run)})` }),
  );
