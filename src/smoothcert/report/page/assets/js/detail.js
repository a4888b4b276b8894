// One image at a time: larger, with more draws of noise, all its votes, and what the other runs say of it.

const detail = byId("detail");
let detailAt = null;

function openDetail(sheet, run, picks, at) {
  detailAt = { sheet, run, picks, at, draw: 0 };
  drawDetail();
  if (!detail.open) detail.showModal();
}

function otherRuns(sheet, pick) {
  const told = data.runs.filter(
    (run) => sheet.verdicts[run.id]?.radius[pick.image] !== null && sheet.verdicts[run.id] && !state.hidden.has(run.id),
  );
  const largest = Math.max(1e-9, ...told.map((run) => sheet.verdicts[run.id].radius[pick.image]));
  return told.map((run) => {
    const { radius, predict } = sheet.verdicts[run.id],
      said = predict[pick.image],
      right = said === sheet.labels[pick.image];
    return h(
      "div",
      { class: `vote${right ? " own" : ""}` },
      h("span", { class: "name" }, run.title),
      h("span", { class: "track" }, h("span", { style: { width: `${(100 * radius[pick.image]) / largest}%` } })),
      h(
        "span",
        { class: "number" },
        said < 0
          ? "abstains"
          : right
            ? radius[pick.image].toFixed(3)
            : `${className(sheet, said)} ${radius[pick.image].toFixed(3)}`,
      ),
    );
  });
}

function drawDetail() {
  const { sheet, run, picks, at, draw } = detailAt,
    pick = picks[at];
  const focused = detail.contains(document.activeElement) ? document.activeElement.dataset.does : null;
  const show = (change) => {
    Object.assign(detailAt, change);
    drawDetail();
  };
  const step = (by) => show({ at: (at + by + picks.length) % picks.length, draw: 0 });
  const button = (does, text, onclick, label) =>
    h("button", { type: "button", class: "quiet-button", "data-does": does, "aria-label": label, onclick }, text);
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
    h("p", { class: "quiet" }, `Image ${sheet.indices[pick.image]} of ${run.set}, ${run.title}`),
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
        h("figcaption", {}, "as it is"),
      ),
      ...[0, 1].map((k) =>
        h(
          "figure",
          {},
          canvasOf(sheet, pick.image, "The same image under noise", run.sigma ?? 0, 2 * draw + k),
          h("figcaption", {}, `noise, σ ${sigmaText(run.sigma)}`),
        ),
      ),
    ),
    button("again", "Draw other noise", () => show({ draw: draw + 1 })),
    h("h3", {}, pick.cast ? `Votes of ${pick.cast.toLocaleString("en")} noises` : "Votes"),
    h("div", { class: "votes" }, ...voteBars(sheet, run, pick, 5)),
    h("h3", {}, "Certified radius, all runs"),
    h("div", { class: "votes" }, ...otherRuns(sheet, pick)),
  );
  if (focused) detail.querySelector(`[data-does="${focused}"]`).focus();
}

detail.addEventListener("click", (event) => {
  if (event.target === detail) detail.close();
});
