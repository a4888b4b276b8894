// Line plots with uPlot: values at the pointer, arrow keys, and a text alternative.

const plots = new Map();

function axis(label, extra) {
  const faint = css("--rule");
  return {
    label,
    labelSize: 22,
    labelGap: 4,
    size: 46,
    gap: 6,
    labelFont: `13px ${css("--sans")}`,
    font: `12px ${css("--sans")}`,
    stroke: css("--quiet"),
    grid: { stroke: faint, width: 1 },
    ticks: { show: false },
    ...extra,
  };
}

// Grid lines and labels of a logarithmic axis at powers of ten only; uPlot skips null.
const wholePowers = (_, ticks) =>
  ticks.map((tick) => (Math.abs(Math.log10(tick) - Math.round(Math.log10(tick))) < 1e-9 ? tick : null));
const powersOfTen = () => ({ filter: wholePowers, grid: { filter: wholePowers, stroke: css("--rule"), width: 1 } });

/** Return uPlot's series for a line, followed by the two edges of its band, if any. */
function plotSeries(line) {
  const stroke = line.colour;
  const main = {
    label: line.title,
    stroke,
    width: line.width ?? 2,
    dash: line.dash,
    spanGaps: true,
    points: { show: line.marks === true, size: 7, fill: css("--paper"), stroke, width: 1.5 },
    paths: line.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
  };
  const edge = { label: "", stroke: "transparent", width: 0, points: { show: false } };
  return line.band ? [main, edge, { ...edge }] : [main];
}

/**
 * Draw lines over common x values into a holder and replace its previous plot.
 * `lines`: { title, values, colour, dash, width, marks, steps, band: { low, high }, read }, with read(i) a text for x[i].
 */
function linePlot(holder, { x, lines, xLabel, yLabel, yRange, yValues, logarithmic, alt, onMove, xText }) {
  removePlot(holder);
  const tip = h("div", { class: "tip", hidden: true });
  const values = [x],
    series = [{}],
    bands = [],
    owner = [null];
  for (const line of lines) {
    values.push(line.values);
    const parts = plotSeries(line);
    if (line.band) {
      values.push(line.band.high, line.band.low);
      bands.push({ series: [series.length + 1, series.length + 2], fill: faded(line.colour, 0.16) });
    }
    parts.forEach((part) => {
      series.push(part);
      owner.push(line);
    });
  }
  let focused = null;
  const show = (plot) => {
    const { idx, left, top } = plot.cursor;
    onMove?.(idx ?? null);
    tip.hidden = idx === null || idx === undefined || !focused || left < 0;
    if (tip.hidden) return;
    tip.replaceChildren(h("b", {}, focused.title), h("span", {}, `${xText(idx)}   ${focused.read(idx)}`));
    const fits = left + 14 + tip.offsetWidth < plot.over.clientWidth;
    tip.style.left = `${Math.max(0, plot.over.offsetLeft + left + (fits ? 14 : -14 - tip.offsetWidth))}px`;
    tip.style.top = `${Math.max(0, plot.over.offsetTop + top - tip.offsetHeight - 10)}px`;
  };
  const dot = (_, i) => (series[i].label ? owner[i].colour : "transparent"); // edges of bands have no label
  const size = () => ({ width: holder.clientWidth, height: holder.clientHeight });
  const plot = new uPlot(
    {
      ...size(),
      series,
      bands,
      legend: { show: false },
      padding: [12, 10, 0, 0],
      scales: {
        x: { time: false, range: [x[0], x[x.length - 1]] },
        y: { range: yRange, distr: logarithmic ? 3 : 1 },
      },
      axes: [
        axis(xLabel, { size: 26 }),
        axis(yLabel, { size: 52, values: yValues, ...(logarithmic ? powersOfTen() : {}) }),
      ],
      focus: { alpha: lines.length > 1 ? 0.22 : 1 },
      cursor: {
        focus: { prox: 40 },
        drag: { x: false, y: false },
        points: { size: 7, width: 0, fill: dot, stroke: dot },
        y: false,
      },
      hooks: {
        setCursor: [show],
        setSeries: [
          (_, i, options) => {
            if (options.focus !== undefined) focused = i ? owner[i] : null;
          },
        ],
      },
    },
    values,
    holder,
  );
  holder.append(tip);
  holder.setAttribute("role", "img");
  holder.setAttribute("aria-label", alt);
  holder.tabIndex = 0;
  holder.onkeydown = (event) => stepCursor(event, plot, x.length);
  const watcher = new ResizeObserver(() => {
    const now = size();
    if (now.width && (now.width !== plot.width || now.height !== plot.height)) plot.setSize(now);
  });
  watcher.observe(holder);
  plots.set(holder, {
    plot,
    focus: (i) => focusLine(plot, owner, lines, i),
    close: () => {
      watcher.disconnect();
      plot.destroy();
    },
  });
}

/** Close a holder's plot and show other children in its place. */
function removePlot(holder, ...children) {
  plots.get(holder)?.close();
  plots.delete(holder);
  holder.replaceChildren(...children);
}

/** Move the cursor with the left and right arrow keys, ten steps at a time with Shift. */
function stepCursor(event, plot, count) {
  const direction = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
  if (!direction) return;
  event.preventDefault();
  const from = plot.cursor.idx ?? 0;
  const to = Math.min(count - 1, Math.max(0, from + direction * (event.shiftKey ? 10 : 1)));
  plot.setCursor({ left: plot.valToPos(plot.data[0][to], "x"), top: plot.over.clientHeight / 2 });
}

function focusLine(plot, owner, lines, i) {
  plot.setSeries(i === null ? null : owner.indexOf(lines[i]), { focus: i !== null });
}
