// Filters for the whole page: one dataset, noise levels, methods. The buttons of methods also show their colors.

import { data, datasets } from "./data.js";
import { byId, h, segmented, setControls, unique } from "./dom.js";
import { sigmaText } from "./format.js";
import { swatch } from "./palette.js";
import { change, panel, RUNS, sigmasOf, state, toggled } from "./state.js";

function chips(label, key, values, content) {
  if (values.length < 2) return null;
  const chip = (value) =>
    h(
      "button",
      {
        type: "button",
        class: state[key].size && !state[key].has(value) ? "chip off" : "chip",
        "aria-pressed": String(state[key].has(value)),
        onclick: () => change({ [key]: toggled(state[key], value) }),
      },
      ...content(value),
    );
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": label },
    h("span", { class: "quiet" }, label),
    ...values.map(chip),
  );
}

const empty = () => ({ sigmas: new Set(), methods: new Set(), hidden: new Set() });

function drawFilters() {
  const here = data.runs.filter((run) => run.dataset === state.dataset);
  const names = datasets.map((name) => [name, data.runs.find((run) => run.dataset === name).datasetName]);
  const methods = unique(here.map((run) => run.methodName));
  const active = state.sigmas.size + state.methods.size + state.hidden.size > 0;
  const runOf = (name) => here.find((run) => run.methodName === name);
  setControls(
    byId("filters"),
    datasets.length > 1 &&
      segmented("Dataset", names, state.dataset, (dataset) =>
        change({ dataset, ...empty(), first: null, second: null, run: null, image: null }),
      ),
    chips("σ", "sigmas", sigmasOf(here), (sigma) => [sigmaText(sigma)]),
    methods.length <= 14 && chips("Method", "methods", methods, (name) => [swatch(runOf(name)), name]),
    active && h("button", { type: "button", class: "link", onclick: () => change(empty()) }, "Show all"),
  );
  byId("filters").hidden = !byId("filters").children.length;
}

panel("filters", RUNS, drawFilters);
