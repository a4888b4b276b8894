// Test images of a run: most robust, least robust, wrong and abstained; each clean and with one noise sample.

import { data } from "./data.js";
import { closeDetail, openDetail } from "./detail.js";
import { byId, h, picker, setControls } from "./dom.js";
import { roundDown } from "./format.js";
import { canvasOf, className, sheetOf, voteBars } from "./pictures.js";
import { change, filteredRuns, panel, state } from "./state.js";

const KIND_TEXT = {
  "most robust": "Correct, largest radii",
  "least robust": "Correct, smallest radii",
  wrong: "Wrong, largest radii",
  abstained: "Abstained",
};
function card(sheet, run, pick) {
  const name = `Image ${sheet.indices[pick.image]}`;
  return h(
    "button",
    { type: "button", class: "card", onclick: () => change({ image: sheet.indices[pick.image] }) },
    h(
      "span",
      { class: "views" },
      canvasOf(sheet, pick.image, name),
      canvasOf(sheet, pick.image, "with noise", run.sigma ?? 0),
    ),
    h(
      "span",
      { class: "caption" },
      h("b", {}, className(sheet, sheet.labels[pick.image])),
      pick.predict >= 0 &&
        pick.predict !== sheet.labels[pick.image] &&
        h("span", { class: "taken" }, ` classified as ${className(sheet, pick.predict)}`),
      " ",
      h("span", { class: "verdict-line quiet" }, pick.predict < 0 ? "abstains" : `radius ${roundDown(pick.radius, 2)}`),
    ),
    h("span", { class: "votes" }, ...voteBars(sheet, run, pick, 3)),
  );
}

/** Return the run whose images are shown: the chosen one, or the best by ACR at the smallest noise level. */
const galleryRun = (runs) =>
  runs.find((run) => run.id === state.run) ?? [...runs].sort((a, b) => a.sigma - b.sigma || b.acr[0] - a.acr[0])[0];

/** Return a text as children of an element; parts between backticks become code. */
const withCode = (text) => text.split("`").map((part, i) => (i % 2 ? h("code", {}, part) : part));

const galleryRuns = () => filteredRuns().filter((run) => data.gallery.runs[run.id]);

async function drawGallery() {
  const runs = galleryRuns();
  const missing = data.gallery.missing.filter(({ dataset }) => dataset === null || dataset === state.dataset);
  const notes = missing.map(({ text }) => h("p", { class: "note" }, ...withCode(text)));
  const run = galleryRun(runs);
  setControls(
    byId("gallery-controls"),
    run &&
      picker(
        "Run",
        runs.map((other) => [other.id, other.title]),
        run.id,
        (id) => change({ run: id, image: null }),
      ),
  );
  if (!run) {
    byId("gallery").replaceChildren(
      ...(notes.length ? notes : [h("p", { class: "note" }, "None of the runs shown has images.")]),
    );
    return;
  }
  const picks = data.gallery.runs[run.id];
  const sheet = await sheetOf(run.dataset);
  const groups = data.gallery.kinds
    .filter((kind) => picks[kind].length)
    .map((kind) =>
      h(
        "div",
        { class: "kind" },
        h("h3", {}, KIND_TEXT[kind]),
        h("div", { class: "cards" }, ...picks[kind].map((pick) => card(sheet, run, pick))),
      ),
    );
  byId("gallery").replaceChildren(...notes, ...groups);
}

/** Open the chosen image, or close the dialog if there is none. */
async function drawChosen() {
  const run = galleryRun(galleryRuns());
  const picks = run ? data.gallery.kinds.flatMap((kind) => data.gallery.runs[run.id][kind]) : [];
  const sheet = run && (await sheetOf(run.dataset));
  const position = state.image === null ? -1 : picks.findIndex((pick) => sheet.indices[pick.image] === state.image);
  if (position < 0) return closeDetail();
  openDetail(sheet, run, picks, position);
}

panel("gallery", ["dataset", "sigmas", "methods", "run"], drawGallery);
panel("detail", ["run", "image"], drawChosen);
