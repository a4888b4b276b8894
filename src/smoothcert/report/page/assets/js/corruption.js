// Heat maps by kind and severity of corruption.

let heatMap = 0;

/** Depth of colour of a value: 0 at the map's smallest, 1 at its largest. */
function depth(map, value) {
  const values = [...map.values.flat(), ...map.means].filter((other) => other !== null);
  const low = Math.min(...values),
    high = Math.max(...values);
  return high > low ? (value - low) / (high - low) : 0.5;
}

function drawCorruption() {
  byId("corruption-section").hidden = !data.heatmaps.length;
  if (!data.heatmaps.length) return;
  const map = data.heatmaps[heatMap],
    largest = Math.max(...map.means);
  const text = (value) => value.toFixed(largest < 10 ? 3 : 1);
  const cell = (value, extra = "") =>
    value === null
      ? h("td", { class: "none" }, "–")
      : h(
          "td",
          { class: `heat ${extra}`, style: { "--depth": `${Math.round(8 + 52 * depth(map, value))}%` } },
          text(value),
        );
  const rows = map.kinds.map((kind, i) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, kind.replaceAll("_", " ")),
      ...map.values[i].map((value) => cell(value)),
      cell(map.means[i], "mean"),
    ),
  );
  byId("corruption").replaceChildren(
    h(
      "table",
      { class: "heatmap" },
      h("caption", { class: "unseen" }, `${map.title} by kind and severity of corruption`),
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          h("th", { scope: "col", class: "text" }, "corruption"),
          ...map.severities.map((severity) =>
            h("th", { scope: "col" }, map.severities.length > 1 ? `severity ${severity}` : "result"),
          ),
          h("th", { scope: "col" }, "mean"),
        ),
      ),
      h("tbody", {}, ...rows),
    ),
  );
}

if (data.heatmaps.length === 1) {
  byId("corruption-controls").append(h("b", {}, data.heatmaps[0].title));
} else if (data.heatmaps.length) {
  byId("corruption-controls").append(
    picker(
      "Result",
      data.heatmaps.map((map, i) => [i, map.title]),
      0,
      (i) => {
        heatMap = i;
        drawCorruption();
      },
    ),
  );
}
panels.push(drawCorruption);
