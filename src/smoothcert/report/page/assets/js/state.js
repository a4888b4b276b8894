// The page's data and the reader's choices. Changes go through `change`, which redraws all panels.

const data = JSON.parse(byId("data").textContent);
data.runs.forEach((run, id) => {
  run.id = id;
  run.curve = certifiedAccuracy(run.correct, run.images);
  run.title = `${run.label}, σ ${sigmaText(run.sigma)}`;
});
const gridRadii = Array.from({ length: data.grid.count }, (_, i) => i * data.grid.step);

const state = { dataset: null, sigmas: new Set(), methods: new Set(), hidden: new Set() };
const panels = [];

/** Return the runs that pass the filters; an empty set of noise levels or methods lets all pass. */
const filteredRuns = () =>
  data.runs.filter(
    (run) =>
      (state.dataset === null || run.dataset === state.dataset) &&
      (!state.sigmas.size || state.sigmas.has(run.sigma)) &&
      (!state.methods.size || state.methods.has(run.methodName)),
  );

/** Return true if the filtered runs belong to more than one dataset. */
const severalDatasets = () => unique(filteredRuns().map((run) => run.dataset)).length > 1;

/** Return the run's title, with its dataset if there are several. */
const fullTitle = (run) => (severalDatasets() ? `${run.title}, ${run.datasetName}` : run.title);

/** Return the run's noise level, and its dataset if there are several. */
const aboutRun = (run) => `σ ${sigmaText(run.sigma)}${severalDatasets() ? ` · ${run.datasetName}` : ""}`;

/** Return the filtered runs that are not hidden in the legend. */
const shownRuns = () => filteredRuns().filter((run) => !state.hidden.has(run.id));

function change(edit) {
  edit(state);
  redraw();
}

const redraw = () => panels.forEach((draw) => draw());
const toggleMember = (set, value) => (set.has(value) ? set.delete(value) : set.add(value));
