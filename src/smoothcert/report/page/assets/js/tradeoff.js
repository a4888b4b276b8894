// Certified accuracy at a chosen radius by clean accuracy, one point per run.

import { axes, drawPlot, key, noPlot, scale, text, textWidth, ticks } from "./chart.js";
import { data, paperAt, withPaper } from "./data.js";
import { byId, css, h, s, setControls, toggle, unique } from "./dom.js";
import { percent, sigmaText } from "./format.js";
import { colorOf } from "./palette.js";
import { change, panel, RUNS, setter, shownRuns, sigmasOf, state } from "./state.js";

const EDGE = { left: 58, right: 18, top: 14, bottom: 44 };
const SHAPES = [
  "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
  "M-4.6,-4.6h9.2v9.2h-9.2z",
  "M0,-6l5.8,10h-11.6z",
  "M0,-6.4l5.6,6.4l-5.6,6.4l-5.6,-6.4z",
];
const leastRadius = data.radii.findIndex((radius) => radius > 0);
const cleanOf = (run) => run.table[data.radii.indexOf(0)] / run.images || run.curve[0];
const robustOf = (run) => run.table[state.radius] / run.images;

/** Return groups of runs of one method and noise level with different settings, sorted by setting. */
function settingPaths(runs) {
  const group = (run) => `${run.method}\n${run.sigma}`;
  const varied = runs.filter((run) => run.setting);
  return unique(varied.map(group))
    .map((name) => varied.filter((run) => group(run) === name).sort((a, b) => a.setting.value - b.setting.value))
    .filter((members) => members.length > 1);
}

/** Return the paper's values for a run, as shares; null if there are none or they are not shown. */
function paperPoint(run) {
  const robust = paperAt(run, data.radii[state.radius]);
  return state.pointPaper && robust !== undefined ? [paperAt(run, 0) / 100, robust / 100] : null;
}

/** Return the range of an axis; values far from the middle half of the values do not stretch it. */
function rangeOf(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const [lower, upper] = [0.25, 0.75].map((part) => sorted[Math.round(part * (sorted.length - 1))]);
  const reach = 2 * Math.max(upper - lower, 0.01);
  const near = sorted.filter((value) => value >= lower - reach && value <= upper + reach);
  const [low, high] = [near[0], near.at(-1)];
  const margin = Math.max(0.02, 0.12 * (high - low));
  return [Math.max(0, low - margin), Math.min(1, high + margin)];
}

/** Return a scale that puts values beyond its range at the edge. */
const clamped = (range, place) => {
  const inner = scale(range, place);
  return (value) => inner(Math.min(range[1], Math.max(range[0], value)));
};

/** Return labels next to their points; labels without a free position are omitted. */
function labels(points, left, right) {
  const taken = points.map((point) => ({ left: point.x - 5, top: point.y - 5, width: 10, height: 10 }));
  const disjoint = (a, b) =>
    a.left >= b.left + b.width || b.left >= a.left + a.width || a.top >= b.top + b.height || b.top >= a.top + a.height;
  return points.flatMap(({ x, y, name }) => {
    const width = textWidth(name, 11);
    const positions = [
      [x + 9, y - 6],
      [x - 9 - width, y - 6],
      [x - width / 2, y - 20],
      [x - width / 2, y + 8],
    ];
    const box = positions
      .map(([from, top]) => ({ left: from, top, width, height: 13 }))
      .find((at) => at.left > left && at.left + at.width < right && taken.every((other) => disjoint(at, other)));
    if (!box) return [];
    taken.push(box);
    return [text(box.left, box.top + 10, name, { fill: css("--ink"), "font-size": 11 })];
  });
}

function point(run, level, x, y, marks) {
  const setting = run.setting ? `, ${run.setting.name} ${run.setting.value}` : "";
  const told = `${percent(cleanOf(run))} clean, ${percent(robustOf(run))} at r = ${data.radii[state.radius].toFixed(2)}`;
  marks.push({
    x: x(cleanOf(run)),
    y: y(robustOf(run)),
    title: `${run.title}${setting}`,
    text: told,
    series: run.methodName,
  });
  return s("path", {
    d: SHAPES[level % SHAPES.length],
    fill: colorOf(run),
    "data-run": run.id,
    transform: `translate(${x(cleanOf(run))} ${y(robustOf(run))})`,
  });
}

function paperMarks(run, printed, x, y) {
  const line = {
    x1: x(cleanOf(run)),
    y1: y(robustOf(run)),
    x2: x(printed[0]),
    y2: y(printed[1]),
    stroke: colorOf(run),
  };
  return [
    s("line", line),
    s("circle", {
      cx: x(printed[0]),
      cy: y(printed[1]),
      r: 5,
      fill: "none",
      stroke: colorOf(run),
      "stroke-width": 1.5,
    }),
  ];
}

/** Return the ranges of both axes, and a remark on the runs beyond them. */
function rangesOf(runs, papers) {
  const xs = rangeOf([...runs.map(cleanOf), ...papers.map(([, printed]) => printed[0])]);
  const ys = rangeOf([...runs.map(robustOf), ...papers.map(([, printed]) => printed[1])]);
  const beyond = (value, [low, high]) => value < low || value > high;
  const far = runs.filter((run) => beyond(cleanOf(run), xs) || beyond(robustOf(run), ys));
  const names = far.slice(0, 3).map((run) => `${run.title} (${percent(cleanOf(run))}, ${percent(robustOf(run))})`);
  const more = far.length > 3 ? ` and ${far.length - 3} more` : "";
  return { xs, ys, remark: far.length ? `Beyond the axes, drawn at the edge: ${names.join("; ")}${more}. ` : "" };
}

const withPrinted = (runs) => runs.map((run) => [run, paperPoint(run)]).filter(([, printed]) => printed);

function paint(runs, width) {
  const levels = sigmasOf(runs);
  const methods = unique(runs.map((run) => run.methodName)).map((name) => runs.find((run) => run.methodName === name));
  const shapes =
    levels.length > 1
      ? levels.map((sigma, i) => ({
          shape: SHAPES[i % SHAPES.length],
          color: css("--ink"),
          name: `σ ${sigmaText(sigma)}`,
        }))
      : [];
  const names = key([...methods.map((run) => ({ color: colorOf(run), name: run.methodName })), ...shapes], width);
  const height = names.height + Math.min(460, Math.max(300, width * 0.45));
  const papers = withPrinted(runs);
  const { xs, ys } = rangesOf(runs, papers);
  const frame = {
    left: EDGE.left,
    right: width - EDGE.right,
    top: names.height + EDGE.top,
    bottom: height - EDGE.bottom,
  };
  const x = clamped(xs, [frame.left, frame.right]);
  const y = clamped(ys, [frame.bottom, frame.top]);
  const radius = data.radii[state.radius].toFixed(2);
  const whole = (tick) => `${Number((100 * tick).toFixed(1))} %`;
  const marks = [];
  const ordered = [...runs.filter((run) => run.setting), ...runs.filter((run) => !run.setting)]; // settings first
  const named = ordered.map((run) => ({
    x: x(cleanOf(run)),
    y: y(robustOf(run)),
    name: run.setting
      ? String(run.setting.value)
      : `${run.label}${levels.length > 1 ? ` ${sigmaText(run.sigma)}` : ""}`,
  }));
  const children = [
    ...names.parts,
    axes(frame, {
      x,
      y,
      xTicks: ticks(xs),
      yTicks: ticks(ys),
      xText: whole,
      yText: whole,
      xLabel: "clean accuracy (r = 0)",
      yLabel: `certified accuracy at r = ${radius}`,
    }),
    ...settingPaths(runs).map((members) =>
      s("polyline", {
        fill: "none",
        stroke: colorOf(members[0]),
        "stroke-width": 1.2,
        points: members.map((run) => `${x(cleanOf(run))},${y(robustOf(run))}`).join(" "),
      }),
    ),
    ...papers.flatMap(([run, printed]) => paperMarks(run, printed, x, y)),
    ...runs.map((run) => point(run, levels.indexOf(run.sigma), x, y, marks)),
    ...labels(named, EDGE.left, width - EDGE.right),
  ];
  return {
    height,
    children,
    marks,
    alt: `Certified accuracy at radius ${radius} by clean accuracy, one point for each of ${runs.length} runs.`,
  };
}

function drawTradeoff() {
  drawControls();
  const runs = shownRuns();
  const settings = unique(runs.filter((run) => run.setting).map((run) => `${run.setting.name} of ${run.methodName}`));
  const rings = state.pointPaper ? "Rings are the paper's numbers. " : "";
  const far = runs.length ? rangesOf(runs, withPrinted(runs)).remark : "";
  byId("tradeoff-remark").textContent =
    `${far}${rings}${settings.length ? `Numbers beside points: ${settings.join(", ")}.` : ""}`;
  if (!runs.length) return noPlot("tradeoff-plot", "No runs are shown.");
  drawPlot("tradeoff-plot", "accuracy-robustness", (width) => paint(runs, width));
}

function drawControls() {
  const slider = h("input", {
    type: "range",
    min: leastRadius,
    max: data.radii.length - 1,
    step: 1,
    value: state.radius,
    oninput: () => change({ radius: Number(slider.value) }),
  });
  const shown = h("output", {}, `r = ${data.radii[state.radius].toFixed(2)}`);
  setControls(
    byId("tradeoff-controls"),
    h("label", { class: "picker" }, h("span", {}, "Radius"), slider, shown),
    withPaper && toggle("Paper's numbers", state.pointPaper, setter("pointPaper")),
  );
}

if (leastRadius >= 0) panel("tradeoff-plot", [...RUNS, "radius", "pointPaper"], drawTradeoff);
else byId("tradeoff-plot").closest("section").hidden = true;
