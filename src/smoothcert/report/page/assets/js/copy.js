// Copies the displayed table as LaTeX, Markdown or CSV, in the same form as `smoothcert report --out`.

function textGrid() {
  const rows = tableRuns().map(rowOf),
    marks = rankMarks(rows);
  const several = severalDatasets();
  const titles = ["sigma", "method", "ACR", "+-", ...data.radii.map((radius) => radius.toFixed(2)), "images", "n"];
  const header = several ? ["dataset", ...titles] : titles;
  const lines = rows.flatMap(({ run, group, values }, k) => {
    const cells = values.map((text, i) => ({ text, mark: marks[k][i] }));
    const error = { text: run.acr[1] === null ? "-" : run.acr[1].toFixed(3), mark: "" };
    const plain = [run.images.toLocaleString("en-US"), run.n === null ? "?" : run.n.toLocaleString("en-US")].map(
      (text) => ({ text, mark: "" }),
    );
    const row = [
      ...(several ? [{ text: run.datasetName, mark: "" }] : []),
      { text: sigmaText(run.sigma), mark: "" },
      { text: run.label, mark: "" },
      cells[0],
      error,
      ...cells.slice(1),
      ...plain,
    ];
    const printed = paperValues(run).map((value, i) => ({
      text: value === undefined ? "" : value.toFixed(i ? 1 : 3),
      mark: "",
    }));
    const blank = { text: "", mark: "" };
    const empty = several ? [blank, blank] : [blank];
    const paper = tableView.paper !== "hidden" &&
      run.paper && [...empty, { text: "paper", mark: "" }, printed[0], blank, ...printed.slice(1), blank, blank];
    return [{ group, cells: row }, paper && { group, cells: paper }].filter(Boolean);
  });
  return { header, lines };
}

const isText = (title) => title === "dataset" || title === "method";

const withMark = (cell, best, second) =>
  cell.mark === "best" ? best(cell.text) : cell.mark === "second" ? second(cell.text) : cell.text;

function toMarkdown({ header, lines }) {
  const line = (texts) => `| ${texts.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |\n`;
  return [
    header,
    header.map((title) => (isText(title) ? ":--" : "--:")),
    ...lines.map(({ cells }) =>
      cells.map((cell) =>
        withMark(
          cell,
          (text) => `**${text}**`,
          (text) => `<u>${text}</u>`,
        ),
      ),
    ),
  ]
    .map(line)
    .join("");
}

const latexSpecial = { "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}" };
const latexText = (text) => text.replace(/[\\~^&%$#_{}]/g, (letter) => latexSpecial[letter] ?? `\\${letter}`);

function toLatex({ header, lines }) {
  const names = { sigma: "$\\sigma$", "+-": "$\\pm$", method: "Method", dataset: "Dataset" };
  const out = [
    `\\begin{tabular}{${header.map((title) => (isText(title) ? "l" : "r")).join("")}}`,
    "\\toprule",
    `${header.map((title) => names[title] ?? title).join(" & ")} \\\\`,
  ];
  let last = null;
  for (const { group, cells } of lines) {
    if (last !== group) out.push("\\midrule");
    last = group;
    out.push(
      `${cells
        .map((cell) =>
          withMark(
            { ...cell, text: latexText(cell.text) },
            (text) => `\\textbf{${text}}`,
            (text) => `\\underline{${text}}`,
          ),
        )
        .join(" & ")} \\\\`,
    );
  }
  return [...out, "\\bottomrule", "\\end{tabular}", ""].join("\n");
}

function toCsv({ header, lines }) {
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const plain = lines.map(({ cells }) => cells.map((cell, i) => (isText(header[i]) ? cell.text : cell.text.replaceAll(",", ""))));
  return [header, ...plain].map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // some browsers do not allow it for local files
    const area = h("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function copyButton(text, format) {
  const status = h("span", { class: "unseen", role: "status" });
  const button = h(
    "button",
    {
      type: "button",
      class: "quiet-button",
      onclick: async () => {
        await copyText(format(textGrid()));
        button.textContent = "Copied";
        status.textContent = `Table copied as ${text}.`;
        setTimeout(() => {
          button.textContent = text;
          status.textContent = "";
        }, 1600);
      },
    },
    text,
  );
  return [button, status];
}

byId("table-controls").append(
  ...[
    withPaper &&
      segmented(
        "Paper's numbers",
        [
          ["hidden", "Results only"],
          ["values", "With paper"],
          ["difference", "Difference from paper"],
        ],
        "hidden",
        setter(tableView, "paper", drawTable),
      ),
  ].filter(Boolean),
  h(
    "div",
    { class: "copy", role: "group", "aria-label": "Copy table" },
    h("span", { class: "quiet" }, "Copy as"),
    ...copyButton("LaTeX", toLatex),
    ...copyButton("Markdown", toMarkdown),
    ...copyButton("CSV", toCsv),
  ),
);
