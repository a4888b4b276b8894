// Clean accuracy against certified accuracy at a chosen radius, one point a run.

const tradeoffView = { radius: Math.max(1, data.radii.findIndex((radius) => radius >= 0.5)), paper: false };
const atRadius = (run, i) => run.table[i] / run.images;

function niceRange(values) {
  const low = Math.min(...values), high = Math.max(...values), margin = Math.max(0.02, 0.12 * (high - low));
  return [Math.max(0, low - margin), Math.min(1, high + margin)];
}

function ticksOf([low, high]) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2].find((size) => (high - low) / size <= 7) ?? 0.25;
  return Array.from({ length: 40 }, (_, i) => (Math.ceil(low / step) + i) * step).filter((tick) => tick <= high + 1e-9);
}

/** Points of one method, data set and noise level whose setting differs, in its order. */
function settingPaths(runs) {
  const key = (run) => `${run.dataset}\n${run.method}\n${run.sigma}`;
  const varied = runs.filter((run) => run.setting);
  return unique(varied.map(key)).map((group) => varied.filter((run) => key(run) === group).sort((a, b) => a.setting.value - b.setting.value)).filter((members) => members.length > 1);
}

function drawTradeoff() {
  const holder = byId("tradeoff"), runs = shownRuns(), radius = data.radii[tradeoffView.radius];
  if (!runs.length) return holder.replaceChildren(h("p", { class: "note" }, "No run is shown."));
  const wide = holder.clientWidth || 800, width = Math.max(320, wide), height = Math.min(460, Math.max(320, width * 0.5));
  const edge = { left: 58, right: 18, top: 14, bottom: 46 };
  const clean = (run) => run.curve[0];
  const paper = (run) => tradeoffView.paper && run.paper && paperAt(run, radius) !== undefined && [paperAt(run, 0) / 100, paperAt(run, radius) / 100];
  const papers = runs.map(paper).filter(Boolean);
  const xs = niceRange([...runs.map(clean), ...papers.map((point) => point[0])]);
  const ys = niceRange([...runs.map((run) => atRadius(run, tradeoffView.radius)), ...papers.map((point) => point[1])]);
  const x = (value) => edge.left + ((value - xs[0]) / (xs[1] - xs[0])) * (width - edge.left - edge.right);
  const y = (value) => height - edge.bottom - ((value - ys[0]) / (ys[1] - ys[0])) * (height - edge.top - edge.bottom);
  const grid = [
    ...ticksOf(xs).flatMap((tick) => [s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: edge.top, y2: height - edge.bottom }), s("text", { x: x(tick), y: height - edge.bottom + 17, "text-anchor": "middle" }, percent(tick, 0))]),
    ...ticksOf(ys).flatMap((tick) => [s("line", { class: "grid", y1: y(tick), y2: y(tick), x1: edge.left, x2: width - edge.right }), s("text", { x: edge.left - 8, y: y(tick) + 4, "text-anchor": "end" }, percent(tick, 0))]),
    s("text", { class: "label", x: (edge.left + width - edge.right) / 2, y: height - 8, "text-anchor": "middle" }, "clean accuracy (r = 0)"),
    s("text", { class: "label", transform: `translate(14 ${(height - edge.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, `certified accuracy at r = ${radius.toFixed(2)}`),
  ];
  const lines = settingPaths(runs).map((members) => s("polyline", {
    class: "path", stroke: `var(--run-${colourSlot(members[0])})`, points: members.map((run) => `${x(clean(run))},${y(atRadius(run, tradeoffView.radius))}`).join(" "),
  }));
  const levels = unique(runs.map((run) => run.sigma)).sort((a, b) => a - b);
  const theirs = runs.flatMap((run) => (paper(run) ? [s("g", { class: "theirs", stroke: `var(--run-${colourSlot(run)})` },
    s("line", { x1: x(clean(run)), y1: y(atRadius(run, tradeoffView.radius)), x2: x(paper(run)[0]), y2: y(paper(run)[1]) }), s("circle", { cx: x(paper(run)[0]), cy: y(paper(run)[1]), r: 5 }))] : []));
  const points = runs.map((run) => tradeoffPoint(run, x(clean(run)), y(atRadius(run, tradeoffView.radius)), levels.indexOf(run.sigma), radius));
  const names = labelSpots(runs.map((run) => ({ x: x(clean(run)), y: y(atRadius(run, tradeoffView.radius)), text: run.setting ? String(run.setting.value) : `${run.label}${levels.length > 1 ? ` ${sigmaText(run.sigma)}` : ""}` })), edge.left, width - edge.right);
  holder.replaceChildren(s("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": `Clean accuracy against certified accuracy at radius ${radius.toFixed(2)}, one point for each of ${runs.length} runs` },
    s("g", { class: "frame", "aria-hidden": "true" }, ...grid), ...lines, ...theirs, ...points, s("g", { class: "names", "aria-hidden": "true" }, ...names)));
}

const SHAPES = ["M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0", "M-4.6,-4.6h9.2v9.2h-9.2z", "M0,-6l5.8,10h-11.6z", "M0,-6.4l5.6,6.4l-5.6,6.4l-5.6,-6.4z"];

function tradeoffPoint(run, x, y, level, radius) {
  const setting = run.setting ? `, ${run.setting.name} ${run.setting.value}` : "";
  const text = `${run.title}${setting}: ${percent(run.curve[0])} clean, ${percent(atRadius(run, tradeoffView.radius))} at r = ${radius.toFixed(2)}`;
  return s("path", { class: "point", d: SHAPES[level % SHAPES.length], transform: `translate(${x} ${y})`, fill: `var(--run-${colourSlot(run)})`, tabindex: 0, role: "img", "aria-label": text, "data-run": run.id }, s("title", {}, text));
}

/** Texts beside their points, left out where they would lie over another one. */
function labelSpots(spots, left, right) {
  const taken = spots.map((spot) => ({ left: spot.x - 5, top: spot.y - 5, width: 10, height: 10 }));
  const apart = (a, b) => a.left >= b.left + b.width || b.left >= a.left + a.width || a.top >= b.top + b.height || b.top >= a.top + a.height;
  return spots.flatMap(({ x, y, text }) => {
    const width = 6 * text.length, height = 13;
    const places = [[x + 9, y - 6], [x - 9 - width, y - 6], [x - width / 2, y - 20], [x - width / 2, y + 8]];
    const box = places.map(([from, top]) => ({ left: from, top, width, height })).find((at) => at.left > left && at.left + at.width < right && taken.every((other) => apart(at, other)));
    if (!box) return [];
    taken.push(box);
    return [s("text", { x: box.left, y: box.top + 10 }, text)];
  });
}

function tradeoffControls() {
  const shown = h("output", {}, `r = ${data.radii[tradeoffView.radius].toFixed(2)}`);
  const slider = h("input", { type: "range", min: 1, max: data.radii.length - 1, step: 1, value: tradeoffView.radius, oninput: () => {
    tradeoffView.radius = Number(slider.value);
    shown.textContent = `r = ${data.radii[tradeoffView.radius].toFixed(2)}`;
    drawTradeoff();
  } });
  return [h("label", { class: "picker" }, h("span", {}, "Radius"), slider, shown), withPaper && toggle("Paper's numbers", false, (on) => { tradeoffView.paper = on; drawTradeoff(); })].filter(Boolean);
}

if (data.radii.length > 1) {
  byId("tradeoff-controls").append(...tradeoffControls());
  panels.push(drawTradeoff);
  new ResizeObserver(drawTradeoff).observe(byId("tradeoff"));
} else {
  byId("tradeoff").closest("section").hidden = true;
}
