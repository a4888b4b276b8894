// SVG frame of a scatter plot: ranges, ticks, scales and labels.

const EDGE = { left: 58, right: 18, top: 14, bottom: 46 };
const SHAPES = [
  "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0",
  "M-4.6,-4.6h9.2v9.2h-9.2z",
  "M0,-6l5.8,10h-11.6z",
  "M0,-6.4l5.6,6.4l-5.6,6.4l-5.6,-6.4z",
];

function niceRange(values) {
  const low = Math.min(...values),
    high = Math.max(...values),
    margin = Math.max(0.02, 0.12 * (high - low));
  return [Math.max(0, low - margin), Math.min(1, high + margin)];
}

function ticksOf([low, high]) {
  const step = [0.01, 0.02, 0.05, 0.1, 0.2].find((size) => (high - low) / size <= 7) ?? 0.25;
  return Array.from({ length: 40 }, (_, i) => (Math.ceil(low / step) + i) * step).filter((tick) => tick <= high + 1e-9);
}

/** Return functions that map shares to coordinates in a plot as wide as its holder. */
function makeScales(holder, xValues, yValues) {
  const width = Math.max(320, holder.clientWidth || 800);
  const height = Math.min(460, Math.max(320, width * 0.5));
  const xs = niceRange(xValues);
  const ys = niceRange(yValues);
  const part = (value, [low, high]) => (value - low) / (high - low);
  return {
    width,
    height,
    xs,
    ys,
    x: (value) => EDGE.left + part(value, xs) * (width - EDGE.left - EDGE.right),
    y: (value) => height - EDGE.bottom - part(value, ys) * (height - EDGE.top - EDGE.bottom),
  };
}

/** Draw grid lines, numbers and labels of both axes. */
function scatterFrame({ width, height, xs, ys, x, y }, xLabel, yLabel) {
  const right = width - EDGE.right;
  const bottom = height - EDGE.bottom;
  const middle = { "text-anchor": "middle" };
  const columns = ticksOf(xs).flatMap((tick) => [
    s("line", { class: "grid", x1: x(tick), x2: x(tick), y1: EDGE.top, y2: bottom }),
    s("text", { x: x(tick), y: bottom + 17, ...middle }, percent(tick, 0)),
  ]);
  const rows = ticksOf(ys).flatMap((tick) => [
    s("line", { class: "grid", y1: y(tick), y2: y(tick), x1: EDGE.left, x2: right }),
    s("text", { x: EDGE.left - 8, y: y(tick) + 4, "text-anchor": "end" }, percent(tick, 0)),
  ]);
  const turned = { class: "label", transform: `translate(14 ${bottom / 2}) rotate(-90)`, ...middle };
  const below = { class: "label", x: (EDGE.left + right) / 2, y: height - 8, ...middle };
  return s("g", { "aria-hidden": "true" }, ...columns, ...rows, s("text", below, xLabel), s("text", turned, yLabel));
}

/** Draw labels next to their points; labels without a free position are left out. */
function drawLabels(points, left, right) {
  const taken = points.map((point) => ({ left: point.x - 5, top: point.y - 5, width: 10, height: 10 }));
  const disjoint = (a, b) =>
    a.left >= b.left + b.width || b.left >= a.left + a.width || a.top >= b.top + b.height || b.top >= a.top + a.height;
  return points.flatMap(({ x, y, text }) => {
    const width = 6 * text.length,
      height = 13;
    const positions = [
      [x + 9, y - 6],
      [x - 9 - width, y - 6],
      [x - width / 2, y - 20],
      [x - width / 2, y + 8],
    ];
    const box = positions
      .map(([from, top]) => ({ left: from, top, width, height }))
      .find((at) => at.left > left && at.left + at.width < right && taken.every((other) => disjoint(at, other)));
    if (!box) return [];
    taken.push(box);
    return [s("text", { x: box.left, y: box.top + 10 }, text)];
  });
}
