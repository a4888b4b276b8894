// Certified accuracy at a chosen radius by clean accuracy, one point per run.

const leastRadius = data.radii.findIndex((radius) => radius > 0);
const middleRadius = data.radii.findIndex((radius) => radius >= 0.5);
const tradeoffView = { radius: Math.max(leastRadius, middleRadius), paper: false };
const cleanOf = (run) => run.curve[0];
const robustOf = (run) => run.table[tradeoffView.radius] / run.images;

/** Return groups of runs of one method, dataset and noise level with different settings, sorted by setting. */
function settingPaths(runs) {
  const key = (run) => `${run.dataset}\n${run.method}\n${run.sigma}`;
  const varied = runs.filter((run) => run.setting);
  return unique(varied.map(key))
    .map((group) => varied.filter((run) => key(run) === group).sort((a, b) => a.setting.value - b.setting.value))
    .filter((members) => members.length > 1);
}

/** Return the paper's values for a run, as shares; null if there are none or they are not shown. */
function paperPoint(run) {
  const robust = paperAt(run, data.radii[tradeoffView.radius]);
  return tradeoffView.paper && robust !== undefined ? { clean: paperAt(run, 0) / 100, robust: robust / 100 } : null;
}

function drawTradeoff() {
  const holder = byId("tradeoff");
  const runs = shownRuns();
  if (!runs.length) return holder.replaceChildren(h("p", { class: "note" }, "No runs are shown."));
  const radius = data.radii[tradeoffView.radius].toFixed(2);
  const papers = runs.map((run) => ({ run, point: paperPoint(run) })).filter(({ point }) => point);
  const scales = makeScales(
    holder,
    [...runs.map(cleanOf), ...papers.map(({ point }) => point.clean)],
    [...runs.map(robustOf), ...papers.map(({ point }) => point.robust)],
  );
  const levels = unique(runs.map((run) => run.sigma)).sort((a, b) => a - b);
  const ring = papers.length ? [ringKey()] : [];
  byId("tradeoff-keys").replaceChildren(...colourKeys(runs), ...shapeKeys(levels), ...ring, ...settingKeys(runs));
  const label = `Certified accuracy at radius ${radius} by clean accuracy, one point for each of ${runs.length} runs`;
  const size = { viewBox: `0 0 ${scales.width} ${scales.height}`, width: scales.width, height: scales.height };
  holder.replaceChildren(
    s(
      "svg",
      { ...size, role: "group", "aria-label": label },
      scatterFrame(scales, "clean accuracy (r = 0)", `certified accuracy at r = ${radius}`),
      ...settingPaths(runs).map((members) => settingLine(members, scales)),
      ...papers.map(({ run, point }) => paperMark(run, point, scales)),
      ...runs.map((run) => tradeoffPoint(run, scales, levels.indexOf(run.sigma))),
      s("g", { class: "names", "aria-hidden": "true" }, ...tradeoffNames(runs, scales, levels)),
    ),
  );
}

/** Explain the shapes, if there are several. */
const shapeKeys = (levels) =>
  levels.length < 2
    ? []
    : levels.map((sigma, i) => {
        const shape = s("path", { d: SHAPES[i % SHAPES.length], fill: "currentColor", transform: "translate(8 8)" });
        const size = { viewBox: "0 0 16 16", width: 12, height: 12, "aria-hidden": "true" };
        return h("span", {}, s("svg", size, shape), `σ ${sigmaText(sigma)}`);
      });

const ringKey = () => {
  const ring = s("circle", { cx: 8, cy: 8, r: 6, fill: "none", stroke: "currentColor", "stroke-width": 1.5 });
  return h("span", {}, s("svg", { viewBox: "0 0 16 16", width: 12, height: 12, "aria-hidden": "true" }, ring), "paper");
};

/** Explain the numbers next to points. */
const settingKeys = (runs) =>
  unique(runs.filter((run) => run.setting).map((run) => `numbers: ${run.setting.name} of ${run.methodName}`)).map(
    (text) => h("span", {}, text),
  );

const runColour = (run) => `var(--run-${colourSlot(run)})`;

function settingLine(members, { x, y }) {
  const points = members.map((run) => `${x(cleanOf(run))},${y(robustOf(run))}`).join(" ");
  return s("polyline", { class: "path", stroke: runColour(members[0]), points });
}

function paperMark(run, { clean, robust }, { x, y }) {
  return s(
    "g",
    { class: "paper", stroke: runColour(run) },
    s("line", { x1: x(cleanOf(run)), y1: y(robustOf(run)), x2: x(clean), y2: y(robust) }),
    s("circle", { cx: x(clean), cy: y(robust), r: 5 }),
  );
}

function tradeoffPoint(run, { x, y }, level) {
  const setting = run.setting ? `, ${run.setting.name} ${run.setting.value}` : "";
  const radius = data.radii[tradeoffView.radius].toFixed(2);
  const text = `${run.title}${setting}: ${percent(cleanOf(run))} clean, ${percent(robustOf(run))} at r = ${radius}`;
  const place = { d: SHAPES[level % SHAPES.length], transform: `translate(${x(cleanOf(run))} ${y(robustOf(run))})` };
  const about = { class: "point", fill: runColour(run), tabindex: 0, role: "img", "aria-label": text };
  return s("path", { ...place, ...about, "data-run": run.id }, s("title", {}, text));
}

function tradeoffNames(runs, { x, y, width }, levels) {
  const level = (run) => (levels.length > 1 ? ` ${sigmaText(run.sigma)}` : "");
  const name = (run) => `${run.label}${level(run)}${severalDatasets() ? `, ${run.datasetName}` : ""}`;
  const ordered = [...runs.filter((run) => run.setting), ...runs.filter((run) => !run.setting)]; // settings first
  const points = ordered.map((run) => ({
    x: x(cleanOf(run)),
    y: y(robustOf(run)),
    text: run.setting ? String(run.setting.value) : name(run),
  }));
  return drawLabels(points, EDGE.left, width - EDGE.right);
}

function tradeoffControls() {
  const shown = h("output", {}, `r = ${data.radii[tradeoffView.radius].toFixed(2)}`);
  const slider = h("input", {
    type: "range",
    min: leastRadius,
    max: data.radii.length - 1,
    step: 1,
    value: tradeoffView.radius,
    oninput: () => {
      tradeoffView.radius = Number(slider.value);
      shown.textContent = `r = ${data.radii[tradeoffView.radius].toFixed(2)}`;
      drawTradeoff();
    },
  });
  return [
    h("label", { class: "picker" }, h("span", {}, "Radius"), slider, shown),
    withPaper && toggle("Paper's numbers", false, setter(tradeoffView, "paper", drawTradeoff)),
  ].filter(Boolean);
}

if (leastRadius >= 0) {
  byId("tradeoff-controls").append(...tradeoffControls());
  panels.push(drawTradeoff);
  new ResizeObserver(drawTradeoff).observe(byId("tradeoff"));
} else {
  byId("tradeoff").closest("section").hidden = true;
}
