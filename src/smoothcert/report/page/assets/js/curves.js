// Certified accuracy by radius: of each run, or of each method at its best noise level.

const curveView = { mode: "runs", bands: data.runs.length <= 8, paper: false };
const withPaper = data.runs.some((run) => run.paper);

function runLines(runs) {
  return runs.flatMap((run) => {
    const limits = run.curve.map((share) => wilson(share, run.images));
    const line = {
      run,
      title: fullTitle(run),
      values: run.curve,
      colour: colourOf(run),
      dash: dashOf(run, runs),
      band: curveView.bands && { low: limits.map((limit) => limit[0]), high: limits.map((limit) => limit[1]) },
      read: (i) =>
        `${percent(run.curve[i])} (${(100 * limits[i][0]).toFixed(1)} to ${(100 * limits[i][1]).toFixed(1)})`,
    };
    return curveView.paper && run.paper ? [line, paperLine(run)] : [line];
  });
}

function paperLine(run) {
  const values = new Array(gridRadii.length).fill(null);
  for (const [radius, accuracy] of run.paper.accuracy) {
    const i = Math.round(radius / data.grid.step);
    if (i < values.length) values[i] = accuracy / 100;
  }
  return {
    title: `${run.title} (paper)`,
    values,
    colour: colourOf(run),
    dash: [1, 4],
    width: 1.2,
    marks: true,
    read: (i) => (values[i] === null ? "" : percent(values[i])),
  };
}

/** Return a line per method and dataset: the accuracy of the best noise level at every radius. */
function envelopeLines(runs) {
  const groups = unique(runs.map((run) => `${run.dataset}\n${run.methodName}`));
  return groups.map((key) => {
    const members = runs.filter((run) => `${run.dataset}\n${run.methodName}` === key);
    const { best, shares } = envelope(members.map((run) => run.curve));
    const name = severalDatasets() ? `${members[0].methodName}, ${members[0].datasetName}` : members[0].methodName;
    return {
      run: members[0],
      members,
      title: name,
      values: shares,
      colour: colourOf(members[0]),
      dash: [],
      read: (i) => `${percent(shares[i])} with σ ${sigmaText(members[best[i]].sigma)}`,
      best: (i) => members[best[i]].sigma,
    };
  });
}

function curvesAlt(lines) {
  const i = Math.min(gridRadii.length - 1, Math.round(0.5 / data.grid.step));
  const ranked = lines.filter((line) => line.run).sort((a, b) => b.values[i] - a.values[i]);
  if (!ranked.length) return "Certified accuracy by radius; no runs are shown.";
  const ends = unique([ranked[0], ranked[ranked.length - 1]]).map(
    (line) => `${percent(line.values[i])} for ${line.title}`,
  );
  return `Certified accuracy by radius, ${ranked.length} curves; at radius ${gridRadii[i].toFixed(2)} from ${ends.join(" to ")}. The table below has the numbers.`;
}

function drawCurves() {
  const runs = shownRuns();
  const lines = curveView.mode === "runs" ? runLines(runs) : envelopeLines(runs);
  const reached = lines.map((line) => line.values.findLastIndex((share) => share > 0));
  const end = Math.min(gridRadii.length, Math.max(16, ...reached.map((i) => i + 4)));
  // A curve ends where it reaches zero.
  const cut = (values) =>
    values.slice(0, end).map((share, i) => (share > 0 || values[i - 1] > 0 || i === 0 ? share : null));
  linePlot(byId("curves-plot"), {
    x: gridRadii.slice(0, end),
    lines: lines.map((line) =>
      line.marks
        ? { ...line, values: line.values.slice(0, end) }
        : {
            ...line,
            values: cut(line.values),
            band: line.band && { low: cut(line.band.low), high: cut(line.band.high) },
          },
    ),
    xLabel: "ℓ₂ radius r",
    yLabel: "certified accuracy",
    yRange: [0, 1],
    yValues: (_, ticks) => ticks.map((tick) => percent(tick, 0)),
    alt: curvesAlt(lines),
    onMove: readOut,
    xText: (i) => `r = ${gridRadii[i].toFixed(3)}`,
  });
  drawLegend(lines, curveView.mode === "runs" ? null : envelopeLines(filteredRuns()));
}

byId("curves-controls").append(
  ...[
    unique(data.runs.map((run) => run.sigma)).length > 1 &&
      segmented(
        "Curves",
        [
          ["runs", "Each run"],
          ["envelope", "Best σ"],
        ],
        "runs",
        setter(curveView, "mode", drawCurves),
      ),
    toggle("95 % bands", curveView.bands, setter(curveView, "bands", drawCurves)),
    withPaper && toggle("Paper's numbers", false, setter(curveView, "paper", drawCurves)),
  ].filter(Boolean),
);
panels.push(drawCurves);
