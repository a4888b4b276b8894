// The reader's choices. They are kept in the page's address; a change redraws the panels that depend on the choice.

import { data, datasets } from "./data.js";
import { byId } from "./dom.js";

const runsOf = (dataset) => data.runs.filter((run) => run.dataset === dataset).length;
/** The dataset that is shown first: the one with the most runs. */
const mainDataset = datasets.reduce((most, name) => (runsOf(name) > runsOf(most) ? name : most), datasets[0]);
const radiusIndex = Math.max(
  data.radii.findIndex((radius) => radius > 0),
  data.radii.findIndex((radius) => radius >= 0.5),
);

const defaults = {
  dataset: mainDataset,
  sigmas: new Set(),
  methods: new Set(),
  hidden: new Set(),
  curves: "sigma",
  bands: true,
  curvePaper: false,
  sort: null,
  descending: true,
  paper: "hidden",
  shares: "votes",
  outcome: "correct",
  first: null,
  second: null,
  radius: radiusIndex,
  pointPaper: false,
  heat: 0,
  heatGap: false,
  quantity: null,
  run: null,
  image: null,
};

export const state = { ...defaults };
/** The choices that decide which runs are shown. */
export const RUNS = ["dataset", "sigmas", "methods", "hidden"];

const panels = [];
let waiting = new Set();

/** Register a panel: `draw` fills the element `id` and is called again when one of the choices `keys` changes. */
export const panel = (id, keys, draw) => panels.push({ id, keys, draw });

const visible = ({ id }) => {
  const box = byId(id).closest("section, .filters")?.getBoundingClientRect();
  return !box || (box.top < innerHeight + 200 && box.bottom > -200);
};

/** Draw visible panels immediately and the others one at a time, so that the page responds quickly to a click. */
function draw(chosen) {
  chosen.forEach((one) => {
    waiting.delete(one);
    if (visible(one)) one.draw();
    else waiting.add(one);
  });
  document.documentElement.toggleAttribute("data-busy", waiting.size > 0);
  if (waiting.size) setTimeout(drawNext);
}

function drawNext() {
  const [next] = waiting;
  if (!next) return;
  waiting.delete(next);
  next.draw();
  document.documentElement.toggleAttribute("data-busy", waiting.size > 0);
  if (waiting.size) setTimeout(drawNext);
}

export const drawAll = () => draw(panels);
export function drawWaiting() {
  for (const one of waiting) one.draw();
  waiting = new Set();
}

/** Change choices, write them to the address, and redraw the panels that depend on them. */
export function change(edits) {
  Object.assign(state, edits);
  history.replaceState(null, "", toAddress() || location.pathname + location.search);
  const keys = Object.keys(edits);
  draw(panels.filter((one) => one.keys.some((key) => keys.includes(key))));
}

/** Return a callback that changes one choice. */
export const setter = (key) => (value) => change({ [key]: value });

/** Return a set with one member added or removed. */
export function toggled(set, value) {
  const result = new Set(set);
  if (!result.delete(value)) result.add(value);
  return result;
}

const toText = (value) => (value instanceof Set ? [...value].map(encodeURIComponent).join(",") : String(value));

function toAddress() {
  const differing = Object.keys(defaults).filter((key) => toText(state[key]) !== toText(defaults[key]));
  const parts = differing.map((key) => `${key}=${encodeURIComponent(toText(state[key]))}`);
  return parts.length ? `#${parts.join("&")}` : "";
}

const CHOICES = {
  curves: ["sigma", "envelope"],
  paper: ["hidden", "values", "difference"],
  shares: ["votes", "radius"],
  outcome: ["correct", "wrong", "all"],
};
const NUMBERS = ["first", "second", "radius", "heat", "run", "image"];

/** Decode a part of the address; return it unchanged if it is malformed, for example cut off. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Return a choice as read from the address, or its default if it is invalid. */
function fromText(key, text) {
  const initial = defaults[key];
  if (initial instanceof Set) {
    const parts = text.split(",").filter(Boolean).map(decoded);
    return new Set(key === "methods" ? parts : parts.map(Number));
  }
  if (typeof initial === "boolean") return text === "true";
  if (NUMBERS.includes(key)) return Number.isInteger(Number(text)) ? Number(text) : initial;
  if (key === "dataset") return datasets.find((name) => String(name) === text) ?? initial;
  return !CHOICES[key] || CHOICES[key].includes(text) ? text : initial;
}

/** Apply the choices in the address; ignore anchors and unknown names. */
export function readAddress() {
  Object.assign(state, defaults);
  for (const part of location.hash.slice(1).split("&")) {
    const [key, text] = part.split("=");
    if (Object.hasOwn(defaults, key) && text !== undefined) state[key] = fromText(key, decoded(text));
  }
  if (!data.radii[state.radius]) state.radius = radiusIndex;
  if (!data.heatmaps[state.heat]) state.heat = 0;
}

/** Return the runs of the dataset that pass the filters; an empty set of noise levels or methods lets all pass. */
export const filteredRuns = () =>
  data.runs.filter(
    (run) =>
      run.dataset === state.dataset &&
      (!state.sigmas.size || state.sigmas.has(run.sigma)) &&
      (!state.methods.size || state.methods.has(run.methodName)),
  );

/** Return the filtered runs that are not hidden in the table. */
export const shownRuns = () => filteredRuns().filter((run) => !state.hidden.has(run.id));

/** Return the noise levels of runs, in increasing order. */
export const sigmasOf = (runs) => [...new Set(runs.map((run) => run.sigma))].sort((a, b) => a - b);
