// Training curves, a facet per method; and the cost of training and certification.

import { axes, clamped, drawPlot, facets, key, noPlot, path, scale, ticks, tickText } from "./chart.js";
import { data } from "./data.js";
import { byId, css, h, picker, s, setControls, unbroken, unique } from "./dom.js";
import { duration, sigmaText } from "./format.js";
import { colorOf, DASHES, dashed, swatch } from "./palette.js";
import { panel, RUNS, setter, shownRuns, sigmasOf, state } from "./state.js";
import { nearRange } from "./statistics.js";

const EDGE = { left: 46, right: 8, top: 24, bottom: 36 };
const trained = data.runs.filter((run) => run.training);
const quantities = unique(trained.flatMap((run) => Object.keys(run.training.curves)));
const quantity = () => [state.quantity, "test_accuracy", quantities[0]].find((name) => quantities.includes(name));
const quantityText = (name) =>
  ({ test_accuracy: "accuracy under noise, %", learning_rate: "learning rate" })[name] ?? name.replaceAll("_", " ");

const pointsOf = (run) =>
  run.training.curves[quantity()].flatMap((value, i) => (value === null ? [] : [[run.training.epochs[i], value]]));

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)];
}

/** Return the runs that are far from most others of their method and noise level, such as failed ones. */
function farRuns(runs) {
  const middle = (run) => median(pointsOf(run).map(([, value]) => value));
  return runs.filter((run) => {
    const middles = runs.filter((other) => other.method === run.method && other.sigma === run.sigma).map(middle);
    const [low, high] = nearRange(middles, 0.005 * Math.max(...middles.map(Math.abs)));
    return middle(run) < low || middle(run) > high;
  });
}

function paint(runs, far, width) {
  const methods = unique(runs.map((run) => run.methodName));
  const levels = sigmasOf(runs);
  const dash = (run) => DASHES[Math.max(0, levels.indexOf(run.sigma)) % DASHES.length];
  const items =
    levels.length > 1
      ? levels.map((sigma, i) => ({
          color: css("--ink"),
          dash: dashed(DASHES[i % DASHES.length]),
          name: `σ ${sigmaText(sigma)}`,
        }))
      : [];
  const names = key(items, width);
  const layout = facets(
    methods.map(() => 190),
    width,
    { least: 240, top: names.height },
  );
  const all = runs.flatMap(pointsOf);
  const span = (values) => [Math.min(...values), Math.max(...values)];
  const [first, last] = span(all.map(([epoch]) => epoch));
  const near = runs.filter((run) => !far.includes(run)).flatMap(pointsOf);
  const [low, high] = span(near.map(([, value]) => value));
  const margin = 0.06 * (high - low) || 0.5;
  const marks = [];
  const children = methods.flatMap((name, k) => {
    const place = layout.places[k];
    const frame = {
      left: place.left + EDGE.left,
      right: place.left + place.width - EDGE.right,
      top: place.top + EDGE.top,
      bottom: place.top + place.height - EDGE.bottom,
    };
    const x = scale([first, Math.max(last, first + 1)], [frame.left, frame.right]);
    const y = clamped([low - margin, high + margin], [frame.bottom, frame.top]);
    const lines = runs
      .filter((run) => run.methodName === name)
      .map((run) => {
        const points = pointsOf(run);
        for (const [epoch, value] of points)
          marks.push({
            x: x(epoch),
            y: y(value),
            title: run.title,
            text: `epoch ${epoch}   ${value.toPrecision(4)}`,
            series: run.id,
          });
        const places = points.map(([epoch, value]) => [x(epoch), y(value)]);
        return points.length > 1
          ? s("path", {
              d: path(places),
              fill: "none",
              stroke: colorOf(run),
              "stroke-width": 1.6,
              "stroke-dasharray": dashed(dash(run)),
            })
          : s("circle", { cx: places[0]?.[0], cy: places[0]?.[1], r: 3, fill: colorOf(run) });
      });
    return [
      axes(frame, {
        x,
        y,
        xTicks: ticks([first, Math.max(last, first + 1)], 4),
        yTicks: ticks([low - margin, high + margin], 4),
        yText: tickText,
        xLabel: "epoch",
        title: name,
      }),
      ...lines,
    ];
  });
  const told = `${quantityText(quantity())} by epoch in ${runs.length} training runs, from ${low.toPrecision(3)} to ${high.toPrecision(3)}.`;
  return { height: layout.height, children: [...names.parts, ...children], marks, alt: told };
}

function drawTraining() {
  byId("training-section").hidden = !trained.length;
  if (!trained.length) return;
  setControls(
    byId("training-controls"),
    quantities.length > 1 &&
      picker(
        "Quantity",
        quantities.map((name) => [name, quantityText(name)]),
        quantity(),
        setter("quantity"),
      ),
  );
  const runs = shownRuns().filter((run) => run.training?.curves[quantity()] && pointsOf(run).length);
  const far = farRuns(runs);
  const named = far.map((run) => `${run.title} (last value ${pointsOf(run).at(-1)[1].toPrecision(3)})`);
  byId("training-remark").textContent = far.length ? `Beyond the axes, drawn at the edge: ${named.join("; ")}.` : "";
  if (!runs.length) return noPlot("training-plot", "None of the runs shown recorded this quantity.");
  drawPlot("training-plot", "training", (width) => paint(runs, far, width));
}

const quietSigma = (run) => h("span", { class: "quiet unbroken" }, `σ ${sigmaText(run.sigma)}`);

function costCell(seconds, largest, device) {
  if (seconds === null) return h("td", { class: "text quiet" }, "–");
  const bar = {
    class: "cost-bar",
    style: { "--share": seconds / largest },
    "aria-hidden": "true",
  };
  return h(
    "td",
    { class: "text cost" },
    h("span", bar),
    duration(seconds),
    device && h("span", { class: "quiet device" }, ` ${device}`),
  );
}

function drawCost() {
  const runs = shownRuns().filter((run) => run.cost.training || run.cost.certification);
  byId("cost-section").hidden = !data.runs.some((run) => run.cost.training || run.cost.certification);
  const most = (name) => Math.max(1e-9, ...runs.map((run) => run.cost[name] ?? 0));
  const anyTraining = runs.some((run) => run.cost.training);
  const paper = runs.some((run) => run.cost.paperHours);
  const rows = runs.map((run) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, swatch(run), ...unbroken(run.label), " ", quietSigma(run)),
      anyTraining && costCell(run.cost.training, most("training"), run.cost.trainedOn),
      costCell(run.cost.certification, most("certification"), run.cost.certifiedOn),
      h("td", {}, run.cost.certification === null ? "–" : duration(run.cost.certification / run.images)),
      paper && h("td", {}, run.cost.paperHours ? `${run.cost.paperHours} h` : ""),
    ),
  );
  const titles = [
    h("th", { scope: "col", class: "text" }, "run"),
    anyTraining && h("th", { scope: "col", class: "text" }, "training"),
    h("th", { scope: "col", class: "text" }, "certification"),
    h("th", { scope: "col" }, "per image"),
    paper && h("th", { scope: "col" }, "training (paper)"),
  ];
  const caption = h("caption", { class: "unseen" }, "Training and certification time by run");
  byId("cost").replaceChildren(
    h("table", {}, caption, h("thead", {}, h("tr", {}, ...titles)), h("tbody", {}, ...rows)),
  );
}

panel("training-plot", [...RUNS, "quantity"], drawTraining);
panel("cost", RUNS, drawCost);
