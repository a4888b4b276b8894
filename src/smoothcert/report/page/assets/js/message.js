// The summary in sentences (the best method, its lead and its cost, on clean and on corrupted images), and the best
// method per radius.

import { data } from "./data.js";
import { byId, h, unbroken } from "./dom.js";
import { count, sigmaText } from "./format.js";
import { swatch } from "./palette.js";
import { panel, RUNS, shownRuns, state } from "./state.js";

const sentences = (message, tag) => [
  h(tag, { class: "headline" }, ...unbroken(message.headline)),
  h(
    "dl",
    { class: "details" },
    ...message.details.map(({ title, text }) => h("div", {}, h("dt", {}, title), h("dd", {}, ...unbroken(text)))),
  ),
];

export const messageOf = () => data.messages.find((message) => message.dataset === state.dataset);

/** Return the shown runs that can be compared, or all shown runs if none can, and a remark on the runs left out. */
export function comparedRuns() {
  const shown = shownRuns();
  const compared = shown.filter((run) => messageOf().compared.includes(run.id));
  const runs = compared.length ? compared : shown;
  const others = shown.length - runs.length;
  const noun = others === 1 ? "run" : "runs";
  const remark = others
    ? `Not shown here: ${others} ${noun} on other images or with another protocol (see the table).`
    : "";
  return { runs, remark };
}

/** Return a run's name, with its seed or qualifier only if several of these runs share the name; cut long names. */
export function shortName(run, runs) {
  const alone = runs.filter((other) => other.name === run.name).length === 1;
  const name = alone ? run.name : run.label;
  return name.length > 24 ? `${name.slice(0, 23)}…` : name;
}

function drawMessage() {
  const message = messageOf();
  const here = data.runs.filter((run) => run.dataset === state.dataset).length;
  const compared = message.compared.length === here ? `${here} runs` : `${message.compared.length} of ${here} runs`;
  const missing = message.missing.map((text) => `; ${text}`).join("");
  const remark = `Compared: ${compared}, on the same ${count(message.images)} images${missing}. Intervals reflect the choice of test images, not the randomness of training: each run was trained once.`;
  byId("message").replaceChildren(
    ...sentences(message, data.corruptionLeads ? "h3" : "h2"),
    h("p", { class: "remark" }, ...unbroken(here > 1 ? remark : "")),
  );
}

function drawCorruptionMessage() {
  const message = data.corruptionMessage;
  if (message) byId("corruption-message").replaceChildren(...sentences(message, data.corruptionLeads ? "h2" : "h3"));
}

/** Draw the table of the best run per radius, with the best run of another method beside it. */
function drawBest() {
  const { best } = messageOf();
  const cell = (id, accuracy, kind = "") => {
    const run = id === null ? null : data.runs[id];
    return run
      ? [
          h(
            "td",
            { class: `text ${kind}` },
            swatch(run),
            ...unbroken(run.name),
            " ",
            h("span", { class: "quiet unbroken" }, `σ ${sigmaText(run.sigma)}`),
          ),
          h("td", { class: kind }, `${accuracy} %`),
        ]
      : [h("td", { class: kind }), h("td", { class: kind })];
  };
  const rows = best.map((at) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, at.radius.toFixed(2)),
      ...cell(at.run, at.accuracy),
      ...cell(at.second, at.secondAccuracy, "next"),
    ),
  );
  const heads = [
    h("th", { scope: "col", class: "text" }, "radius"),
    h("th", { scope: "col", class: "text", colspan: 2 }, "most images certified by"),
    h("th", { scope: "col", class: "text next", colspan: 2 }, "next method"),
  ];
  byId("best").replaceChildren(
    h(
      "table",
      {},
      h("caption", { class: "unseen" }, "Best method per radius"),
      h("thead", {}, h("tr", {}, ...heads)),
      h("tbody", {}, ...rows),
    ),
  );
}

panel("message", ["dataset"], drawMessage);
panel("best", RUNS, drawBest);
panel("corruption-message", [], drawCorruptionMessage);
