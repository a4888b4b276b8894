// Directions in which to push an image. Each function returns a unit vector; the slider sets the length of the push.

const dotProduct = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const length = (vector) => Math.sqrt(dotProduct(vector, vector));
const scaled = (vector, factor) => vector.map((value) => value * factor);
const moved = (image, direction, distance) => image.map((value, i) => value + distance * direction[i]);

function softmax(scores) {
  const most = Math.max(...scores),
    powers = Float64Array.from(scores, (score) => Math.exp(score - most));
  return scaled(powers, 1 / powers.reduce((a, b) => a + b));
}

/** Return a random direction that depends only on the seed and the image, not on the network. */
function randomDirection(seed, index) {
  const drawn = normalNoise(new Float32Array(PIXELS), seed, 0, index, ATTACK);
  return scaled(drawn, 1 / length(drawn));
}

/**
 * Search for the shortest push that changes a single prediction. In each step, planes approximate the boundaries
 * between classes, and the push moves to the plane nearest to the original image. Return the direction of the shortest
 * push found, or of the last push if none changes the prediction.
 */
function* foolOneLook(network, image, label) {
  let change = new Float32Array(PIXELS),
    best = null;
  for (let step = 0; step < 24; step++) {
    const [scores] = network.scores([moved(image, change, 1)]);
    let nearest = null;
    for (let rival = 0; rival < CLASSES; rival++) {
      if (rival === label) continue;
      const weights = new Float32Array(CLASSES);
      weights[rival] = 1;
      weights[label] = -1;
      const normal = network.gradient(0, weights),
        square = dotProduct(normal, normal);
      if (!square) continue;
      const factor = (scores[label] - scores[rival] + dotProduct(normal, change)) / square;
      const distance = Math.abs(factor) * Math.sqrt(square);
      if (!nearest || distance < nearest.distance) nearest = { distance, change: scaled(normal, 1.03 * factor) };
    }
    if (!nearest) break;
    if (largest(Array.from(scores)) !== label && (!best || length(change) < length(best))) best = change;
    // After four full steps, take half steps, since the planes only approximate the boundaries.
    change = step < 4 ? nearest.change : change.map((value, i) => 0.5 * (value + nearest.change[i]));
    yield;
  }
  best ??= change;
  return length(best) ? scaled(best, 1 / length(best)) : null;
}

/**
 * Search for a push of length at most `size` that changes the vote: away from a label, or toward a target. Each step
 * follows the gradient of the mean probability of this class over noisy copies; a push that is too long is shortened.
 */
function* foolTheVote(network, image, { sigma, label, target = -1, size, seed, index }) {
  const noises = Array.from({ length: 2 * IMAGES }, (_, i) =>
    scaled(normalNoise(new Float32Array(PIXELS), seed, i + 1, index, ATTACK), sigma),
  );
  const goal = target >= 0 ? target : label,
    sign = target >= 0 ? 1 : -1;
  let change = new Float32Array(PIXELS);
  for (let step = 0; step < 20; step++) {
    const uphill = new Float32Array(PIXELS),
      pushed = moved(image, change, 1);
    for (let start = 0; start < noises.length; start += IMAGES) {
      const scores = network.scores(noises.slice(start, start + IMAGES).map((noise) => moved(pushed, noise, 1)));
      scores.forEach((values, lane) => {
        const shares = softmax(values);
        // The gradient of a copy's probability; the sum over copies is the gradient of the mean, up to a factor.
        const weights = shares.map((share, i) => shares[goal] * ((i === goal ? 1 : 0) - share));
        network.gradient(lane, weights).forEach((value, i) => {
          uphill[i] += value;
        });
      });
      yield;
    }
    const steep = length(uphill);
    if (!steep) break;
    const next = moved(change, uphill, (sign * size * 0.4) / steep);
    change = scaled(next, Math.min(1, size / length(next)));
  }
  return length(change) ? scaled(change, 1 / length(change)) : null;
}
