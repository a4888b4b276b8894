// Saves a plot as SVG or PNG. Plots need no style sheet, since all their colors and fonts are attributes.

import { css, h } from "./dom.js";

const SCALE = 2; // pixels of a PNG per pixel on the screen

/** Return a plot as the text of an SVG file, with the page's background. */
function svgText(svg) {
  const copy = svg.cloneNode(true);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  for (const name of ["tabindex", "class", "role"]) copy.removeAttribute(name);
  for (const mark of copy.querySelectorAll("[data-passing]")) mark.remove();
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  for (const [name, value] of [
    ["width", "100%"],
    ["height", "100%"],
    ["fill", css("--paper")],
  ])
    back.setAttribute(name, value);
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

function download(name, content) {
  const link = h("a", { download: name, href: URL.createObjectURL(content) });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

async function pngOf(svg) {
  const picture = new Image();
  picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgText(svg))}`;
  await picture.decode();
  const canvas = h("canvas", { width: SCALE * svg.width.baseVal.value, height: SCALE * svg.height.baseVal.value });
  canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Create buttons that save the plot returned by `find`. */
export function saveButtons(name, find) {
  const button = (text, save) => h("button", { type: "button", class: "link", onclick: save }, text);
  return h(
    "p",
    { class: "save", role: "group", "aria-label": `Save the plot ${name}` },
    "Save as ",
    button("SVG", () => download(`${name}.svg`, new Blob([svgText(find())], { type: "image/svg+xml" }))),
    " or ",
    button("PNG", async () => download(`${name}.png`, await pngOf(find()))),
  );
}
