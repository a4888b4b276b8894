// Legend of the curves: shows their values at the pointer, and hides runs on the whole page.

let readers = [];

/** Show each curve's value at a grid index, or nothing for null. */
function readOut(i) {
  for (const { line, cell } of readers) {
    const text = i === null ? "" : percent(line.values[i]);
    cell.textContent = line.best && i !== null ? `${text} (σ ${sigmaText(line.best(i))})` : text;
  }
  byId("legend-radius").textContent = i === null ? "" : `r = ${gridRadii[i].toFixed(3)}`;
}

/** Return the legend's rows, hidden ones included: one per run, or per method with all its runs for envelopes. */
function legendRows(lines, envelopes) {
  if (envelopes) {
    return envelopes.map(({ title, members }) => ({
      name: title,
      note: null,
      members,
      line: lines.find((line) => line.title === title),
    }));
  }
  return filteredRuns().map((run) => ({
    name: run.label,
    note: aboutRun(run),
    members: [run],
    line: lines.find((line) => line.run === run),
  }));
}

function legendItem({ name, note, members, line }, lines, shown) {
  const cell = h("output", { class: "value" });
  if (line) readers.push({ line, cell });
  const on = members.some((run) => !state.hidden.has(run.id));
  const toggleAll = () => members.forEach((run) => (on ? state.hidden.add(run.id) : state.hidden.delete(run.id)));
  const box = h("input", { type: "checkbox", value: members[0].id, checked: on, onchange: () => change(toggleAll) });
  const focus = (i) => plots.get(byId("curves-plot")).focus(i);
  return h(
    "li",
    { onmouseenter: () => line && focus(lines.indexOf(line)), onmouseleave: () => focus(null) },
    h(
      "label",
      {},
      box,
      swatch(members[0], shown),
      h("span", { class: "name" }, name),
      note && h("span", { class: "quiet" }, note),
    ),
    cell,
  );
}

/** Draw the legend; `envelopes` are all possible envelopes if the lines are envelopes, else null. */
function drawLegend(lines, envelopes) {
  const list = byId("legend");
  const focused = list.contains(document.activeElement) ? document.activeElement.value : null;
  const scrolled = list.scrollTop;
  const shown = envelopes ? [] : shownRuns();
  readers = [];
  list.replaceChildren(
    h("div", { class: "legend-head" }, h("span", {}, "Runs"), h("output", { id: "legend-radius", "aria-live": "off" })),
    h("ul", {}, ...legendRows(lines, envelopes).map((row) => legendItem(row, lines, shown))),
  );
  list.scrollTop = scrolled;
  if (focused !== null) [...list.querySelectorAll("input")].find((box) => box.value === focused)?.focus();
}
