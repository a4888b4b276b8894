// Distributions of vote shares and radii, and the shares of correct, wrong and abstained images.

const confidenceView = { which: "correct" };

/** Return the histogram of the selected images; abstentions have votes but no radius. */
function countsOf(part) {
  if (confidenceView.which !== "all") return part[confidenceView.which];
  return part.correct.map((count, i) => count + part.wrong[i] + (part.abstained?.[i] ?? 0));
}

/** Return a histogram as a stepped line; the last bin is repeated to give its step a width. */
function stepLine(run, runs, counts, edges, floor) {
  const shares = counts.map((count) => count / run.images);
  const stepped = [...shares, shares[shares.length - 1]];
  return {
    title: run.title,
    values: stepped.map((share) => Math.max(share, floor)),
    colour: colourOf(run),
    dash: dashOf(run, runs),
    steps: true,
    width: 1.6,
    read: (i) =>
      `${percent(stepped[i], 2)} from ${edges[Math.min(i, shares.length - 1)].toFixed(2)} to ${edges[Math.min(i + 1, edges.length - 1)].toFixed(2)}`,
  };
}

const logTicks = (_, ticks) => ticks.map((tick) => (tick === null ? "" : `${Number((100 * tick).toPrecision(1))} %`));

function drawHistogram(holder, runs, edges, counts, xLabel, title) {
  const floor = Math.min(1e-3, ...runs.map((run) => 1 / run.images)); // zero cannot be drawn on a logarithmic axis
  linePlot(holder, {
    x: edges,
    lines: runs.map((run) => stepLine(run, runs, counts(run), edges, floor)),
    xLabel,
    yLabel: "share of images",
    logarithmic: true,
    yRange: [floor, 1],
    yValues: logTicks,
    alt: `${title} of ${confidenceView.which} images, as a histogram of ${runs.length} runs with a logarithmic scale.`,
    xText: () => "",
  });
}

function drawConfidence() {
  const runs = shownRuns(),
    voted = runs.filter((run) => run.votes);
  const bins = 50,
    from = Math.min(25, ...voted.map((run) => countsOf(run.votes).findIndex(Boolean)).filter((i) => i >= 0));
  const shares = Array.from({ length: bins + 1 - from }, (_, i) => (from + i) / bins);
  drawHistogram(
    byId("votes-plot"),
    voted,
    shares,
    (run) => countsOf(run.votes).slice(from),
    "vote share",
    "Vote share of the certified class",
  );
  const bound = voted.filter((run) => !run.votes.exact).length;
  byId("votes-remark").textContent = !bound
    ? ""
    : `${bound === voted.length ? "Votes were not saved" : `${bound} of ${voted.length} runs did not save votes`}; the plot shows the lower bound that follows from the radius.`;
  const reached = Math.max(
    8,
    ...runs.map((run) => run.correct.findLastIndex(Boolean) + 1),
    ...runs.map((run) => run.wrong.findLastIndex(Boolean) + 1),
  );
  const { joined, size } = rebin(data.runs[0].correct.slice(0, reached), 48);
  const edges = Array.from({ length: joined.length + 1 }, (_, i) => i * size * data.grid.step);
  drawHistogram(
    byId("radius-plot"),
    runs,
    edges,
    (run) => rebin(countsOf({ correct: run.correct, wrong: run.wrong }).slice(0, reached), 48).joined,
    "certified radius",
    "Certified radius",
  );
  byId("confidence-keys").replaceChildren(...legendKeys(runs));
  drawOutcomes(runs);
}

function drawOutcomes(runs) {
  const bars = runs.map((run) => {
    const parts = { correct: sum(run.correct), abstained: run.abstained, wrong: sum(run.wrong) };
    const shares = Object.entries(parts).map(([name, count]) => [name, percent(count / run.images)]);
    const text = shares.map((pair) => pair.join(" ")).join(", ");
    return h(
      "div",
      { class: "outcome" },
      h("span", { class: "name" }, run.label, h("span", { class: "quiet" }, ` ${aboutRun(run)}`)),
      stackedBar(`${run.title}: ${text}`, parts, run.images),
      ...shares.map(([name, share]) => h("span", { class: "number", "data-part": name }, share)),
    );
  });
  const head = h(
    "div",
    { class: "outcome head", "aria-hidden": "true" },
    h("span", { class: "name" }),
    h("span"),
    ...["correct", "abstained", "wrong"].map((name) =>
      h("span", { class: "number" }, h("i", { class: `key ${name}` }), name),
    ),
  );
  byId("outcomes").replaceChildren(head, ...bars);
}

byId("confidence-controls").append(
  segmented(
    "Images",
    [
      ["correct", "Correct"],
      ["wrong", "Wrong"],
      ["all", "All"],
    ],
    "correct",
    setter(confidenceView, "which", drawConfidence),
  ),
);
panels.push(drawConfidence);
