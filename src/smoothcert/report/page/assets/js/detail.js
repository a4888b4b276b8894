// Dialog with one image: enlarged, with new noise samples, its votes, and its radius in all runs.

import { data } from "./data.js";
import { byId, h } from "./dom.js";
import { count, roundDown, sigmaText } from "./format.js";
import { canvasOf, className, pickText, voteBars } from "./pictures.js";
import { change, state } from "./state.js";

const detail = byId("detail");
let detailState = null;

export function openDetail(sheet, run, picks, position) {
  detailState = { sheet, run, picks, position, draw: 0 };
  drawDetail();
  if (!detail.open) detail.showModal();
}

export function closeDetail() {
  if (detail.open) detail.close();
}

function radiusBars(sheet, pick) {
  const runs = data.runs.filter(
    (run) => sheet.verdicts[run.id]?.radius[pick.image] !== null && sheet.verdicts[run.id] && !state.hidden.has(run.id),
  );
  const largest = Math.max(1e-9, ...runs.map((run) => sheet.verdicts[run.id].radius[pick.image]));
  return runs.map((run) => {
    const { radius, predict } = sheet.verdicts[run.id],
      predicted = predict[pick.image],
      correct = predicted === sheet.labels[pick.image];
    return h(
      "div",
      { class: `vote${correct ? " own" : ""}` },
      h("span", { class: "name" }, run.title),
      h("span", { class: "track" }, h("span", { style: { width: `${(100 * radius[pick.image]) / largest}%` } })),
      h(
        "span",
        { class: "number" },
        predicted < 0
          ? "abstains"
          : correct
            ? roundDown(radius[pick.image], 3)
            : `as ${className(sheet, predicted)}, radius ${roundDown(radius[pick.image], 3)}`,
      ),
    );
  });
}

function drawDetail() {
  const { sheet, run, picks, position, draw } = detailState,
    pick = picks[position];
  const focused = detail.contains(document.activeElement) ? document.activeElement.dataset.action : null;
  const show = (change) => {
    Object.assign(detailState, change);
    drawDetail();
  };
  const step = (by) => change({ image: sheet.indices[picks[(position + by + picks.length) % picks.length].image] });
  const button = (action, text, onclick, label) =>
    h("button", { type: "button", class: "quiet-button", "data-action": action, "aria-label": label, onclick }, text);
  detail.onkeydown = (event) => {
    if (event.key === "ArrowLeft") step(-1);
    else if (event.key === "ArrowRight") step(1);
  };
  detail.replaceChildren(
    h(
      "div",
      { class: "detail-head" },
      h("h2", { id: "detail-title" }, pickText(sheet, pick)),
      h(
        "div",
        { class: "moves" },
        button("previous", "←", () => step(-1), "Previous image"),
        button("next", "→", () => step(1), "Next image"),
        button("close", "Close", () => detail.close()),
      ),
    ),
    h("p", { class: "quiet" }, `Image ${sheet.indices[pick.image]} of ${run.datasetName}, ${run.title}`),
    h(
      "div",
      { class: "detail-views" },
      h(
        "figure",
        {},
        canvasOf(
          sheet,
          pick.image,
          `Image ${sheet.indices[pick.image]}: ${className(sheet, sheet.labels[pick.image])}`,
        ),
        h("figcaption", {}, "clean"),
      ),
      ...[0, 1].map((k) =>
        h(
          "figure",
          {},
          canvasOf(sheet, pick.image, "The same image with noise", run.sigma ?? 0, 2 * draw + k),
          h("figcaption", {}, `with noise, σ ${sigmaText(run.sigma)}`),
        ),
      ),
    ),
    button("again", "New noise sample", () => show({ draw: draw + 1 })),
    h(
      "h3",
      {},
      pick.cast ? `Votes of ${count(pick.cast)} noise samples` : "Votes were not saved: lower bound from the radius",
    ),
    h("div", { class: "votes" }, ...voteBars(sheet, run, pick, 5)),
    h("h3", {}, "Certified radius, all runs"),
    h("div", { class: "votes" }, ...radiusBars(sheet, pick)),
  );
  if (focused) detail.querySelector(`[data-action="${focused}"]`).focus();
}

detail.addEventListener("close", () => state.image !== null && change({ image: null }));
detail.addEventListener("click", (event) => {
  if (event.target === detail) detail.close();
});
