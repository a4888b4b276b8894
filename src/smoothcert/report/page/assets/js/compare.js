// Paired comparison of two runs on shared images: difference in ACR with its interval, and in accuracy by radius.

import { axes, drawPlot, noPlot, path, scale, ticks } from "./chart.js";
import { data, gridRadii } from "./data.js";
import { byId, css, h, picker, s, setControls, stackedBar, unbroken } from "./dom.js";
import { count, digitsFor, fixed, percent, signed } from "./format.js";
import { colorOf } from "./palette.js";
import { filteredRuns, panel, setter, state } from "./state.js";
import { pairedDifference, Z } from "./statistics.js";

const EDGE = { left: 58, right: 10, top: 12, bottom: 40 };
let unpacked = null;

/** Decompress the codes of each run's images on first use: 0 if not correct, else one plus the step of the radius. */
async function imageSteps() {
  if (unpacked) return unpacked;
  const bytes = Uint8Array.from(atob(data.images.codes), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const all = new Uint8Array(await new Response(stream).arrayBuffer());
  let start = 0;
  unpacked = data.runs.map((run) => {
    start += run.images;
    return all.subarray(start - run.images, start);
  });
  return unpacked;
}

function imageList(run) {
  const list = data.images.lists[data.images.which[run.id]];
  return Array.isArray(list) ? list : Array.from({ length: list.count }, (_, i) => list.start + i * list.step);
}

/** Return both runs' codes for the images that the runs share. */
function sharedSteps(first, second, steps) {
  if (data.images.which[first.id] === data.images.which[second.id]) return [steps[first.id], steps[second.id]];
  const position = new Map(imageList(second).map((index, i) => [index, i]));
  const pairs = imageList(first).flatMap((index, i) =>
    position.has(index) ? [[steps[first.id][i], steps[second.id][position.get(index)]]] : [],
  );
  return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1])];
}

const pairMap = new Map(data.pairs.map(([a, b, gap, error]) => [`${a} ${b}`, { gap, error }]));

function pairOf(first, second) {
  const known = pairMap.get(`${first.id} ${second.id}`);
  const swapped = pairMap.get(`${second.id} ${first.id}`);
  return known ?? (swapped && { ...swapped, gap: -swapped.gap });
}

/** Return the two runs to compare: the chosen ones, or else the best run and the next best at the same noise level. */
function chosenRuns(runs) {
  const chosen = [state.first, state.second].map((id) => runs.find((run) => run.id === id));
  if (chosen[0] && chosen[1]) return chosen;
  const ranked = [...runs].sort((a, b) => b.acr[0] - a.acr[0]);
  const best = chosen[0] ?? ranked[0];
  const others = ranked.filter((run) => run !== best && pairOf(best, run));
  return [
    best,
    chosen[1] ?? others.find((run) => run.sigma === best.sigma && run.images === best.images) ?? others[0] ?? ranked[1],
  ];
}

function verdict(first, second, pair, curve) {
  const low = pair.gap - Z * pair.error;
  const high = pair.gap + Z * pair.error;
  const significant = low > 0 || high < 0;
  const [better, worse] = pair.gap >= 0 ? [first, second] : [second, first];
  const share = (number) => percent(number / curve.images);
  const sentence = significant
    ? `${better.title} has a larger ACR than ${worse.title}.`
    : "The interval contains 0: the difference is not significant.";
  const bar = { first: curve.wins, ties: curve.ties, second: curve.losses };
  const label = `Larger radius: first ${share(curve.wins)}, equal ${share(curve.ties)}, second ${share(curve.losses)}`;
  const [own, other] = [first, second].map(colorOf);
  const colors = own === other ? {} : { first: own, second: other };
  const shared = `of ${count(curve.images)} shared images.`;
  return [
    h("p", { class: "quiet" }, ...unbroken(`${first.title} minus ${second.title}`)),
    h("p", { class: "big", id: "compare-gap" }, signed(pair.gap, 4)),
    h("p", { id: "compare-interval" }, `in ACR, 95 % interval ${signed(low, 4)} to ${signed(high, 4)}`),
    h("p", {}, ...unbroken(sentence)),
    stackedBar(label, bar, curve.images, colors),
    h(
      "p",
      { class: "quiet" },
      ...unbroken(`Larger radius: first run on ${share(curve.wins)}, second on ${share(curve.losses)} ${shared}`),
    ),
  ];
}

function drawDifference(first, second, pair, curve) {
  const end = Math.max(first.curve.findLastIndex(Boolean), second.curve.findLastIndex(Boolean)) + 1;
  const steps = Array.from({ length: Math.min(data.grid.count, end) }, (_, i) => i);
  const most = Math.max(0.02, ...steps.map((i) => Math.max(Math.abs(curve.high[i]), Math.abs(curve.low[i])))) * 1.08;
  drawPlot("compare-plot", "paired-difference", (width) => {
    const height = 280;
    const frame = { left: EDGE.left, right: width - EDGE.right, top: EDGE.top, bottom: height - EDGE.bottom };
    const x = scale([0, gridRadii[steps.length - 1]], [frame.left, frame.right]);
    const y = scale([-most, most], [frame.bottom, frame.top]);
    const place = (values) => (i) => [x(gridRadii[i]), y(values[i])];
    const band = [...steps.map(place(curve.high)), ...[...steps].reverse().map(place(curve.low))];
    const color = colorOf(first);
    const points = (i) => [curve.value, curve.low, curve.high].map((values) => signed(100 * values[i], 1));
    const marks = steps.map((i) => {
      const [gap, low, high] = points(i);
      const text = `r = ${fixed(gridRadii[i], 3)}   ${gap} points (${low} to ${high})`;
      return {
        x: x(gridRadii[i]),
        y: y(curve.value[i]),
        title: `${first.title} minus ${second.title}`,
        text,
        series: 0,
      };
    });
    const yTicks = ticks([-most, most], 5);
    const digits = digitsFor(yTicks.map((tick) => 100 * tick));
    const labels = {
      xLabel: "ℓ₂ radius r",
      yLabel: "difference, points",
      yText: (tick) => (tick === 0 ? "0" : signed(100 * tick, digits)),
    };
    const children = [
      axes(frame, {
        x,
        y,
        xTicks: ticks([0, gridRadii[steps.length - 1]]),
        yTicks,
        ...labels,
      }),
      s("line", {
        x1: frame.left,
        x2: frame.right,
        y1: y(0),
        y2: y(0),
        stroke: css("--quiet"),
        "stroke-dasharray": "3 4",
      }),
      s("path", { d: `${path(band)}Z`, fill: color, "fill-opacity": 0.18 }),
      s("path", { d: path(steps.map(place(curve.value))), fill: "none", stroke: color, "stroke-width": 2 }),
    ];
    const alt = `Difference in certified accuracy, ${first.title} minus ${second.title}, by radius, with its 95 % band. The difference in ACR is ${signed(pair.gap, 4)}.`;
    return { height, children, marks, alt };
  });
}

const pairedRuns = () => filteredRuns().filter((run) => data.pairs.some(([a, b]) => a === run.id || b === run.id));

async function drawCompare() {
  const runs = pairedRuns();
  byId("compare").hidden = runs.length < 2;
  if (runs.length < 2) return;
  const [first, second] = chosenRuns(runs);
  const choices = runs.map((run) => [run.id, run.title]);
  setControls(
    byId("compare-controls"),
    picker("First", choices, first.id, setter("first")),
    picker("Second", choices, second.id, setter("second")),
  );
  const pair = first !== second && pairOf(first, second);
  if (!pair) {
    noPlot("compare-plot", "Choose two different runs that share images.");
    byId("compare-verdict").replaceChildren();
    return;
  }
  const steps = await imageSteps();
  const current = chosenRuns(pairedRuns());
  if (current[0] !== first || current[1] !== second) return; // the reader has chosen other runs meanwhile
  const curve = pairedDifference(...sharedSteps(first, second, steps), data.grid.count);
  drawDifference(first, second, pair, curve);
  byId("compare-verdict").replaceChildren(...verdict(first, second, pair, curve));
}

panel("compare-plot", ["dataset", "sigmas", "methods", "first", "second"], drawCompare);
