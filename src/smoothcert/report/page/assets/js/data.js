// The data that Python has embedded in the page, with derived values.

import { byId } from "./dom.js";
import { sigmaText } from "./format.js";
import { certifiedAccuracy } from "./statistics.js";

export const data = JSON.parse(byId("data").textContent);
data.runs.forEach((run, id) => {
  run.id = id;
  run.curve = certifiedAccuracy(run.correct, run.images);
  run.title = `${run.label}, σ ${sigmaText(run.sigma)}`;
});

export const gridRadii = Array.from({ length: data.grid.count }, (_, i) => i * data.grid.step);
export const datasets = [...new Set(data.runs.map((run) => run.dataset))];
export const withPaper = data.runs.some((run) => run.paper);

/** Return the paper's certified accuracy of a run at a radius, in percent; undefined if the paper states none. */
export const paperAt = (run, radius) => run.paper?.accuracy.find(([at]) => Math.abs(at - radius) < 1e-6)?.[1];
