// Filters for the whole page: dataset, noise level, method.

function chips(label, values, text, chosen) {
  if (values.length < 2) return null;
  return h(
    "div",
    { class: "chips", role: "group", "aria-label": label },
    h("span", { class: "quiet" }, label),
    ...values.map((value) =>
      h(
        "button",
        {
          type: "button",
          class: "chip",
          "aria-pressed": String(chosen.has(value)),
          onclick: () => change(() => toggleMember(chosen, value)),
        },
        text(value),
      ),
    ),
  );
}

function drawFilters() {
  const bar = byId("filters");
  const focused = [...bar.querySelectorAll("button, select")].indexOf(document.activeElement);
  const datasets = unique(data.runs.map((run) => run.dataset));
  const inDataset = data.runs.filter((run) => state.dataset === null || run.dataset === state.dataset);
  const sigmas = unique(inDataset.map((run) => run.sigma)).sort((a, b) => a - b);
  const methods = unique(inDataset.map((run) => run.methodName));
  const active = state.sigmas.size + state.methods.size + state.hidden.size > 0;
  const parts = [
    datasets.length > 1 &&
      picker(
        "Dataset",
        [[null, "all"], ...datasets.map((name) => [name, data.runs.find((run) => run.dataset === name).datasetName])],
        state.dataset,
        (name) =>
          change((now) => {
            now.dataset = name;
            now.sigmas.clear();
            now.methods.clear();
          }),
      ),
    chips("σ", sigmas, sigmaText, state.sigmas),
    methods.length <= 14 && chips("Method", methods, String, state.methods),
    active &&
      h(
        "button",
        {
          type: "button",
          class: "link",
          onclick: () => change((now) => [now.sigmas, now.methods, now.hidden].forEach((set) => set.clear())),
        },
        "Show all",
      ),
  ].filter(Boolean);
  bar.hidden = !parts.length;
  bar.replaceChildren(...parts);
  bar.querySelectorAll("button, select")[focused]?.focus();
}

panels.push(drawFilters);
