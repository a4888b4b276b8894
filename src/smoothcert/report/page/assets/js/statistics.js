// Pure functions on arrays. A run's `correct[i]` is the number of its correct images with a radius in step i of the
// radius grid.

/** Certified accuracy at every radius of the grid: the share of images in this step or a later one. */
export function certifiedAccuracy(correct, images) {
  const shares = new Array(correct.length);
  let total = 0;
  for (let i = correct.length - 1; i >= 0; i--) {
    total += correct[i];
    shares[i] = total / images;
  }
  return shares;
}

export const Z = 1.959963984540054; // two-sided 95 %

/** Return the 95 % Wilson interval of a share of `images` images. */
export function wilson(share, images) {
  const z2 = (Z * Z) / images;
  const middle = (share + z2 / 2) / (1 + z2);
  const half = (Z / (1 + z2)) * Math.sqrt((share * (1 - share)) / images + z2 / (4 * images));
  return [share === 0 ? 0 : Math.max(0, middle - half), share === 1 ? 1 : Math.min(1, middle + half)];
}

/** Return the maximum of several curves at every radius, and the index of the curve that attains it. */
export function envelope(curves) {
  const best = curves[0].map((_, i) => curves.reduce((top, curve, k) => (curve[i] > curves[top][i] ? k : top), 0));
  return { best, shares: best.map((k, i) => curves[k][i]) };
}

/**
 * Return the difference in certified accuracy of two runs at every radius of the grid, with its paired 95 % interval.
 * `first` and `second` contain the codes of the shared images: 0 if not correct, else one plus the step of the radius.
 */
export function pairedDifference(first, second, count) {
  const onlyFirst = new Float64Array(count + 1),
    onlySecond = new Float64Array(count + 1);
  let wins = 0,
    losses = 0;
  first.forEach((a, i) => {
    const b = second[i];
    // In steps min(a, b) to max(a, b) - 1, exactly one of the two runs certifies this image.
    if (a > b) {
      onlyFirst[b] += 1;
      onlyFirst[a] -= 1;
      wins += 1;
    }
    if (b > a) {
      onlySecond[a] += 1;
      onlySecond[b] -= 1;
      losses += 1;
    }
  });
  const n = first.length,
    value = [],
    low = [],
    high = [];
  let b = 0,
    c = 0;
  for (let i = 0; i < count; i++) {
    b += onlyFirst[i];
    c += onlySecond[i];
    const gap = (b - c) / n,
      half = Z * Math.sqrt(Math.max(0, (b + c) / n - gap * gap) / n);
    value.push(gap);
    low.push(gap - half);
    high.push(gap + half);
  }
  return { value, low, high, wins, losses, ties: n - wins - losses, images: n };
}

/** Return the range of the values, without outliers unless more than a fifth of the values are outliers. */
export function nearRange(values, least) {
  const sorted = [...values].sort((a, b) => a - b);
  const [lower, upper] = [0.25, 0.75].map((part) => sorted[Math.round(part * (sorted.length - 1))]);
  const reach = 4 * Math.max(upper - lower, least);
  const near = sorted.filter((value) => value >= lower - reach && value <= upper + reach);
  const kept = near.length >= 0.8 * sorted.length ? near : sorted;
  return [kept[0], kept.at(-1)];
}

/** Join neighboring bins into at most `most` bins; return the joined bins, and the number of bins in each. */
export function rebin(bins, most) {
  const size = Math.ceil(bins.length / most),
    joined = [];
  for (let i = 0; i < bins.length; i += size)
    joined.push(bins.slice(i, i + size).reduce((total, bin) => total + bin, 0));
  return { joined, size };
}

/** Return "best", "second" or "" for each printed value, ranked among rows with equal `rivals`. */
export function rankMarks(rows) {
  const marks = rows.map((row) => row.values.map(() => ""));
  for (const rivals of new Set(rows.map((row) => row.rivals))) {
    const members = rows.flatMap((row, i) => (row.rivals === rivals ? [i] : []));
    if (members.length < 2) continue;
    rows[members[0]].values.forEach((_, column) => {
      const printed = members.map((i) => Number(rows[i].values[column]));
      const ranking = [...new Set(printed.filter((value) => value > 0))].sort((a, b) => b - a);
      members.forEach((i, k) => {
        const place = printed[k] > 0 ? ranking.indexOf(printed[k]) : -1;
        marks[i][column] = place === 0 ? "best" : place === 1 ? "second" : "";
      });
    });
  }
  return marks;
}
