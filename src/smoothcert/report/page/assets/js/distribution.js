// Distributions of vote shares and radii as ridgelines, one per run, a facet per noise level; and the outcomes.

import { axes, drawPlot, facets, noPlot, path, scale, text } from "./chart.js";
import { data } from "./data.js";
import { byId, css, h, s, segmented, setControls, stackedBar, sum } from "./dom.js";
import { count, fixed, percent, sigmaText } from "./format.js";
import { colorOf } from "./palette.js";
import { panel, RUNS, setter, shownRuns, sigmasOf, state } from "./state.js";
import { rebin } from "./statistics.js";

const ROW = 34;
const EDGE = { left: 120, right: 10, top: 40, bottom: 40 };
const MOST = 12; // runs of a facet
const BINS = 50;

/** Return the histogram of the chosen images; abstentions have votes but no radius. */
function countsOf(part) {
  if (state.outcome !== "all") return part[state.outcome];
  return part.correct.map((number, i) => number + part.wrong[i] + (part.abstained?.[i] ?? 0));
}

/** Return the edges of the bins and the histogram of each run, from the first bin that is not empty. */
function histograms(runs) {
  if (state.shares === "radius") {
    const reached = Math.max(8, ...runs.map((run) => Math.max(run.correct.findLastIndex(Boolean), run.wrong.findLastIndex(Boolean)) + 1));
    const bins = (run) => rebin(countsOf(run).slice(0, reached), BINS);
    const { joined, size } = bins(runs[0]);
    return { edges: Array.from({ length: joined.length + 1 }, (_, i) => i * size * data.grid.step), bins: (run) => bins(run).joined };
  }
  const found = runs.map((run) => countsOf(run.votes).findIndex(Boolean)).filter((i) => i >= 0);
  const from = Math.min(BINS / 2, ...found);
  return {
    edges: Array.from({ length: BINS + 1 - from }, (_, i) => (from + i) / BINS),
    bins: (run) => countsOf(run.votes).slice(from),
  };
}

/** Draw a run's histogram as a filled ridge; its height is the square root of the share, so that small ones show. */
function ridge(run, edges, bins, x, base, marks) {
  const color = colorOf(run);
  const tall = (share) => base - Math.sqrt(share) * ROW * 1.25;
  const corners = bins.flatMap((bin, i) => [[x(edges[i]), tall(bin / run.images)], [x(edges[i + 1]), tall(bin / run.images)]]);
  bins.forEach((bin, i) => {
    const share = `${percent(bin / run.images, 2)} (${count(bin)} images) from ${fixed(edges[i], 2)} to ${fixed(edges[i + 1], 2)}`;
    marks.push({ x: (x(edges[i]) + x(edges[i + 1])) / 2, y: tall(bin / run.images), title: run.title, text: share, series: run.id });
  });
  const outline = path([[x(edges[0]), base], ...corners, [x(edges[edges.length - 1]), base]]);
  const name = run.label.length > 16 ? `${run.label.slice(0, 15)}…` : run.label;
  return [
    s("path", { d: `${outline}Z`, fill: color, "fill-opacity": 0.35, stroke: color, "stroke-width": 1.2 }),
    text(x(edges[0]) - 8, base - 3, name, { "text-anchor": "end", fill: css("--ink") }),
  ];
}

function drawRidges() {
  drawControls();
  const runs = shownRuns().filter((run) => state.shares === "radius" || run.votes);
  const bound = runs.filter((run) => state.shares === "votes" && !run.votes.exact).length;
  const saved = bound === runs.length ? "Votes were not saved" : `${bound} of ${runs.length} runs did not save votes`;
  byId("distribution-remark").textContent = bound ? `${saved}: the plot shows the lower bound that follows from the radius.` : "";
  if (!runs.length) return noPlot("distribution-plot", "No votes of the runs shown are known.");
  const { edges, bins } = histograms(runs);
  const groups = sigmasOf(runs).map((sigma) => {
    const members = runs.filter((run) => run.sigma === sigma).sort((a, b) => b.acr[0] - a.acr[0]);
    return { sigma, members: members.slice(0, MOST), all: members.length };
  });
  const rows = Math.max(...groups.map(({ members }) => members.length));
  const what = state.shares === "votes" ? "vote share p_A of the certified class" : "certified radius";
  drawPlot("distribution-plot", state.shares === "votes" ? "vote-shares" : "radii", (width) => {
    const layout = facets(groups.length, width, { least: 320, height: EDGE.top + EDGE.bottom + ROW * rows });
    const marks = [];
    const children = groups.flatMap(({ sigma, members, all }, k) => {
      const place = layout.places[k];
      const frame = { left: place.left + EDGE.left, right: place.left + place.width - EDGE.right, top: place.top + EDGE.top - 12, bottom: place.top + EDGE.top + ROW * members.length };
      const x = scale([edges[0], edges[edges.length - 1]], [frame.left, frame.right]);
      const title = `σ ${sigmaText(sigma)}${all > members.length ? `, best ${members.length} of ${all} by ACR` : ""}`;
      const span = edges[edges.length - 1] - edges[0];
      const xTicks = [0, 0.25, 0.5, 0.75, 1].map((part) => edges[0] + part * span);
      const frameParts = axes(frame, { x, y: (value) => value, xTicks, yTicks: [], xText: (tick) => fixed(tick, 2), xLabel: state.shares === "votes" ? "vote share p\u2090" : "certified radius", title });
      return [frameParts, ...members.flatMap((run, i) => ridge(run, edges, bins(run), x, frame.top + 12 + ROW * (i + 1) - 4, marks))];
    });
    return { height: layout.height, children, marks, alt: `Distribution of the ${what} of ${state.outcome} images for ${runs.length} runs, best ACR first.` };
  });
}

function drawControls() {
  const kinds = [
    ["votes", "Vote share"],
    ["radius", "Radius"],
  ];
  const outcomes = [
    ["correct", "Correct"],
    ["wrong", "Wrong"],
    ["all", "All"],
  ];
  setControls(
    byId("distribution-controls"),
    segmented("Quantity of the distribution", kinds, state.shares, setter("shares")),
    segmented("Images", outcomes, state.outcome, setter("outcome")),
  );
}

function drawOutcomes() {
  const bars = shownRuns().map((run) => {
    const parts = { correct: sum(run.correct), abstained: run.abstained, wrong: sum(run.wrong) };
    const shares = Object.entries(parts).map(([name, number]) => [name, percent(number / run.images)]);
    const words = shares.map((pair) => pair.join(" ")).join(", ");
    return h(
      "div",
      { class: "outcome" },
      h("span", { class: "name" }, run.label, h("span", { class: "quiet" }, ` σ ${sigmaText(run.sigma)}`)),
      stackedBar(`${run.title}: ${words}`, parts, run.images),
      ...shares.map(([name, share]) => h("span", { class: "number", "data-part": name }, share)),
    );
  });
  const names = ["correct", "abstained", "wrong"].map((name) => h("span", { class: "number" }, h("i", { class: `key ${name}` }), name));
  const head = h("div", { class: "outcome head", "aria-hidden": "true" }, h("span", { class: "name" }), h("span"), ...names);
  byId("outcomes").replaceChildren(head, ...bars);
}

panel("distribution-plot", [...RUNS, "shares", "outcome"], drawRidges);
panel("outcomes", RUNS, drawOutcomes);
