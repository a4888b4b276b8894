// Certified accuracy at a chosen radius by clean accuracy, one point per run, a facet per noise level.

import { axes, clamped, drawPlot, facets, key, noPlot, ticks } from "./chart.js";
import { data, paperAt, withPaper } from "./data.js";
import { byId, h, s, setControls, toggle, unique } from "./dom.js";
import { fixed, percent, sigmaText } from "./format.js";
import { alongLine, nameLabels } from "./labels.js";
import { comparedRuns, shortName } from "./message.js";
import { colorOf } from "./palette.js";
import { change, panel, RUNS, setter, sigmasOf, state } from "./state.js";
import { nearRange } from "./statistics.js";

const EDGE = { left: 68, right: 26, top: 26, bottom: 44 };
const leastRadius = data.radii.findIndex((radius) => radius > 0);
const cleanOf = (run) => run.table[data.radii.indexOf(0)] / run.images || run.curve[0];
const robustOf = (run) => run.table[state.radius] / run.images;
const radiusText = () => fixed(data.radii[state.radius], 2);

/** Return, for each method, its runs with different settings, sorted by setting. */
function settingPaths(runs) {
  const varied = runs.filter((run) => run.setting);
  return unique(varied.map((run) => run.method))
    .map((name) => varied.filter((run) => run.method === name).sort((a, b) => a.setting.value - b.setting.value))
    .filter((members) => members.length > 1);
}

/** Return the paper's values for a run, as shares; null if there are none or they are not shown. */
function paperPoint(run) {
  const robust = paperAt(run, data.radii[state.radius]);
  return state.pointPaper && robust !== undefined ? [paperAt(run, 0) / 100, robust / 100] : null;
}

/** Return -1, 0 or 1 for a value below, in or above a range. */
const side = (value, [low, high]) => (value < low ? -1 : value > high ? 1 : 0);

/** Return a range for most values: without distant ones if these would squeeze the others into a fifth of the axis. */
function rangeOf(values) {
  const [low, high] = nearRange(values, 0.005);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  return high - low < (most - least) / 5 ? [low, high] : [least, most];
}

function withMargin([low, high]) {
  const margin = Math.max(0.002, 0.15 * (high - low));
  return [Math.max(0, low - margin), Math.min(1, high + margin)];
}

/** Return a noise level's runs, the paper's points, the ranges of both axes, and the runs beyond them. */
function levelOf(sigma, all) {
  const runs = all.filter((run) => run.sigma === sigma);
  const papers = runs.map((run) => [run, paperPoint(run)]).filter(([, printed]) => printed);
  const points = [...runs.map((run) => [cleanOf(run), robustOf(run)]), ...papers.map(([, printed]) => printed)];
  const near = [0, 1].reduce((rest, axis) => {
    const range = rangeOf(rest.map((one) => one[axis]));
    return rest.filter((one) => !side(one[axis], range));
  }, points);
  const [xs, ys] = [0, 1].map((axis) => {
    const values = near.map((one) => one[axis]);
    return withMargin([Math.min(...values), Math.max(...values)]);
  });
  const far = runs.filter((run) => side(cleanOf(run), xs) || side(robustOf(run), ys));
  return { sigma, runs, papers, xs, ys, far };
}

/** Draw a run as a dot, or as a triangle that points to its place beyond the axes. */
function point(run, { xs, ys, far }, x, y, marks) {
  const setting = run.setting ? `, ${run.setting.name} ${run.setting.value}` : "";
  const [left, top] = [x(cleanOf(run)), y(robustOf(run))];
  const told = `${percent(cleanOf(run))} clean, ${percent(robustOf(run))} at r = ${radiusText()}`;
  marks.push({ x: left, y: top, title: `${run.title}${setting}`, text: told, series: run.sigma });
  const look = { fill: colorOf(run), "data-run": run.id, transform: `translate(${left} ${top})` };
  if (!far.includes(run)) return s("circle", { ...look, r: 5 });
  const angle = Math.atan2(side(cleanOf(run), xs), side(robustOf(run), ys)) * (180 / Math.PI);
  return s("path", { ...look, d: "M0,-6L5.5,5H-5.5Z", transform: `${look.transform} rotate(${angle})` });
}

/** Return the ring at the paper's numbers for a run, and the line from the run's point to the ring. */
function paperMarks(run, [clean, robust], x, y) {
  const [cx, cy, stroke] = [x(clean), y(robust), colorOf(run)];
  return [
    s("line", { x1: x(cleanOf(run)), y1: y(robustOf(run)), x2: cx, y2: cy, stroke }),
    s("circle", { cx, cy, r: 5, fill: "none", stroke, "stroke-width": 1.5 }),
  ];
}

function facet(level, place, marks) {
  const { sigma, runs, papers, xs, ys } = level;
  const frame = {
    left: place.left + EDGE.left,
    right: place.left + place.width - EDGE.right,
    top: place.top + EDGE.top,
    bottom: place.top + place.height - EDGE.bottom,
  };
  const x = clamped(xs, [frame.left, frame.right]);
  const y = clamped(ys, [frame.bottom, frame.top]);
  const at = (run) => [x(cleanOf(run)), y(robustOf(run))];
  const share = (tick) => `${Number((100 * tick).toFixed(2))} %`;
  const paths = settingPaths(runs).map((members) => ({ color: colorOf(members[0]), points: members.map(at) }));
  const ordered = [...runs.filter((run) => run.setting), ...runs.filter((run) => !run.setting)]; // settings first
  const named = ordered.map((run) => ({
    x: at(run)[0],
    y: at(run)[1],
    name: run.setting ? String(run.setting.value) : shortName(run, runs),
  }));
  const obstacles = [
    ...paths.flatMap(({ points }) => points.slice(1).flatMap((end, i) => alongLine(points[i], end))),
    ...papers.flatMap(([run, [clean, robust]]) => alongLine([x(clean), y(robust)], at(run))),
    ...papers.map(([, [clean, robust]]) => ({ left: x(clean) - 6, top: y(robust) - 6, width: 12, height: 12 })),
  ];
  const line = ({ color, points }) =>
    s("polyline", { fill: "none", stroke: color, "stroke-width": 1.2, points: points.map(String).join(" ") });
  return [
    axes(frame, {
      x,
      y,
      xTicks: ticks(xs, frame.right - frame.left < 420 ? 4 : 7),
      yTicks: ticks(ys, 5),
      xText: share,
      yText: share,
      xLabel: "clean accuracy (r = 0)",
      yLabel: place.first && `certified accuracy at r = ${radiusText()}`,
      title: `σ ${sigmaText(sigma)}`,
    }),
    ...paths.map(line),
    ...papers.flatMap(([run, printed]) => paperMarks(run, printed, x, y)),
    ...runs.map((run) => point(run, level, x, y, marks)),
    ...nameLabels(named, frame, obstacles),
  ];
}

function paint(levels, width) {
  const runs = levels.flatMap((level) => level.runs);
  const methods = unique(runs.map((run) => run.methodName)).map((name) => runs.find((run) => run.methodName === name));
  const names = key(
    methods.map((run) => ({ color: colorOf(run), name: run.methodName })),
    width,
  );
  const layout = facets(
    levels.map(() => 320),
    width,
    { least: 320, top: names.height },
  );
  const marks = [];
  const drawn = levels.flatMap((level, i) => facet(level, layout.places[i], marks));
  const alt = `Certified accuracy at radius ${radiusText()} by clean accuracy, one point for each of ${runs.length} runs.`;
  return { height: layout.height, children: [...names.parts, ...drawn], marks, alt };
}

/** Name up to three of the runs beyond the axes. */
function farRemark(levels) {
  const far = levels.flatMap((level) => level.far);
  const names = far.slice(0, 3).map((run) => `${run.title} (${percent(cleanOf(run))}, ${percent(robustOf(run))})`);
  const more = far.length > 3 ? ` and ${far.length - 3} more` : "";
  return far.length ? `Beyond the axes, drawn as triangles at the edge: ${names.join("; ")}${more}.` : "";
}

function drawTradeoff() {
  slider.value = state.radius;
  shownRadius.textContent = `r = ${radiusText()}`;
  const { runs, remark } = comparedRuns();
  const all = sigmasOf(runs).map((sigma) => levelOf(sigma, runs));
  const levels = all.filter((level) => level.runs.some(robustOf));
  const empty = all.filter((level) => !levels.includes(level)).map(({ sigma }) => sigmaText(sigma));
  const settings = unique(runs.filter((run) => run.setting).map((run) => `${run.setting.name} of ${run.methodName}`));
  byId("tradeoff-remark").textContent = [
    farRemark(levels),
    empty.length ? `No image is certified at r = ${radiusText()} with σ ${empty.join(" or ")}.` : "",
    state.pointPaper ? "Rings are the paper's numbers." : "",
    settings.length ? `Numbers beside points: ${settings.join(", ")}.` : "",
    remark,
  ]
    .filter(Boolean)
    .join(" ");
  if (!levels.length) return noPlot("tradeoff-plot", "None of the runs shown certifies an image at this radius.");
  drawPlot("tradeoff-plot", "accuracy-robustness", (width) => paint(levels, width));
}

// The slider is kept while the radius changes, since replacing it would end the drag.
const slider = h("input", {
  type: "range",
  min: leastRadius,
  max: data.radii.length - 1,
  step: 1,
  oninput: () => change({ radius: Number(slider.value) }),
});
const shownRadius = h("output");

function drawControls() {
  setControls(
    byId("tradeoff-controls"),
    h("label", { class: "picker" }, h("span", {}, "Radius"), slider, shownRadius),
    withPaper && toggle("Paper's numbers", state.pointPaper, setter("pointPaper")),
  );
}

if (leastRadius >= 0) {
  panel("tradeoff-controls", ["pointPaper"], drawControls);
  panel("tradeoff-plot", [...RUNS, "radius", "pointPaper"], drawTradeoff);
} else byId("tradeoff-plot").closest("section").hidden = true;
