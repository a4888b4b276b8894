// Names beside points, placed so that they cover neither points nor each other. Lines link distant names to points.

import { textWidth } from "./chart.js";
import { css, s } from "./dom.js";

const SIZE = 11;
const TALL = 13;
const DISTANCES = [16, 24, 34, 46, 60, 76, 94, 114];
const DIRECTIONS = Array.from({ length: 16 }, (_, i) => (Math.PI * i) / 8);

const around = (x, y, half) => ({ left: x - half, top: y - half, width: 2 * half, height: 2 * half });
const disjoint = (a, b) =>
  a.left >= b.left + b.width || b.left >= a.left + a.width || a.top >= b.top + b.height || b.top >= a.top + a.height;
const within = (box, frame) =>
  box.left >= frame.left &&
  box.left + box.width <= frame.right &&
  box.top >= frame.top &&
  box.top + box.height <= frame.bottom;

/** Return small boxes along a line, without its first `skip` pixels. */
export function alongLine([x1, y1], [x2, y2], skip = 0) {
  const length = Math.hypot(x2 - x1, y2 - y1);
  const count = Math.max(0, Math.ceil((length - skip) / 4));
  return Array.from({ length: count }, (_, i) => {
    const part = (skip + 4 * i) / length;
    return around(x1 + part * (x2 - x1), y1 + part * (y2 - y1), 1);
  });
}

/** Return the places for a name of this width, best first: at its point, then at the end of longer and longer lines. */
function places(x, y, width) {
  const box = (left, top) => ({ left, top, width, height: TALL });
  const beside = [
    box(x + 8, y - 7),
    box(x - 8 - width, y - 7),
    box(x - width / 2, y - 8 - TALL),
    box(x - width / 2, y + 7),
  ];
  const distant = DISTANCES.flatMap((distance) =>
    DIRECTIONS.map((angle) => {
      const end = [x + distance * Math.cos(angle), y + distance * Math.sin(angle)];
      const [across, down] = [Math.cos(angle), Math.sin(angle)].map((value) => (1 - value) / 2);
      return { ...box(end[0] - across * width, end[1] - down * TALL), end };
    }),
  );
  return [...beside, ...distant];
}

/**
 * Draw the names of points { x, y, name } inside a frame; a name is omitted if there is no free place for it.
 * `obstacles` are further boxes { left, top, width, height } that names must not cover.
 */
export function nameLabels(points, frame, obstacles = []) {
  const taken = [...points.map(({ x, y }) => around(x, y, 6)), ...obstacles];
  const named = [];
  return points.flatMap((point) => {
    const { x, y, name } = point;
    const others = points.filter((other) => other !== point);
    // A name near another point could be mistaken for the name of that point.
    const wide = others.map((other) => ({ left: other.x - 18, top: other.y - 11, width: 36, height: 22 }));
    const clear = (box) => wide.every((other) => disjoint(box, other));
    const free = (box) => taken.every((other) => disjoint(box, other));
    const leader = ({ end }) => (end ? alongLine([x, y], end, 8) : []);
    const dots = others.map((other) => around(other.x, other.y, 6));
    const crosses = (box, obstacles) => leader(box).some((part) => obstacles.some((other) => !disjoint(part, other)));
    const possible = places(x, y, textWidth(name, SIZE) + 2).filter(
      (box) => within(box, frame) && free(box) && !crosses(box, named),
    );
    const uncrossed = possible.filter((box) => !crosses(box, dots));
    const fitting = uncrossed.length ? uncrossed : possible;
    const box = fitting.find((one) => !one.end && clear(one)) ?? fitting.find((one) => one.end) ?? fitting[0];
    if (!box) return [];
    taken.push(box, ...leader(box));
    named.push(box);
    const at = { x: box.left + 1, y: box.top + 10, fill: css("--ink"), "font-size": SIZE, class: "label" };
    const label = s("text", at, name);
    const line = { x1: x, y1: y, x2: box.end?.[0], y2: box.end?.[1], stroke: css("--quiet"), "stroke-width": 0.8 };
    return box.end ? [s("line", line), label] : [label];
  });
}
