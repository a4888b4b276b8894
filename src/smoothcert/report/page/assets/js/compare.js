// Paired comparison of two runs on shared images: difference in ACR with its interval, and in accuracy by radius.

const compareView = { first: null, second: null };
let unpacked = null;

/** Decompress the steps of all images, by run, on first use. */
async function imageSteps() {
  if (unpacked) return unpacked;
  const bytes = Uint8Array.from(atob(data.images.codes), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const all = new Uint8Array(await new Response(stream).arrayBuffer());
  let start = 0;
  unpacked = data.runs.map((run) => all.subarray(start, (start += run.images)));
  return unpacked;
}

function imageList(run) {
  const list = data.images.lists[data.images.which[run.id]];
  return Array.isArray(list) ? list : Array.from({ length: list.count }, (_, i) => list.start + i * list.step);
}

/** Return both runs' steps for the images they share. */
function sharedSteps(first, second, steps) {
  if (data.images.which[first.id] === data.images.which[second.id]) return [steps[first.id], steps[second.id]];
  const position = new Map(imageList(second).map((index, i) => [index, i]));
  const pairs = imageList(first).flatMap((index, i) =>
    position.has(index) ? [[steps[first.id][i], steps[second.id][position.get(index)]]] : [],
  );
  return [pairs.map((pair) => pair[0]), pairs.map((pair) => pair[1])];
}

const pairMap = new Map(data.pairs.map(([a, b, gap, error, images]) => [`${a} ${b}`, { gap, error, images }]));

function pairOf(first, second) {
  const known = pairMap.get(`${first.id} ${second.id}`),
    swapped = pairMap.get(`${second.id} ${first.id}`);
  return known ?? (swapped && { ...swapped, gap: -swapped.gap });
}

function verdict(first, second, pair, curve) {
  const low = pair.gap - Z * pair.error,
    high = pair.gap + Z * pair.error;
  const significant = low > 0 || high < 0;
  const [better, worse] = pair.gap >= 0 ? [first, second] : [second, first];
  const share = (count) => percent(count / curve.images);
  return [
    h("p", { class: "quiet" }, `${first.title} minus ${second.title}`),
    h("p", { class: "big", id: "compare-gap" }, signed(pair.gap, 4)),
    h("p", { id: "compare-interval" }, `in ACR, 95 % interval ${signed(low, 4)} to ${signed(high, 4)}`),
    h(
      "p",
      {},
      significant
        ? `${better.title} has a larger ACR than ${worse.title}.`
        : "The interval contains 0: the difference is not significant.",
    ),
    stackedBar(
      `Larger radius: first ${share(curve.wins)}, equal ${share(curve.ties)}, second ${share(curve.losses)}`,
      { first: curve.wins, ties: curve.ties, second: curve.losses },
      curve.images,
    ),
    h(
      "p",
      { class: "quiet" },
      `Larger radius: first run on ${share(curve.wins)}, second on ${share(curve.losses)} of ${curve.images.toLocaleString("en")} shared images.`,
    ),
  ];
}

async function drawCompare() {
  const { first, second } = compareView;
  const pair = first && second && pairOf(first, second);
  if (!pair) {
    removePlot(byId("compare-plot"));
    byId("compare-verdict").replaceChildren(h("p", {}, "Choose two different runs of one dataset that share images."));
    return;
  }
  const steps = await imageSteps();
  if (compareView.first !== first || compareView.second !== second) return;
  const curve = pairedDifference(...sharedSteps(first, second, steps), data.grid.count);
  const end = Math.min(
    data.grid.count,
    Math.max(first.curve.findLastIndex(Boolean), second.curve.findLastIndex(Boolean)) + 1,
  );
  const cut = (values) => values.slice(0, end);
  const most = Math.max(0.02, ...cut(curve.high).map(Math.abs), ...cut(curve.low).map(Math.abs)) * 1.08;
  linePlot(byId("compare-plot"), {
    x: gridRadii.slice(0, end),
    lines: [
      {
        title: "no difference",
        values: cut(curve.value).map(() => 0),
        colour: css("--quiet"),
        dash: [3, 4],
        width: 1,
        read: () => "",
      },
      {
        title: `${first.title} minus ${second.title}`,
        values: cut(curve.value),
        colour: colourOf(first),
        dash: [],
        band: { low: cut(curve.low), high: cut(curve.high) },
        read: (i) =>
          `${signed(100 * curve.value[i], 1)} points (${signed(100 * curve.low[i], 1)} to ${signed(100 * curve.high[i], 1)})`,
      },
    ],
    xLabel: "ℓ₂ radius r",
    yLabel: "difference, points",
    yRange: [-most, most],
    yValues: (_, ticks) => ticks.map((tick) => (tick === 0 ? "0" : signed(100 * tick, most < 0.04 ? 1 : 0))),
    alt: `Difference in certified accuracy, ${first.title} minus ${second.title}, by radius, with its 95 % band. The difference in ACR is ${signed(pair.gap, 4)}.`,
    xText: (i) => `r = ${gridRadii[i].toFixed(3)}`,
  });
  byId("compare-verdict").replaceChildren(...verdict(first, second, pair, curve));
}

/** List the filtered runs; keep the current choice if both are still listed, else choose the two best. */
function drawCompareControls() {
  const runs = filteredRuns().filter((run) => data.pairs.some(([a, b]) => a === run.id || b === run.id));
  byId("compare").hidden = runs.length < 2;
  if (runs.length < 2) return;
  if (!runs.includes(compareView.first) || !runs.includes(compareView.second)) {
    const ranked = [...runs].sort((a, b) => b.acr[0] - a.acr[0]);
    compareView.first = ranked[0];
    compareView.second =
      ranked.find((run) => pairOf(ranked[0], run) && run.sigma === ranked[0].sigma) ??
      ranked.find((run) => pairOf(ranked[0], run)) ??
      ranked[1];
  }
  const choices = runs.map((run) => [run, fullTitle(run)]);
  byId("compare-controls").replaceChildren(
    picker("First", choices, compareView.first, setter(compareView, "first", drawCompare)),
    picker("Second", choices, compareView.second, setter(compareView, "second", drawCompare)),
  );
  return drawCompare();
}

panels.push(drawCompareControls);
