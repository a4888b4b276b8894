// The table as shown, as text for a paper, a README or a spreadsheet: the same text that `smoothcert report --out` writes.

function textGrid() {
  const rows = tableRuns().map(rowOf),
    marks = rankMarks(rows);
  const several = severalSets();
  const titles = ["sigma", "method", "ACR", "+-", ...data.radii.map((radius) => radius.toFixed(2)), "images", "n"];
  const header = several ? ["data set", ...titles] : titles;
  const lines = rows.flatMap(({ run, group, values }, k) => {
    const cells = values.map((text, i) => ({ text, mark: marks[k][i] }));
    const error = { text: run.acr[1] === null ? "-" : run.acr[1].toFixed(3), mark: "" };
    const plain = [run.images.toLocaleString("en-US"), run.n === null ? "?" : run.n.toLocaleString("en-US")].map(
      (text) => ({ text, mark: "" }),
    );
    const ours = [
      ...(several ? [{ text: run.set, mark: "" }] : []),
      { text: sigmaText(run.sigma), mark: "" },
      { text: run.label, mark: "" },
      cells[0],
      error,
      ...cells.slice(1),
      ...plain,
    ];
    const theirs = paperValues(run).map((value, i) => ({
      text: value === undefined ? "" : value.toFixed(i ? 1 : 3),
      mark: "",
    }));
    const blank = { text: "", mark: "" };
    const empty = several ? [blank, blank] : [blank];
    const beside = tableView.beside !== "ours" &&
      run.paper && [...empty, { text: "paper", mark: "" }, theirs[0], blank, ...theirs.slice(1), blank, blank];
    return [{ group, cells: ours }, beside && { group, cells: beside }].filter(Boolean);
  });
  return { header, lines };
}

const isWords = (title) => title === "data set" || title === "method";

const dress = (cell, best, second) =>
  cell.mark === "best" ? best(cell.text) : cell.mark === "second" ? second(cell.text) : cell.text;

function toMarkdown({ header, lines }) {
  const line = (texts) => `| ${texts.map((text) => text.replaceAll("|", "\\|")).join(" | ")} |\n`;
  return [
    header,
    header.map((title) => (isWords(title) ? ":--" : "--:")),
    ...lines.map(({ cells }) =>
      cells.map((cell) =>
        dress(
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
  const names = { sigma: "$\\sigma$", "+-": "$\\pm$", method: "Method", "data set": "Data set" };
  const out = [
    `\\begin{tabular}{${header.map((title) => (isWords(title) ? "l" : "r")).join("")}}`,
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
          dress(
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
  const plain = lines.map(({ cells }) => cells.map((cell, i) => (isWords(header[i]) ? cell.text : cell.text.replaceAll(",", ""))));
  return [header, ...plain].map((line) => `${line.map(quoted).join(",")}\n`).join("");
}

async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // not every browser offers it to a page from disk
    const area = h("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function copyButton(text, format) {
  const said = h("span", { class: "unseen", role: "status" });
  const button = h(
    "button",
    {
      type: "button",
      class: "quiet-button",
      onclick: async () => {
        await toClipboard(format(textGrid()));
        button.textContent = "Copied";
        said.textContent = `The table was copied as ${text}.`;
        setTimeout(() => {
          button.textContent = text;
          said.textContent = "";
        }, 1600);
      },
    },
    text,
  );
  return [button, said];
}

byId("table-controls").append(
  ...[
    withPaper &&
      segmented(
        "Beside our numbers",
        [
          ["ours", "Ours"],
          ["paper", "With the paper’s"],
          ["difference", "Differences"],
        ],
        "ours",
        (beside) => {
          tableView.beside = beside;
          drawTable();
        },
      ),
  ].filter(Boolean),
  h(
    "div",
    { class: "copy", role: "group", "aria-label": "Copy the table" },
    h("span", { class: "quiet" }, "Copy as"),
    ...copyButton("LaTeX", toLatex),
    ...copyButton("Markdown", toMarkdown),
    ...copyButton("CSV", toCsv),
  ),
);
