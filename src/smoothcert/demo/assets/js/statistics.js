// The statistics of certificates: exact binomial tails, the Clopper-Pearson bound and the normal quantile.
// They agree with smoothcert.statistics.bounds to 1e-9; tests/demo compares them.

/** Return log(n!) minus Stirling's formula, without the cancellation of subtracting two large numbers. */
function stirlingError(n) {
  if (n < 16) {
    let factorial = 1;
    for (let i = 2; i <= n; i++) factorial *= i;
    return n === 0 ? 0 : Math.log(factorial) - 0.5 * Math.log(2 * Math.PI * n) - n * Math.log(n) + n;
  }
  const square = n * n;
  return (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / 1188 / square) / square) / square) / square) / n;
}

/** Return x log(x / mean) + mean - x, without cancellation when x is near the mean. */
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

/** One-sided Clopper-Pearson upper bound on the failure probability, from the number of successes. */
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

const CENTER = [
  [
    2509.0809287301227, 33430.57558358813, 67265.7709270087, 45921.95393154987, 13731.69376550946, 1971.5909503065513,
    133.14166789178438, 3.3871328727963665,
  ],
  [
    5226.495278852854, 28729.085735721943, 39307.89580009271, 21213.794301586597, 5394.196021424751, 687.1870074920579,
    42.31333070160091, 1,
  ],
];
const TAIL = [
  [
    0.0007745450142783414, 0.022723844989269184, 0.2417807251774506, 1.2704582524523684, 3.6478483247632045,
    5.769497221460691, 4.630337846156546, 1.4234371107496835,
  ],
  [
    1.0507500716444169e-9, 0.0005475938084995345, 0.015198666563616457, 0.14810397642748008, 0.6897673349851,
    1.6763848301838038, 2.053191626637759, 1,
  ],
];
const FAR_TAIL = [
  [
    2.0103343992922881e-7, 2.7115555687434876e-5, 0.0012426609473880784, 0.026532189526576124, 0.29656057182850487,
    1.7848265399172913, 5.463784911164114, 6.657904643501103,
  ],
  [
    2.0442631033899397e-15, 1.421511758316446e-7, 1.8463183175100548e-5, 0.0007868691311456133, 0.014875361290850615,
    0.1369298809227358, 0.599832206555888, 1,
  ],
];

const ratio = ([above, below], x) => {
  const value = (coefficients) => coefficients.reduce((sum, coefficient) => sum * x + coefficient, 0);
  return value(above) / value(below);
};

/** Quantile of the standard normal distribution: Wichura's rational approximations (algorithm AS 241). */
function normalQuantile(p) {
  const centered = p - 0.5;
  if (Math.abs(centered) <= 0.425) return centered * ratio(CENTER, 0.180625 - centered * centered);
  const r = Math.sqrt(-Math.log(Math.min(p, 1 - p)));
  const size = r <= 5 ? ratio(TAIL, r - 1.6) : ratio(FAR_TAIL, r - 5);
  return centered < 0 ? -size : size;
}

/** Certified l2 radius of Gaussian noise from a bound on the failure probability; 0 if the bound exceeds 0.5. */
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
