// Images with noise, and bars of votes.

import { data } from "./data.js";
import { h } from "./dom.js";
import { count, roundDown } from "./format.js";

const sheets = new Map();

/** Return a generator of standard normal numbers (mulberry32 and Box-Muller), the same each time the page is opened. */
function normals(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** Decode the image sheet of a dataset, once. */
export function sheetOf(dataset) {
  if (!sheets.has(dataset)) {
    const sheet = data.gallery.sheets.find((other) => other.dataset === dataset);
    sheets.set(
      dataset,
      sheet &&
        new Promise((resolve, reject) => {
          const picture = new Image();
          picture.onload = () => resolve({ ...sheet, picture });
          picture.onerror = () => reject(new Error("Cannot decode the image sheet."));
          picture.src = sheet.png;
        }),
    );
  }
  return sheets.get(dataset);
}

/** Draw an image of the sheet on a canvas, with Gaussian noise if sigma is not 0. */
export function canvasOf(sheet, position, alt, sigma = 0, draw = 0) {
  const [width, height] = sheet.size;
  const canvas = h("canvas", { width, height, role: "img", "aria-label": alt });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(sheet.picture, 0, position * height, width, height, 0, 0, width, height);
  if (sigma) {
    const pixels = context.getImageData(0, 0, width, height),
      next = normals(1000003 * draw + sheet.indices[position]);
    sheet.gray ??= isGray(pixels.data);
    const gray = sheet.gray;
    const scale = (255 * sigma) / sheet.shrink; // averaging k x k pixels divides the noise level by k
    for (let i = 0; i < pixels.data.length; i += 4) {
      const same = gray ? scale * next() : 0;
      for (let channel = 0; channel < 3; channel++) pixels.data[i + channel] += gray ? same : scale * next();
    }
    context.putImageData(pixels, 0, 0);
  }
  return canvas;
}

function isGray(pixels) {
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i] !== pixels[i + 1] || pixels[i] !== pixels[i + 2]) return false;
  return true;
}

export const className = (sheet, label) => (label < 0 ? "abstains" : (sheet.classes[label] ?? String(label)));

/** Describe a pick in one line. */
export function pickText(sheet, pick) {
  const label = className(sheet, sheet.labels[pick.image]);
  if (pick.predict < 0) return `${label}: abstains`;
  const result =
    pick.predict === sheet.labels[pick.image] ? label : `${label} classified as ${className(sheet, pick.predict)}`;
  return `${result}, radius ${roundDown(pick.radius, 3)}`;
}

/** Create bars of votes, the true class highlighted; without votes, one bar for the lower bound from the radius. */
export function voteBars(sheet, run, pick, most) {
  if (pick.votes) {
    return pick.votes
      .slice(0, most)
      .map(([label, votes]) => voteBar(sheet, pick, label, votes / pick.cast, count(votes)));
  }
  if (pick.predict < 0 || !run.sigma) return [h("p", { class: "remark" }, "votes not saved")];
  const bound = normalCdf(pick.radius / run.sigma) - 1.5e-7;
  return [voteBar(sheet, pick, pick.predict, bound, `≥ ${roundDown(100 * bound, 2)} %`)];
}

function voteBar(sheet, pick, label, share, words) {
  return h(
    "div",
    { class: `vote${label === sheet.labels[pick.image] ? " own" : ""}` },
    h("span", { class: "name" }, className(sheet, label)),
    h("span", { class: "track" }, h("span", { style: { width: `${100 * share}%` } })),
    h("span", { class: "number" }, words),
  );
}

/** Standard normal CDF, from erf by Abramowitz and Stegun 7.1.26; the error is below 1.5e-7. */
function normalCdf(value) {
  const t = 1 / (1 + (0.3275911 * Math.abs(value)) / Math.SQRT2);
  const tail =
    t *
    (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) *
    Math.exp((-value * value) / 2);
  return value >= 0 ? 1 - tail / 2 : tail / 2;
}
