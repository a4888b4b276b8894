// One tooltip for mouse, touch and keyboard: it describes the mark nearest to the pointer or chosen with arrow keys.

import { css, h, s } from "./dom.js";

const tip = h("div", { class: "tip", role: "status", hidden: true });
document.body.append(tip);
let hide = () => {};
let owner = null;

function showTip(svg, mark) {
  hide();
  const ring = s("circle", {
    "data-passing": "",
    cx: mark.x,
    cy: mark.y,
    r: 5,
    fill: "none",
    stroke: css("--ink"),
    "stroke-width": 2,
    "pointer-events": "none",
  });
  svg.append(ring);
  owner = svg;
  hide = () => {
    ring.remove();
    tip.hidden = true;
  };
  tip.replaceChildren(h("b", {}, mark.title), ...[mark.text].flat().map((line) => h("span", {}, line)));
  tip.hidden = false;
  const box = svg.getBoundingClientRect();
  const scale = box.width / svg.width.baseVal.value;
  const left = box.left + mark.x * scale;
  const wide = document.documentElement.clientWidth;
  const beside = left + 14 + tip.offsetWidth < wide ? left + 14 : left - 14 - tip.offsetWidth;
  tip.style.left = `${scrollX + Math.max(4, beside)}px`;
  tip.style.top = `${scrollY + Math.max(4, box.top + mark.y * scale - tip.offsetHeight - 10)}px`;
}

const nearest = (marks, x, y) =>
  marks.reduce((best, mark) => {
    const far = (mark.x - x) ** 2 + (mark.y - y) ** 2;
    return best && best.far <= far ? best : { mark, far };
  }, null);

const REACH = 40 ** 2; // square of the largest distance, in pixels, at which the pointer selects a mark

/** Return the mark to which a key moves: in the same series (left, right, Home, End) or the next one (up, down). */
function neighbor(marks, mark, key, far) {
  const series = [...new Set(marks.map((other) => other.series))];
  const own = marks.filter((other) => other.series === mark.series);
  const along = { ArrowLeft: -1, ArrowRight: 1 }[key];
  if (along) return own[Math.min(own.length - 1, Math.max(0, own.indexOf(mark) + along * (far ? 10 : 1)))];
  if (key === "Home") return own[0];
  if (key === "End") return own[own.length - 1];
  const across = { ArrowUp: -1, ArrowDown: 1 }[key];
  if (!across) return null;
  const next = series[(series.indexOf(mark.series) + across + series.length) % series.length];
  return nearest(
    marks.filter((other) => other.series === next),
    mark.x,
    mark.y,
  ).mark;
}

/** Let readers inspect the marks of a plot: { x, y, title, text, series }, in the plot's coordinates. */
export function inspect(svg, marks) {
  if (!marks.length) return;
  let chosen = null;
  const choose = (mark) => {
    chosen = mark;
    showTip(svg, mark);
  };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.width.baseVal.value / box.width;
    const found = nearest(marks, (event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    if (found.far < REACH || event.pointerType === "touch") choose(found.mark);
    else hide();
  };
  svg.tabIndex = 0;
  svg.addEventListener("pointermove", point);
  let pressed = false; // while true, a focus event comes from a pointer, which has already chosen a mark
  svg.addEventListener("pointerdown", (event) => {
    pressed = true;
    point(event);
  });
  for (const end of ["pointerup", "pointercancel"]) {
    svg.addEventListener(end, () => {
      pressed = false;
    });
  }
  svg.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && hide());
  svg.addEventListener("focus", () => !pressed && choose(chosen ?? marks[0]));
  svg.addEventListener("blur", () => owner === svg && hide());
  svg.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return hide();
    const next = neighbor(marks, chosen ?? marks[0], event.key, event.shiftKey);
    if (!next) return;
    event.preventDefault();
    choose(next);
  });
}

export const hideTip = () => hide();
