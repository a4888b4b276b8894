// Heat maps by corruption, and by severity or network.

let heatMap = 0;

/** Return the colour depth of a value: 0 for the smallest in the map, 1 for the largest. */
function depth(map, value) {
  const values = [...map.values.flat(), ...map.means].filter((other) => other !== null);
  const low = Math.min(...values),
    high = Math.max(...values);
  return high > low ? (value - low) / (high - low) : 0.5;
}

/** Return a coloured cell; values below 10 are radii and get three digits, others are percentages. */
function heatCell(map, value, kind = "") {
  if (value === null) return h("td", { class: "none" }, "–");
  const digits = Math.max(...map.values.flat()) < 10 ? 3 : 1;
  const style = { "--depth": `${Math.round(8 + 52 * depth(map, value))}%` };
  return h("td", { class: `heat ${kind}`, style }, value.toFixed(digits));
}

function drawCorruption() {
  byId("corruption-section").hidden = !data.heatmaps.length;
  if (!data.heatmaps.length) return;
  const map = data.heatmaps[heatMap];
  const several = map.means.length > 0;
  const titles = several ? [...map.columns, "mean"] : map.columns;
  const rows = map.kinds.map((kind, i) => {
    const cells = map.values[i].map((value) => heatCell(map, value, kind.startsWith("mean") ? "means" : ""));
    if (several) cells.push(heatCell(map, map.means[i], "mean"));
    return h("tr", {}, h("th", { scope: "row" }, kind.replaceAll("_", " ")), ...cells);
  });
  const head = [
    h("th", { scope: "col", class: "text" }, "corruption"),
    ...titles.map((title) => h("th", { scope: "col" }, title)),
  ];
  const caption = h("caption", { class: "unseen" }, `${map.title} by corruption`);
  byId("corruption").replaceChildren(
    h("table", { class: "heatmap" }, caption, h("thead", {}, h("tr", {}, ...head)), h("tbody", {}, ...rows)),
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
