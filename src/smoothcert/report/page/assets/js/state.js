// What the reader chose. Panels read it when they draw; only this file changes it, and then everything redraws.

const data = JSON.parse(byId("data").textContent);
data.runs.forEach((run, id) => {
  run.id = id;
  run.curve = certifiedAccuracy(run.right, run.images);
  run.title = `${run.label}, σ ${sigmaText(run.sigma)}`;
});
const gridRadii = Array.from({ length: data.grid.count }, (_, i) => i * data.grid.step);

const state = { dataset: null, sigmas: new Set(), methods: new Set(), hidden: new Set() };
const panels = [];

/** Runs that the filters leave: an empty set of noise levels or methods leaves all. */
const filteredRuns = () =>
  data.runs.filter(
    (run) =>
      (state.dataset === null || run.dataset === state.dataset) &&
      (!state.sigmas.size || state.sigmas.has(run.sigma)) &&
      (!state.methods.size || state.methods.has(run.methodName)),
  );

/** Whether a run's data set must be told. */
const severalSets = () => unique(filteredRuns().map((run) => run.dataset)).length > 1;

/** What a run's name leaves open. */
const aboutRun = (run) => `σ ${sigmaText(run.sigma)}${severalSets() ? ` · ${run.set}` : ""}`;

/** Runs that are drawn: filtered, and not switched off in the legend. */
const shownRuns = () => filteredRuns().filter((run) => !state.hidden.has(run.id));

function change(edit) {
  edit(state);
  redraw();
}

const redraw = () => panels.forEach((draw) => draw());
const flip = (set, value) => (set.has(value) ? set.delete(value) : set.add(value));
