// The noise of smoothcert.philox: Philox4x32-10, so a seed gives the same noise here as in Python.

const SELECT_AND_ESTIMATE = 0,
  PREDICT = 1 << 16,
  ATTACK = 7 << 16; // the values of smoothcert.philox.Purpose

function multiplyHigh(a, b) {
  const aLow = a & 0xffff,
    aHigh = a >>> 16,
    bLow = b & 0xffff,
    bHigh = b >>> 16;
  const middle = aHigh * bLow + ((aLow * bLow) >>> 16);
  const other = aLow * bHigh + (middle & 0xffff);
  return (aHigh * bHigh + (middle >>> 16) + (other >>> 16)) >>> 0;
}

const words = new Uint32Array(4);

/** Encrypt a counter of four words into `words`. The seed is a whole number below 2**32. */
function philox(c0, c1, c2, c3, seed) {
  let k0 = seed >>> 0,
    k1 = 0;
  for (let round = 0; round < 10; round++) {
    const high0 = multiplyHigh(c0, 0xd2511f53),
      low0 = Math.imul(c0, 0xd2511f53),
      high1 = multiplyHigh(c2, 0xcd9e8d57),
      low1 = Math.imul(c2, 0xcd9e8d57);
    c0 = (high1 ^ c1 ^ k0) >>> 0;
    c1 = low1 >>> 0;
    c2 = (high0 ^ c3 ^ k1) >>> 0;
    c3 = low0 >>> 0;
    k0 = (k0 + 0x9e3779b9) >>> 0;
    k1 = (k1 + 0xbb67ae85) >>> 0;
  }
  words[0] = c0;
  words[1] = c1;
  words[2] = c2;
  words[3] = c3;
}

const UNIT = 2 ** -32,
  TURN = Math.fround(2 * Math.PI * UNIT);

/** Fill `out` with standard normal values that depend on (seed, sample, index, purpose) only. */
function normalNoise(out, seed, sample, index, purpose) {
  for (let i = 0; i < out.length; i += 4) {
    philox(i / 4, sample, index, purpose, seed);
    for (let pair = 0; pair < 4 && i + pair < out.length; pair += 2) {
      const radius = Math.sqrt(-2 * Math.log(Math.fround(Math.fround(words[pair]) * UNIT + UNIT / 2))),
        angle = Math.fround(Math.fround(words[pair + 1]) * TURN);
      out[i + pair] = radius * Math.cos(angle);
      out[i + pair + 1] = radius * Math.sin(angle);
    }
  }
  return out;
}
