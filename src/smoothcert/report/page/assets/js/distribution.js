// Distributions of vote shares and radii as ridgelines, one per run, a facet per noise level; and the outcomes.

import { axes, drawPlot, facets, noPlot, path, scale, text, textWidth, ticks } from "./chart.js";
import { data } from "./data.js";
import { byId, css, h, s, segmented, setControls, stackedBar, sum } from "./dom.js";
import { count, percent, sigmaText } from "./format.js";
import { comparedRuns, shortName } from "./message.js";
import { colorOf } from "./palette.js";
import { panel, RUNS, setter, shownRuns, sigmasOf, state } from "./state.js";
import { rebin } from "./statistics.js";

const ROW = 34;
const EDGE = { right: 18, top: 40, bottom: 40 };
const MOST = 12; // runs per facet
const BINS = 50;
const LABELED = [0, 0.5, 0.9, 0.99, 0.999, 1];
const edgeText = (edge) => String(Number(edge.toFixed(4)));

/** Return the histogram of the chosen images; abstentions have votes but no radius. */
function countsOf(part) {
  if (state.outcome !== "all") return part[state.outcome];
  return part.correct.map((number, i) => number + part.wrong[i] + (part.abstained?.[i] ?? 0));
}

/** Return the bin edges, as numbers and as places on the axis, a function from runs to histograms, and the ticks. */
function histograms(runs) {
  if (state.shares === "radius") {
    const last = (run) => Math.max(run.correct.findLastIndex(Boolean), run.wrong.findLastIndex(Boolean)) + 1;
    const reached = Math.max(8, ...runs.map(last));
    const bins = (run) => rebin(countsOf(run).slice(0, reached), BINS);
    const { joined, size } = bins(runs[0]);
    const edges = Array.from({ length: joined.length + 1 }, (_, i) => i * size * data.grid.step);
    return { edges, places: edges, bins: (run) => bins(run).joined, xTicks: ticks([0, edges[edges.length - 1]], 4) };
  }
  // Bins of vote shares are drawn equally wide: most shares are close to 1, where the radius changes fastest.
  const found = runs.map((run) => countsOf(run.votes).findIndex(Boolean)).filter((i) => i >= 0);
  const from = Math.min(data.shareEdges.indexOf(0.5), ...found);
  const edges = data.shareEdges.slice(from);
  const xTicks = edges.flatMap((edge, i) => (LABELED.includes(edge) ? [i] : []));
  return { edges, places: edges.map((_, i) => i), bins: (run) => countsOf(run.votes).slice(from), xTicks };
}

const voteShare = () => ["vote share p", s("tspan", { dy: 3, "font-size": 9 }, "A")];

/** Draw a run's histogram as a filled ridge; heights are square roots, so that small shares show. */
function ridge(run, name, { edges, places, bins: binsOf }, x, base, marks) {
  const bins = binsOf(run);
  const color = colorOf(run);
  const tall = (share) => base - Math.sqrt(share) * ROW * 1.25;
  const corners = bins.flatMap((bin, i) => [places[i], places[i + 1]].map((at) => [x(at), tall(bin / run.images)]));
  bins.forEach((bin, i) => {
    const share = `${percent(bin / run.images, 2)} (${count(bin)} images) from ${edgeText(edges[i])} to ${edgeText(edges[i + 1])}`;
    marks.push({
      x: (x(places[i]) + x(places[i + 1])) / 2,
      y: tall(bin / run.images),
      title: run.title,
      text: share,
      series: run.id,
    });
  });
  const outline = path([[x(places[0]), base], ...corners, [x(places[places.length - 1]), base]]);
  return [
    s("path", { d: `${outline}Z`, fill: color, "fill-opacity": 0.35, stroke: color, "stroke-width": 1.2 }),
    text(x(places[0]) - 8, base - 3, name, { "text-anchor": "end", fill: css("--ink") }),
  ];
}

function drawRidges() {
  drawControls();
  const { runs: compared, remark } = comparedRuns();
  const runs = compared.filter((run) => state.shares === "radius" || run.votes);
  const bound = runs.filter((run) => state.shares === "votes" && !run.votes.exact).length;
  const saved = bound === runs.length ? "Votes were not saved" : `${bound} of ${runs.length} runs did not save votes`;
  const why = bound ? `${saved}: the plot shows the lower bound that follows from the radius.` : "";
  byId("distribution-remark").textContent = `${why} ${remark}`.trim();
  if (!runs.length) return noPlot("distribution-plot", "No votes are available for the runs shown.");
  const shown = histograms(runs);
  const { edges, places, xTicks } = shown;
  const groups = sigmasOf(runs).map((sigma) => {
    const members = runs.filter((run) => run.sigma === sigma).sort((a, b) => b.acr[0] - a.acr[0]);
    return { sigma, members: members.slice(0, MOST), all: members.length };
  });
  const what = state.shares === "votes" ? "vote share p_A of the certified class" : "certified radius";
  const names =
    12 + Math.max(...groups.flatMap(({ members }) => members.map((run) => textWidth(shortName(run, members)))));
  drawPlot("distribution-plot", state.shares === "votes" ? "vote-shares" : "radii", (width) => {
    const layout = facets(
      groups.map(({ members }) => EDGE.top + EDGE.bottom + ROW * members.length),
      width,
      { least: 320 },
    );
    const marks = [];
    const children = groups.flatMap(({ sigma, members, all }, k) => {
      const place = layout.places[k];
      const frame = {
        left: place.left + names,
        right: place.left + place.width - EDGE.right,
        top: place.top + EDGE.top - 12,
        bottom: place.top + EDGE.top + ROW * members.length,
      };
      const x = scale([places[0], places[places.length - 1]], [frame.left, frame.right]);
      const title = `σ ${sigmaText(sigma)}${all > members.length ? `, best ${members.length} of ${all} by ACR` : ""}`;
      const xText = (tick) => edgeText(state.shares === "votes" ? edges[tick] : tick);
      const xLabel = state.shares === "votes" ? voteShare() : "certified radius";
      const frameParts = axes(frame, { x, y: (value) => value, xTicks, yTicks: [], xText, xLabel, title });
      return [
        frameParts,
        ...members.flatMap((run, i) => {
          const base = frame.top + 12 + ROW * (i + 1) - 4;
          return ridge(run, shortName(run, members), shown, x, base, marks);
        }),
      ];
    });
    return {
      height: layout.height,
      children,
      marks,
      alt: `Distribution of the ${what} of ${state.outcome} images for ${runs.length} runs, best ACR first.`,
    };
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
  const names = ["correct", "abstained", "wrong"].map((name) =>
    h("span", { class: "number" }, h("i", { class: `key ${name}` }), name),
  );
  const head = h(
    "div",
    { class: "outcome head", "aria-hidden": "true" },
    h("span", { class: "name" }),
    h("span"),
    ...names,
  );
  byId("outcomes").replaceChildren(head, ...bars);
}

panel("distribution-plot", [...RUNS, "shares", "outcome"], drawRidges);
panel("outcomes", RUNS, drawOutcomes);
