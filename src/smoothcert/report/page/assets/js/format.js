// Numbers and times as text.

/** Return a number with a fixed number of digits, rounded as Python does: exact ties go to the even digit. */
export function fixed(value, digits) {
  const scaled = value * 10 ** digits;
  const tie = Number.isInteger(value * 2 ** (digits + 1)) && Math.abs(scaled % 1) === 0.5;
  if (!tie) return value.toFixed(digits);
  const even = 2 * Math.round(scaled / 2);
  return (even / 10 ** digits).toFixed(digits);
}

/** Format a share in percent, without the percent sign; multiply before rounding, as Python does, to round alike. */
export const points = (share, digits = 1) => fixed(100 * share, digits);
export const percent = (share, digits = 1) => `${points(share, digits)} %`;
export const sigmaText = (sigma) => (sigma ? fixed(sigma, 2) : "?");
export const count = (value) => value.toLocaleString("en-US");

export const signed = (value, digits) => {
  const size = fixed(Math.abs(value), digits);
  return Number(size) === 0 ? size : `${value < 0 ? "−" : "+"}${size}`;
};

/** Return the fewest digits, at least `least`, that show all these values exactly. */
export function digitsFor(values, least = 0) {
  let digits = least;
  while (digits < 8 && values.some((value) => Math.abs(value - Number(value.toFixed(digits))) > 1e-9)) digits++;
  return digits;
}

/** Round down: a certificate is never rounded up. */
export const roundDown = (value, digits) => (Math.floor(value * 10 ** digits + 1e-6) / 10 ** digits).toFixed(digits);

const twoDigits = (value) => (value < 9.95 ? fixed(value, 1) : String(Number(value.toPrecision(2))));

/** Format seconds: 30 µs, 4.1 ms, 12 s, 20 min, 4 h 05 min, 2.5 days. */
export function duration(seconds) {
  if (seconds < 1e-3) return `${twoDigits(1e6 * seconds)} µs`;
  if (seconds < 1) return `${twoDigits(1e3 * seconds)} ms`;
  if (seconds < 100) return `${seconds < 10 ? fixed(seconds, 1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min` : `${fixed(seconds / 86400, 1)} days`;
}
