// The statistics of certificates: exact binomial tails, the Clopper-Pearson bound and the normal quantile.
// They agree with smoothcert.statistics.bounds to 1e-9; tests/demo compares them.

/** log(n!) minus Stirling's formula: the part of a factorial that a large exponent would swallow. */
function stirlingError(n) {
  if (n < 16) {
    let factorial = 1;
    for (let i = 2; i <= n; i++) factorial *= i;
    return n === 0 ? 0 : Math.log(factorial) - 0.5 * Math.log(2 * Math.PI * n) - n * Math.log(n) + n;
  }
  const square = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / n;
}

/** x log(x / mean) + mean - x without cancellation when x is near its mean. */
function deviance(x, mean) {
  const ratio = (x - mean) / (x + mean);
  if (Math.abs(ratio) > 0.1) return x * Math.log(x / mean) + mean - x;
  let sum = (x - mean) * ratio,
    power = 2 * x * ratio;
  for (let j = 3; ; j += 2) {
    power *= ratio * ratio;
    const next = sum + power / j;
    if (next === sum) return sum;
    sum = next;
  }
}

/** Probability of exactly k successes in n trials, for 0 < k < n, in Loader's form. */
function binomialPoint(k, n, p) {
  const exponent =
    stirlingError(n) - stirlingError(k) - stirlingError(n - k) - deviance(k, n * p) - deviance(n - k, n * (1 - p));
  return Math.exp(exponent) * Math.sqrt(n / (2 * Math.PI * k * (n - k)));
}

/** Sum of the probabilities of 0 to k successes, as a multiple of the probability of k. All terms are positive. */
function tailMultiple(k, n, p) {
  let term = 1,
    sum = 1;
  for (let i = k; i > 0; i--) {
    term *= (i * (1 - p)) / ((n - i + 1) * p);
    sum += term;
    if (term < sum * 1e-17) break;
  }
  return sum;
}

/** Probability of at most k successes in n trials. */
function binomialTail(k, n, p) {
  if (k >= n) return 1;
  return k === 0 ? Math.exp(n * Math.log1p(-p)) : binomialPoint(k, n, p) * tailMultiple(k, n, p);
}

/** One-sided Clopper-Pearson upper bound of the failure probability, from the number of successes. */
function failureUpperBound(successes, trials, alpha) {
  const failures = trials - successes;
  if (successes === 0) return 1;
  if (failures === 0) return -Math.expm1(Math.log(alpha) / trials);
  // Newton's method on the logarithm of the tail, kept inside a bracket. The tail falls as p grows.
  let low = failures / trials,
    high = 1,
    p = Math.min((low + 1) / 2, low + (Math.sqrt(low * successes) * 3.5 + 4) / trials);
  for (let i = 0; i < 200 && high - low > 1e-16 * high; i++) {
    const multiple = tailMultiple(failures, trials, p),
      gap = Math.log(binomialPoint(failures, trials, p) * multiple) - Math.log(alpha);
    if (gap > 0) low = p;
    else high = p;
    const next = p + (gap * (1 - p) * multiple) / successes;
    if (Math.abs(next - p) <= 1e-16 * p) break;
    p = next > low && next < high ? next : (low + high) / 2;
  }
  return p;
}

const CENTRE = [
  [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457, 13731.693765509461125,
    1971.5909503065514427, 133.14166789178437745, 3.387132872796366608],
  [5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867, 5394.1960214247511077,
    687.1870074920579083, 42.313330701600911252, 1],
]; // prettier-ignore
const TAIL = [
  [7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
    3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734],
  [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
    0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1],
]; // prettier-ignore
const FAR_TAIL = [
  [2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
    0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772],
  [2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
    0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1],
]; // prettier-ignore

const ratio = ([above, below], x) => {
  const value = (coefficients) => coefficients.reduce((sum, coefficient) => sum * x + coefficient, 0);
  return value(above) / value(below);
};

/** Quantile of the standard normal distribution: Wichura's rational approximations (algorithm AS 241). */
function normalQuantile(p) {
  const centred = p - 0.5;
  if (Math.abs(centred) <= 0.425) return centred * ratio(CENTRE, 0.180625 - centred * centred);
  const r = Math.sqrt(-Math.log(Math.min(p, 1 - p)));
  const size = r <= 5 ? ratio(TAIL, r - 1.6) : ratio(FAR_TAIL, r - 5);
  return centred < 0 ? -size : size;
}

/** Certified l2 radius of Gaussian noise from a bound on the failure probability; 0 if that exceeds one half. */
const gaussianRadius = (failure, sigma) => Math.max(0, -sigma * normalQuantile(failure)) || 0;

/** Certificate of the class `chosen` from its votes: the class (-1 to abstain), the bound and the radius. */
function certify(chosen, votes, trials, sigma, alpha) {
  const failure = failureUpperBound(votes, trials, alpha);
  const certain = failure <= 0.5;
  return { answer: certain ? chosen : -1, bound: 1 - failure, radius: certain ? gaussianRadius(failure, sigma) : 0 };
}

const largest = (counts) => counts.reduce((best, count, i) => (count > counts[best] ? i : best), 0);

/** Class with the most votes, or -1 if it does not win the two-sided binomial test against the runner-up. */
function predict(counts, alpha) {
  const top = largest(counts),
    second = Math.max(...counts.map((count, i) => (i === top ? 0 : count)));
  return 2 * binomialTail(second, counts[top] + second, 0.5) <= alpha ? top : -1;
}
