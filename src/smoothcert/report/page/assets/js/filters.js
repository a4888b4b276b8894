// The bar that chooses runs for the whole page: data set, noise level, method.

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
          onclick: () => change(() => flip(chosen, value)),
        },
        text(value),
      ),
    ),
  );
}

function drawFilters() {
  const bar = byId("filters");
  const at = [...bar.querySelectorAll("button, select")].indexOf(document.activeElement);
  const sets = unique(data.runs.map((run) => run.dataset));
  const inSet = data.runs.filter((run) => state.dataset === null || run.dataset === state.dataset);
  const sigmas = unique(inSet.map((run) => run.sigma)).sort((a, b) => a - b);
  const methods = unique(inSet.map((run) => run.methodName));
  const active = state.sigmas.size + state.methods.size + state.hidden.size > 0;
  const parts = [
    sets.length > 1 &&
      picker(
        "Data set",
        [[null, "all"], ...sets.map((name) => [name, data.runs.find((run) => run.dataset === name).set])],
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
  bar.querySelectorAll("button, select")[at]?.focus();
}

panels.push(drawFilters);
