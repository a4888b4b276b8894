// Heat maps by corruption, and by severity or network. They mark the best value of each row, or show differences from
// Gaussian training.

import { drawPlot, text, textWidth } from "./chart.js";
import { data } from "./data.js";
import { byId, css, h, picker, s, setControls, toggle } from "./dom.js";
import { fixed, signed } from "./format.js";
import { panel, setter, state } from "./state.js";

const ROW = 24;
const LEAST = 35; // least width of a column at which its numbers are easy to read
const baselineOf = (map) => map.columns.findIndex((name) => name.startsWith("Gaussian"));

/** Return the rows of numbers, with a column of means if there are several severities. */
function rowsOf(map) {
  const several = map.means.length > 0;
  const rows = map.values.map((row, i) => (several ? [...row, map.means[i]] : row));
  const base = baselineOf(map);
  const gaps = state.heatGap && base >= 0;
  const minus = (value, other) => (value === null || other === null ? null : value - other);
  return {
    columns: several ? [...map.columns, "mean"] : map.columns,
    rows: gaps ? rows.map((row) => row.map((value) => minus(value, row[base]))) : rows,
    gaps,
    ranked: !several && map.columns.length > 1,
  };
}

/** Mix two colors #rrggbb; `part` is the share of the second color. */
function mix(from, to, part) {
  const channel = (color, i) => Number.parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
  const mixed = [0, 1, 2].map((i) => Math.round(channel(from, i) + part * (channel(to, i) - channel(from, i))));
  return `#${mixed.map((value) => value.toString(16).padStart(2, "0")).join("")}`;
}

/** Return the range of the color scale, and a function from values to colors; negative differences differ in hue. */
function coloring(values, gaps) {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [weak, strong, bad] = [css("--heat-low"), css("--heat-high"), css("--wrong")];
  const most = Math.max(Math.abs(low), Math.abs(high)) || 1;
  if (gaps)
    return { low: -most, high: most, color: (value) => mix(weak, value < 0 ? bad : strong, Math.abs(value) / most) };
  return { low, high, color: (value) => mix(weak, strong, (value - low) / (high - low || 1)) };
}

/** Return black or white, whichever is easier to read on a color. */
function inkOn(color) {
  const [red, green, blue] = [1, 3, 5].map((i) => (Number.parseInt(color.slice(i, i + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 ? "#000000" : "#ffffff";
}

/** Draw the scale of the colors, with its ends as numbers. */
function legend({ low, high, color }, left, top, write) {
  const parts = Array.from({ length: 40 }, (_, i) =>
    s("rect", { x: left + 4 * i, y: top, width: 4.5, height: 10, fill: color(low + ((high - low) * i) / 39) }),
  );
  return [
    ...parts,
    text(left - 6, top + 9, write(low), { "text-anchor": "end" }),
    text(left + 168, top + 9, write(high)),
  ];
}

const rowName = (kind) => kind.replaceAll("_", " ");
const namesWidth = (map) => 12 + Math.max(...map.kinds.map((kind) => textWidth(rowName(kind))));

/** Return how far rotated titles reach beyond the last column if columns have the least width. */
const overhang = (columns) =>
  Math.max(0, ...columns.map((name, i) => 4 + 0.77 * textWidth(name) - LEAST * (columns.length - i - 0.5)));

/** Return the least width of the map at which its numbers are easy to read; on narrower screens, the map scrolls. */
const leastWidth = (map, columns) => namesWidth(map) + LEAST * columns.length + overhang(columns);

function paint(map, width) {
  const { columns, rows, gaps, ranked } = rowsOf(map);
  const digits = Math.max(...map.values.flat()) < 10 ? 3 : 1; // a maximum below 10 means radii, else percentages
  const write = (value) => (gaps ? signed(value, digits) : fixed(value, digits));
  const colors = coloring(
    rows.flat().filter((value) => value !== null),
    gaps,
  );
  const names = namesWidth(map);
  const longest = Math.max(...columns.map((name) => textWidth(name)));
  const turned = longest + 6 > Math.min(110, (width - names) / columns.length);
  const beside = turned ? overhang(columns) : 0;
  const wide = Math.min(110, Math.max(LEAST, (width - names - beside) / columns.length));
  const head = turned ? 18 + 0.66 * longest : 26;
  const marks = [];
  const cells = rows.flatMap((row, i) => {
    const best = ranked
      ? Math.max(...row.filter((value) => value !== null).map((value) => Number(fixed(value, digits))))
      : null;
    const y = head + ROW * i;
    const mean = map.kinds[i].startsWith("mean");
    const name = rowName(map.kinds[i]);
    return [
      text(names - 8, y + 16, name, { "text-anchor": "end", fill: css("--ink"), "font-weight": mean ? 700 : 400 }),
      ...row.flatMap((value, k) => {
        const x = names + wide * k;
        if (value === null) return [text(x + wide / 2, y + 16, "–", { "text-anchor": "middle" })];
        const color = colors.color(value);
        const wins = best !== null && Number(fixed(value, digits)) === best;
        marks.push({
          x: x + wide / 2,
          y: y + ROW / 2,
          title: `${name}, ${columns[k]}`,
          text: `${write(value)}${wins ? ", the best of the row" : ""}`,
          series: i,
        });
        return [
          s("rect", {
            x,
            y,
            width: wide - 1.5,
            height: ROW - 1.5,
            fill: color,
            stroke: wins ? css("--ink") : "none",
            "stroke-width": 1.5,
            "data-cell": write(value),
          }),
          text(x + wide / 2, y + 16, write(value), {
            "text-anchor": "middle",
            fill: inkOn(color),
            "font-size": wide < 44 ? 10 : 11,
            "font-weight": wins ? 700 : 400,
          }),
        ];
      }),
    ];
  });
  const titles = columns.map((name, k) => {
    const x = names + wide * (k + 0.5);
    const turn = turned
      ? { transform: `translate(${x} ${head - 6}) rotate(-40)` }
      : { x, y: head - 8, "text-anchor": "middle" };
    return s("text", { fill: css("--ink"), ...turn }, name);
  });
  const bottom = head + ROW * rows.length + 16;
  const alt = `${map.title}${gaps ? ", difference from Gaussian" : ""}, by corruption. ${ranked ? "The best value of each row has a frame." : ""}`;
  return {
    height: bottom + 20,
    children: [...titles, ...cells, ...legend(colors, names + 40, bottom, write)],
    marks,
    alt,
  };
}

function drawCorruption() {
  byId("corruption-section").hidden = !data.heatmaps.length;
  if (!data.heatmaps.length) return;
  const map = data.heatmaps[state.heat];
  const choices = data.heatmaps.map((one, i) => [i, one.title]);
  setControls(
    byId("corruption-controls"),
    choices.length > 1 ? picker("Result", choices, state.heat, setter("heat")) : h("b", {}, map.title),
    baselineOf(map) >= 0 &&
      map.columns.length > 1 &&
      toggle("Difference from Gaussian", state.heatGap, setter("heatGap")),
  );
  byId("corruption-plot").style.minWidth = `${leastWidth(map, rowsOf(map).columns)}px`;
  drawPlot("corruption-plot", "corruptions", (width) => paint(map, width));
}

panel("corruption-plot", ["heat", "heatGap"], drawCorruption);
