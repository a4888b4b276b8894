// ACR of the runs with their 95 % intervals, ranked, one facet per noise level.

import { axes, drawPlot, noPlot, scale, text, textWidth, ticks } from "./chart.js";
import { byId, css, s } from "./dom.js";
import { digitsFor, fixed, percent, sigmaText } from "./format.js";
import { comparedRuns, shortName } from "./message.js";
import { colorOf } from "./palette.js";
import { panel, RUNS, sigmasOf } from "./state.js";

const ROW = 22;
const EDGE = { top: 26, bottom: 30, right: 16 };
const MOST = 14; // runs per facet

/** Return the facets: the best runs of each noise level, best first. */
function ranked(runs) {
  return sigmasOf(runs).map((sigma) => {
    const members = runs.filter((run) => run.sigma === sigma).sort((a, b) => b.acr[0] - a.acr[0]);
    return { sigma, members: members.slice(0, MOST), all: members.length };
  });
}

function dot(run, i, x, y) {
  const color = colorOf(run);
  const top = { "font-weight": i ? 400 : 700, fill: css("--ink") };
  return [
    s("line", { x1: x(run.acr[2]), x2: x(run.acr[3]), y1: y, y2: y, stroke: color, "stroke-width": 2.5 }),
    s("circle", { cx: x(run.acr[0]), cy: y, r: i ? 4.5 : 6, fill: color }),
    text(x(run.acr[3]) + 9, y + 4, run.printed[0], top),
  ];
}

function facet({ sigma, members, all }, { left, top, width }, names, marks) {
  const start = left + names;
  const values = members.flatMap((run) => [run.acr[2], run.acr[3]]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const margin = 0.06 * (high - low) || 0.02;
  const range = [Math.max(0, low - margin), high + margin];
  const x = scale(range, [start, left + width - EDGE.right - 40]);
  const xTicks = ticks(range, 4);
  const digits = digitsFor(xTicks, 2);
  const bottom = top + EDGE.top + ROW * members.length;
  const frame = { left: start, right: left + width - EDGE.right, top: top + EDGE.top, bottom };
  const more = all > members.length ? `, best ${members.length} of ${all}` : "";
  const rows = members.flatMap((run, i) => {
    const y = top + EDGE.top + ROW * (i + 0.5);
    const interval = `ACR ${run.printed[0]}, 95 % interval ${run.interval.join(" to ")}`;
    marks.push({
      x: x(run.acr[0]),
      y,
      title: run.title,
      text: [interval, `clean accuracy ${percent(run.curve[0])}`],
      series: sigma,
    });
    return [
      text(start - 10, y + 4, shortName(run, members), {
        "text-anchor": "end",
        fill: css("--ink"),
        "font-weight": i ? 400 : 700,
      }),
      ...dot(run, i, x, y),
    ];
  });
  return [
    axes(frame, {
      x,
      y: (value) => value,
      xTicks,
      yTicks: [],
      xText: (tick) => fixed(tick, digits),
      title: `σ ${sigmaText(sigma)}${more}`,
    }),
    ...rows,
  ];
}

function drawRanking() {
  const { runs, remark } = comparedRuns();
  const zoomed = runs.length ? "The axes may start above 0." : "";
  byId("ranking-remark").textContent = [zoomed, remark].filter(Boolean).join(" ");
  if (!runs.length) return noPlot("ranking-plot", "No runs are shown.");
  const groups = ranked(runs);
  const names =
    16 + Math.max(...groups.flatMap(({ members }) => members.map((run) => textWidth(shortName(run, members), 12.5))));
  drawPlot("ranking-plot", "acr", (width) => {
    const marks = [];
    let top = 0;
    const children = groups.flatMap((group) => {
      const drawn = facet(group, { left: 0, top, width }, names, marks);
      top += EDGE.top + ROW * group.members.length + EDGE.bottom;
      return drawn;
    });
    const best = groups.map(
      ({ sigma, members }) => `${members[0].label} ${members[0].printed[0]} at σ ${sigmaText(sigma)}`,
    );
    return { height: top, children, marks, alt: `Average certified radius, ranked. Best: ${best.join(", ")}.` };
  });
}

panel("ranking-plot", RUNS, drawRanking);
