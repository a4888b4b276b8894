// Plots as SVG: their frame, axes, key, text alternative, inspection and saving.

import { byId, css, h, s } from "./dom.js";
import { saveButtons } from "./save.js";
import { hideTip, inspect } from "./tip.js";

const widths = new Map();
const redraws = new Map();
const watcher = new ResizeObserver((entries) => {
  for (const { target } of entries)
    if (target.clientWidth && Math.abs(target.clientWidth - widths.get(target)) > 1) redraws.get(target)();
});

export const text = (x, y, content, more = {}) => s("text", { x, y, fill: css("--quiet"), ...more }, content);

const ruler = document.createElement("canvas").getContext("2d");

/** Return the width of a text in a plot, in pixels. */
export function textWidth(content, size = 12) {
  ruler.font = `${size}px ${css("--sans")}`;
  return ruler.measureText(content).width;
}

/** Return a function that maps a range of values to pixels. */
export const scale =
  ([low, high], [from, to]) =>
  (value) =>
    from + ((value - low) / (high - low || 1)) * (to - from);

/** Return a scale that puts values beyond its range at the edge. */
export const clamped = (range, place) => {
  const inner = scale(range, place);
  return (value) => inner(Math.min(range[1], Math.max(range[0], value)));
};

/** Return round values in a range, about `most` of them. */
export function ticks([low, high], most = 6) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

/** Format a tick without needless digits. */
export const tickText = (value) => String(Number(value.toPrecision(6)));

/**
 * Draw a plot into the element `id`, and redraw it whenever the width of the element changes.
 * `paint(width)` returns { height, children, marks, alt }; `name` is the name of saved files.
 */
export function drawPlot(id, name, paint) {
  const holder = byId(id);
  const draw = () => {
    hideTip();
    const width = Math.max(280, Math.floor(holder.clientWidth || 800));
    widths.set(holder, holder.clientWidth);
    const { height, children, marks, alt } = paint(width);
    const size = { width, height, viewBox: `0 0 ${width} ${height}` };
    const font = { "font-family": css("--sans"), "font-size": 12 };
    const focused = holder.contains(document.activeElement);
    const svg = s("svg", { ...size, ...font, role: "img", "aria-label": alt, class: "plot" }, ...children);
    inspect(svg, marks);
    holder.replaceChildren(
      svg,
      saveButtons(name, () => svg),
    );
    if (focused) svg.focus({ preventScroll: true });
  };
  redraws.set(holder, draw);
  watcher.observe(holder);
  draw();
}

/** Show a sentence instead of a plot. */
export function noPlot(id, sentence) {
  redraws.set(byId(id), () => {});
  byId(id).replaceChildren(h("p", { class: "note" }, sentence));
}

/** Lay out equally wide facets of these heights in rows; return their places and the total height. */
export function facets(heights, width, { least = 300, gap = 22, top = 0 } = {}) {
  const columns = Math.max(1, Math.min(heights.length, Math.floor((width + gap) / (least + gap))));
  const wide = (width - gap * (columns - 1)) / columns;
  const places = [];
  let bottom = top - gap;
  for (let start = 0; start < heights.length; start += columns) {
    const row = heights.slice(start, start + columns);
    const shared = { top: bottom + gap, width: wide };
    places.push(...row.map((height, i) => ({ ...shared, left: i * (wide + gap), height, first: i === 0 })));
    bottom += gap + Math.max(...row);
  }
  return { places, height: bottom };
}

/** Draw the grid, the numbers and the labels of both axes inside a frame { left, top, right, bottom }. */
export function axes(frame, { x, y, xTicks, yTicks, xText = tickText, yText = tickText, xLabel, yLabel, title }) {
  const { left, top, right, bottom } = frame;
  const line = (more) => s("line", { stroke: css("--rule"), "stroke-width": 1, ...more });
  const middle = { "text-anchor": "middle" };
  const beside = left - 15 - Math.max(...yTicks.map((tick) => textWidth(yText(tick))));
  return s(
    "g",
    { "aria-hidden": "true" },
    ...yTicks.map((tick) => line({ x1: left, x2: right, y1: y(tick), y2: y(tick) })),
    ...yTicks.map((tick) => text(left - 6, y(tick) + 4, yText(tick), { "text-anchor": "end" })),
    ...xTicks.map((tick) => text(x(tick), bottom + 16, xText(tick), middle)),
    ...xTicks.map((tick) => line({ x1: x(tick), x2: x(tick), y1: bottom, y2: bottom + 3 })),
    xLabel && text((left + right) / 2, bottom + 33, xLabel, middle),
    yLabel && text(0, 0, yLabel, { transform: `translate(${beside} ${(top + bottom) / 2}) rotate(-90)`, ...middle }),
    title && text(left, top - 8, title, { fill: css("--ink"), "font-weight": 600, "font-size": 13 }),
  );
}

/** Draw a key of items { color, dash, name, shape } across the plot; return its elements and its height. */
export function key(items, width) {
  let left = 0;
  let row = 0;
  const parts = items.map(({ color, dash, name, shape }) => {
    const wide = 44 + textWidth(name);
    if (left + wide > width && left) [left, row] = [0, row + 1];
    const y = 12 + 20 * row;
    const sign = shape
      ? s("path", { d: shape, fill: color, transform: `translate(${left + 10} ${y - 4})` })
      : s("line", {
          x1: left,
          x2: left + 20,
          y1: y - 4,
          y2: y - 4,
          stroke: color,
          "stroke-width": 3,
          "stroke-dasharray": dash,
        });
    const label = text(left + 26, y, name, { fill: css("--ink") });
    left += wide;
    return [sign, label];
  });
  return { parts: parts.flat(), height: items.length ? 20 * (row + 1) + 6 : 0 };
}

/** Return the path of a line through points [x, y]. */
export const path = (points) => points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)},${y.toFixed(1)}`).join("");
