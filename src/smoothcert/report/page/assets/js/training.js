// Training curves, and the cost of training and certification.

const trained = data.runs.filter((run) => run.training);
const quantities = unique(trained.flatMap((run) => Object.keys(run.training.curves)));
const trainingView = { quantity: quantities.includes("loss") ? "loss" : quantities[0] };
const quantityText = (name) =>
  ({ test_accuracy: "accuracy under noise, %", learning_rate: "learning rate" })[name] ?? name.replaceAll("_", " ");

function drawTraining() {
  const runs = shownRuns().filter((run) => run.training?.curves[trainingView.quantity]);
  byId("training-section").hidden = !trained.length;
  if (!trained.length) return;
  const epochs = unique(runs.flatMap((run) => run.training.epochs)).sort((a, b) => a - b);
  if (epochs.length < 1) {
    removePlot(byId("training-plot"), h("p", { class: "note" }, "None of the runs shown recorded this quantity."));
    return;
  }
  const lines = runs.map((run) => {
    const byEpoch = new Map(
      run.training.epochs.map((epoch, i) => [epoch, run.training.curves[trainingView.quantity][i]]),
    );
    const values = epochs.map((epoch) => byEpoch.get(epoch) ?? null);
    return {
      title: run.title,
      values,
      colour: colourOf(run),
      dash: dashOf(run, runs),
      width: 1.8,
      read: (i) => (values[i] === null ? "" : values[i].toPrecision(4)),
    };
  });
  byId("training-keys").replaceChildren(...legendKeys(runs));
  const known = lines.flatMap((line) => line.values).filter((value) => value !== null);
  const low = Math.min(...known),
    high = Math.max(...known),
    margin = 0.06 * (high - low) || 0.5;
  linePlot(byId("training-plot"), {
    x: epochs.length > 1 ? epochs : [epochs[0], epochs[0] + 1],
    lines: epochs.length > 1 ? lines : lines.map((line) => ({ ...line, values: [...line.values, null], marks: true })),
    xLabel: "epoch",
    yLabel: quantityText(trainingView.quantity),
    yRange: [low - margin, high + margin],
    alt: `${quantityText(trainingView.quantity)} by epoch in ${runs.length} training runs, from ${low.toPrecision(3)} to ${high.toPrecision(3)}.`,
    xText: (i) => `epoch ${epochs[i]}`,
  });
}

function costCell(seconds, largest, device) {
  if (seconds === null) return h("td", { class: "text quiet" }, "–");
  return h(
    "td",
    { class: "text cost" },
    h("span", {
      class: "cost-bar",
      style: { width: `${Math.max(1, (100 * seconds) / largest)}px` },
      "aria-hidden": "true",
    }),
    duration(seconds),
    device && h("span", { class: "quiet" }, ` ${device}`),
  );
}

function drawCost() {
  const runs = shownRuns().filter((run) => run.cost.training || run.cost.certification);
  byId("cost-section").hidden = !data.runs.some((run) => run.cost.training || run.cost.certification);
  const most = (key) => Math.max(1e-9, ...runs.map((run) => run.cost[key] ?? 0)),
    training = most("training"),
    certification = most("certification");
  const anyTraining = runs.some((run) => run.cost.training),
    paper = runs.some((run) => run.cost.paperHours);
  const rows = runs.map((run) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, run.label, h("span", { class: "quiet" }, ` ${aboutRun(run)}`)),
      anyTraining && costCell(run.cost.training, training, run.cost.trainedOn),
      costCell(run.cost.certification, certification, run.cost.certifiedOn),
      h("td", {}, run.cost.certification === null ? "–" : `${(run.cost.certification / run.images).toPrecision(3)} s`),
      paper && h("td", {}, run.cost.paperHours ? `${run.cost.paperHours} h` : ""),
    ),
  );
  byId("cost").replaceChildren(
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, "Training and certification time by run"),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col", class: "text" }, "run"),
          anyTraining && h("th", { scope: "col", class: "text" }, "training"),
          h("th", { scope: "col", class: "text" }, "certification"),
          h("th", { scope: "col" }, "per image"),
          paper && h("th", { scope: "col" }, "training (paper)"),
        ),
      ),
      h("tbody", {}, ...rows),
    ),
  );
}

if (quantities.length > 1)
  byId("training-controls").append(
    picker(
      "Quantity",
      quantities.map((name) => [name, quantityText(name)]),
      trainingView.quantity,
      setter(trainingView, "quantity", drawTraining),
    ),
  );
panels.push(drawTraining, drawCost);
