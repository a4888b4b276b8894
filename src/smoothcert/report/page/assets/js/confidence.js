// What ACR does not say: how many votes stood behind the certificates, how radii spread, how often it abstained or erred.

const confidenceView = { which: "right" };

/** The bins that were asked for; abstentions have votes but no radius. */
function countsOf(part) {
  if (confidenceView.which !== "all") return part[confidenceView.which];
  return part.right.map((count, i) => count + part.wrong[i] + (part.abstained?.[i] ?? 0));
}

/** A histogram as a stepped line: the last bin is drawn twice so that its step has a width. */
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

const kindText = () => ({ right: "right", wrong: "wrong", all: "all" })[confidenceView.which];
const logTicks = (_, ticks) => ticks.map((tick) => (tick === null ? "" : `${Number((100 * tick).toPrecision(1))} %`));

function drawHistogram(holder, runs, edges, counts, xLabel, what) {
  const floor = Math.min(1e-3, ...runs.map((run) => 1 / run.images)); // a logarithm has no place for none
  linePlot(holder, {
    x: edges,
    lines: runs.map((run) => stepLine(run, runs, counts(run), edges, floor)),
    xLabel,
    yLabel: "share of images",
    logarithmic: true,
    yRange: [floor, 1],
    yValues: logTicks,
    alt: `${what} over ${kindText()} images of ${runs.length} runs, as a histogram with a logarithmic scale.`,
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
    : `${bound === voted.length ? "The votes were not kept" : `For ${bound} of ${voted.length} runs the votes were not kept`}: drawn is the lower bound that the radius rests on.`;
  const reached = Math.max(
    8,
    ...runs.map((run) => run.right.findLastIndex(Boolean) + 1),
    ...runs.map((run) => run.wrong.findLastIndex(Boolean) + 1),
  );
  const { joined, size } = rebin(data.runs[0].right.slice(0, reached), 48);
  const edges = Array.from({ length: joined.length + 1 }, (_, i) => i * size * data.grid.step);
  drawHistogram(
    byId("radius-plot"),
    runs,
    edges,
    (run) => rebin(countsOf({ right: run.right, wrong: run.wrong }).slice(0, reached), 48).joined,
    "certified radius",
    "Certified radius",
  );
  byId("confidence-keys").replaceChildren(...keys(runs));
  drawOutcomes(runs);
}

function drawOutcomes(runs) {
  const bars = runs.map((run) => {
    const parts = [
      ["right", sum(run.right)],
      ["abstained", run.abstained],
      ["wrong", sum(run.wrong)],
    ];
    const text = parts.map(([name, count]) => `${name} ${percent(count / run.images)}`).join(", ");
    return h(
      "div",
      { class: "outcome" },
      h("span", { class: "name" }, run.label, h("span", { class: "quiet" }, ` ${aboutRun(run)}`)),
      h(
        "span",
        { class: "bar", role: "img", "aria-label": `${run.title}: ${text}` },
        ...parts.map(([name, count]) => h("span", { class: name, style: { width: `${(100 * count) / run.images}%` } })),
      ),
      ...parts.map(([name, count]) => h("span", { class: "number", "data-part": name }, percent(count / run.images))),
    );
  });
  const head = h(
    "div",
    { class: "outcome head", "aria-hidden": "true" },
    h("span", { class: "name" }),
    h("span"),
    ...["right", "abstained", "wrong"].map((name) =>
      h("span", { class: "number" }, h("i", { class: `key ${name}` }), name),
    ),
  );
  byId("outcomes").replaceChildren(head, ...bars);
}

byId("confidence-controls").append(
  segmented(
    "Images",
    [
      ["right", "Right"],
      ["wrong", "Wrong"],
      ["all", "All"],
    ],
    "right",
    (which) => {
      confidenceView.which = which;
      drawConfidence();
    },
  ),
);
panels.push(drawConfidence);
