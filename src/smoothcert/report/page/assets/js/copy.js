// Copies the displayed table in the formats of `smoothcert report --out`, which Python describes in the page's data.

import { data, datasets } from "./data.js";
import { h } from "./dom.js";
import { state } from "./state.js";

const NAMES = { ".tex": "LaTeX", ".md": "Markdown", ".csv": "CSV" };

/** Return the titles and the lines { group, cells: [{ text, mark }] } of a table, without the column of datasets. */
function gridOf(rows) {
  const skipped = datasets.length > 1 ? 1 : 0;
  const titles = data.titles.slice(skipped);
  const values = titles.indexOf("ACR");
  const lines = rows.flatMap(({ run, rivals, marks }) => {
    // The marked columns are ACR and, after its error, the accuracies.
    const markAt = (i) => (i === values ? marks[0] : i > values + 1 ? (marks[i - values - 1] ?? "") : "");
    const [own, paper] = run.cells.map((cells) => cells.slice(skipped));
    const line = {
      group: `${run.sigma} ${rivals}`,
      cells: own.map((text, i) => ({ text: text.trim(), mark: markAt(i) })),
    };
    const printed = state.paper !== "hidden" && paper;
    return printed
      ? [line, { group: line.group, cells: paper.map((text) => ({ text: text.trim(), mark: "" })) }]
      : [line];
  });
  return { titles, lines };
}

/** Write a table in a format; see `TextFormat` in Python. */
export function writeTable(format, { titles, lines }) {
  const left = titles.map((title) => data.textColumns.includes(title));
  const escaped = (text) => [...text].map((letter) => format.escapes[letter] ?? letter).join("");
  const line = (cells) => format.row[0] + cells.join(format.row[1]) + format.row[2];
  const quote = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const cell = ({ text, mark }, i) => {
    if (format.quotes) return quote(left[i] ? text : text.replaceAll(",", ""));
    const [before, after] = format.marks[mark] ?? ["", ""];
    return before + escaped(text) + after;
  };
  const title = (text) =>
    text
      .split(" ")
      .map((word) => format.titles[word] ?? escaped(word))
      .join(" ");
  const columns = left.map((isText) => (isText ? "l" : "r")).join("");
  const parts = [format.head.replace("{columns}", columns), line(titles.map(title))];
  if (format.align.length) parts.push(line(left.map((isText) => format.align[isText ? 0 : 1])));
  lines.forEach(({ group, cells }, i) => {
    if (i === 0 || lines[i - 1].group !== group) parts.push(format.rule);
    parts.push(line(cells.map(cell)));
  });
  return parts.join("") + format.foot;
}

async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // some browsers deny local files access to the clipboard
    const area = h("textarea", { class: "unseen" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

function copyButton(suffix, rows) {
  const name = NAMES[suffix] ?? suffix;
  const status = h("span", { class: "unseen", role: "status" });
  const copy = async () => {
    await copyText(writeTable(data.formats[suffix], gridOf(rows())));
    button.textContent = "Copied";
    status.textContent = `Table copied as ${name}.`;
    setTimeout(() => {
      button.textContent = name;
      status.textContent = "";
    }, 1600);
  };
  const button = h("button", { type: "button", class: "quiet-button", onclick: copy }, name);
  return [button, status];
}

/** Create a button per format, which copies the rows that `rows` returns. */
export const copyButtons = (rows) =>
  h(
    "div",
    { class: "copy", role: "group", "aria-label": "Copy table" },
    h("span", { class: "quiet" }, "Copy as"),
    ...Object.keys(data.formats).flatMap((suffix) => copyButton(suffix, rows)),
  );
