// The first sentences: which method wins, by how much, and what it costs; on corrupted images if the runs are on those.

import { data } from "./data.js";
import { byId, h } from "./dom.js";
import { swatch } from "./palette.js";
import { panel, RUNS, state } from "./state.js";
import { count, sigmaText } from "./format.js";

const sentences = (message, tag) => [
  h(tag, { class: "headline" }, message.headline),
  h("dl", { class: "details" }, ...message.details.map(({ title, text }) => h("div", {}, h("dt", {}, title), h("dd", {}, text)))),
];

const messageOf = () => data.messages.find((message) => message.dataset === state.dataset);

function drawMessage() {
  const message = messageOf();
  const here = data.runs.filter((run) => run.dataset === state.dataset).length;
  const compared = `${message.compared} of ${here} runs, on the same ${count(message.images)} images`;
  const other = data.corruptionMessage && !data.corruptionLeads && sentences(data.corruptionMessage, "h3");
  const first = data.corruptionLeads ? [...sentences(data.corruptionMessage, "h2"), ...sentences(message, "h3")] : sentences(message, "h2");
  byId("message").replaceChildren(
    ...first,
    h("p", { class: "remark" }, here > 1 ? `Compared: ${compared}.` : ""),
    ...(other ? [h("details", {}, h("summary", {}, "On corrupted images"), ...other)] : []),
  );
}

/** Draw the table of the best run per radius, with the best run of another method beside it. */
function drawBest() {
  const { best } = messageOf();
  const cell = (id, accuracy) => {
    const run = id === null ? null : data.runs[id];
    return run
      ? [h("td", { class: "text" }, swatch(run), run.label, h("span", { class: "quiet" }, ` σ ${sigmaText(run.sigma)}`)), h("td", {}, `${accuracy} %`)]
      : [h("td"), h("td")];
  };
  const rows = best.map((at) =>
    h("tr", {}, h("th", { scope: "row" }, at.radius.toFixed(2)), ...cell(at.run, at.accuracy), ...cell(at.second, at.secondAccuracy)),
  );
  const titles = ["radius", "most images certified by", "", "next method", ""];
  const heads = titles.map((title, i) => (title ? h("th", { scope: "col", class: i ? "text" : "" , colspan: i ? 2 : null }, title) : null));
  byId("best").replaceChildren(
    h("table", {}, h("caption", { class: "unseen" }, "Best method per radius"), h("thead", {}, h("tr", {}, ...heads)), h("tbody", {}, ...rows)),
  );
}

panel("message", ["dataset"], drawMessage);
panel("best", RUNS, drawBest);
