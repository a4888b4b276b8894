// Certified accuracy by radius: a facet per noise level, or each method at its best noise level.

import { axes, drawPlot, facets, key, noPlot, path, scale, ticks } from "./chart.js";
import { data, gridRadii, withPaper } from "./data.js";
import { byId, css, s, segmented, setControls, toggle, unique } from "./dom.js";
import { fixed, percent, sigmaText } from "./format.js";
import { comparedRuns } from "./message.js";
import { colorOf, colorSlot, dashed, dashOf } from "./palette.js";
import { panel, RUNS, setter, sigmasOf, state } from "./state.js";
import { envelope, wilson } from "./statistics.js";

const EDGE = { left: 60, right: 8, top: 24, bottom: 40 };

/** Return the paper's numbers for a run as pairs of radius and accuracy (a share). */
const paperPoints = (run) => (run.paper?.accuracy ?? []).map(([radius, accuracy]) => [radius, accuracy / 100]);

/** Return the lines of a facet: one per run. */
const runLines = (runs) =>
  runs.map((run) => ({
    run,
    name: run.label,
    title: run.title,
    shares: run.curve,
    images: () => run.images,
    paper: paperPoints(run),
    dash: dashOf(run, runs),
    about: () => "",
  }));

/** Return a line per method: the accuracy of its best noise level at every radius. */
function envelopeLines(runs) {
  return unique(runs.map((run) => run.methodName)).map((name) => {
    const members = runs.filter((run) => run.methodName === name);
    const { best, shares } = envelope(members.map((run) => run.curve));
    const printed = members.flatMap(paperPoints);
    const radii = unique(printed.map(([radius]) => radius));
    const most = (radius) => Math.max(...printed.filter(([at]) => at === radius).map(([, share]) => share));
    return {
      run: members[0],
      name,
      title: name,
      shares,
      images: (i) => members[best[i]].images,
      paper: radii.sort((a, b) => a - b).map((radius) => [radius, most(radius)]),
      dash: [],
      about: (i) => ` with σ ${sigmaText(members[best[i]].sigma)}`,
    };
  });
}

/** Name each method's missing noise levels, without which its envelope may end early. */
function missingLevels(runs) {
  const levels = sigmasOf(runs);
  return unique(runs.map((run) => run.methodName)).flatMap((name) => {
    const own = runs.filter((run) => run.methodName === name).map((run) => run.sigma);
    const missing = levels.filter((sigma) => !own.includes(sigma)).map(sigmaText);
    return missing.length ? [`${name} has no run at σ ${missing.join(" and ")}.`] : [];
  });
}

const lastRadius = (lines) => Math.max(8, ...lines.map((line) => line.shares.findLastIndex((share) => share > 0) + 1));

function drawLine(line, x, y, end, marks) {
  const color = colorOf(line.run);
  const stop = Math.min(end, line.shares.findLastIndex((share) => share > 0) + 2);
  const steps = Array.from({ length: stop }, (_, i) => i);
  const limits = steps.map((i) => wilson(line.shares[i], line.images(i)));
  const place = (i, share) => [x(gridRadii[i]), y(share)];
  const band = state.bands && [
    ...steps.map((i) => place(i, limits[i][1])),
    ...steps.reverse().map((i) => place(i, limits[i][0])),
  ];
  steps.sort((a, b) => a - b);
  steps.forEach((i) => {
    const [low, high] = limits[i].map((limit) => fixed(100 * limit, 1));
    marks.push({
      x: x(gridRadii[i]),
      y: y(line.shares[i]),
      title: line.title,
      text: `r = ${fixed(gridRadii[i], 3)}   ${percent(line.shares[i])}${line.about(i)} (${low} to ${high})`,
      series: `${line.run.id} ${line.title}`,
    });
  });
  const within = ([radius, share]) => radius <= gridRadii[end - 1] && (share > 0 || radius <= gridRadii[stop - 1]);
  const printed = state.curvePaper ? line.paper.filter(within) : [];
  for (const [radius, share] of printed)
    marks.push({
      x: x(radius),
      y: y(share),
      title: `${line.title} (paper)`,
      text: `r = ${fixed(radius, 2)}   ${percent(share)}`,
      series: `paper ${line.title}`,
    });
  return [
    band && s("path", { d: `${path(band)}Z`, fill: color, "fill-opacity": 0.15 }),
    s("path", {
      d: path(steps.map((i) => place(i, line.shares[i]))),
      fill: "none",
      stroke: color,
      "stroke-width": 1.8,
      "stroke-dasharray": dashed(line.dash),
    }),
    ...printed.map(([radius, share]) =>
      s("circle", { cx: x(radius), cy: y(share), r: 3.5, fill: css("--paper"), stroke: color, "stroke-width": 1.5 }),
    ),
  ];
}

function drawFacet({ title, lines }, place, marks) {
  const end = lastRadius(lines);
  const frame = {
    left: place.left + EDGE.left,
    right: place.left + place.width - EDGE.right,
    top: place.top + EDGE.top,
    bottom: place.top + place.height - EDGE.bottom,
  };
  const x = scale([0, gridRadii[Math.min(end, gridRadii.length - 1)]], [frame.left, frame.right]);
  const y = scale([0, 1], [frame.bottom, frame.top]);
  const xTicks = ticks([0, gridRadii[Math.min(end, gridRadii.length - 1)]], 5);
  const labels = {
    xLabel: "ℓ₂ radius r",
    yLabel: place.first ? "certified accuracy" : null,
    yText: (tick) => percent(tick, 0),
  };
  return [
    axes(frame, { x, y, xTicks, yTicks: [0, 0.25, 0.5, 0.75, 1], ...labels, title }),
    ...lines.flatMap((line) => drawLine(line, x, y, end, marks)),
  ];
}

/** Return the key: a solid line per method, and the dashed lines of its other runs. */
function keyItems(lines) {
  const known = new Map();
  for (const line of lines) {
    const name = line.dash.length ? line.name : line.run.methodName;
    const sign = `${colorSlot(line.run)} ${line.dash}`;
    if (!known.has(sign)) known.set(sign, { color: colorOf(line.run), dash: dashed(line.dash), name });
  }
  return [...known.values()];
}

function altOf(groups) {
  const at = Math.min(gridRadii.length - 1, Math.round(0.5 / data.grid.step));
  const best = groups.map(({ title, lines }) => {
    const first = lines.reduce((top, line) => (line.shares[at] > top.shares[at] ? line : top));
    return `${title ? `${title}: ` : ""}${first.name} ${percent(first.shares[at])}`;
  });
  return `Certified accuracy by radius, ${groups.flatMap(({ lines }) => lines).length} curves. Best at radius ${fixed(gridRadii[at], 2)}: ${best.join("; ")}. The table below has all numbers.`;
}

function drawCurves() {
  drawControls();
  const { runs, remark } = comparedRuns();
  byId("curves-remark").textContent = [...(state.curves === "envelope" ? missingLevels(runs) : []), remark].join(" ");
  if (!runs.length) return noPlot("curves-plot", "No runs are shown.");
  const groups =
    state.curves === "envelope"
      ? [{ title: "", lines: envelopeLines(runs) }]
      : sigmasOf(runs).map((sigma) => ({
          title: `σ ${sigmaText(sigma)}`,
          lines: runLines(runs.filter((run) => run.sigma === sigma)),
        }));
  drawPlot("curves-plot", "certified-accuracy", (width) => {
    const names = key(keyItems(groups.flatMap(({ lines }) => lines)), width);
    const layout = facets(
      groups.map(() => (groups.length > 1 ? 260 : 380)),
      width,
      { top: names.height },
    );
    const marks = [];
    const children = [...names.parts, ...groups.flatMap((group, i) => drawFacet(group, layout.places[i], marks))];
    return { height: layout.height, children, marks, alt: altOf(groups) };
  });
}

function drawControls() {
  const levels = sigmasOf(data.runs.filter((run) => run.dataset === state.dataset));
  const choices = [
    ["sigma", "By σ"],
    ["envelope", "Best σ"],
  ];
  setControls(
    byId("curves-controls"),
    levels.length > 1 && segmented("Curves", choices, state.curves, setter("curves")),
    toggle("95 % bands", state.bands, setter("bands")),
    withPaper && toggle("Paper's numbers", state.curvePaper, setter("curvePaper")),
  );
}

panel("curves-plot", [...RUNS, "curves", "bands", "curvePaper"], drawCurves);
