// A worker counts votes and searches for attacks, for the networks that the page has sent. A task is a generator that
// pauses after each batch, so that the worker can turn to more urgent tasks, or drop obsolete ones.

const networks = new Map(); // promises: a network is unpacked when it is first needed
const files = new Map();
const tasks = new Map();

/** Yield batches of votes for samples `from` to `to` - 1: the predicted classes, and the first noisy image. */
function* countVotes(network, image, { sigma, seed, index, purpose, from, to }) {
  const noise = new Float32Array(PIXELS);
  for (let start = from; start < to; start += IMAGES) {
    const noisy = [];
    for (let sample = start; sample < Math.min(start + IMAGES, to); sample++) {
      normalNoise(noise, seed, sample, index, purpose);
      noisy.push(image.map((value, i) => value + Math.fround(sigma * noise[i])));
    }
    yield { noisy: noisy[0], labels: network.scores(noisy).map((scores) => largest(Array.from(scores))), start };
  }
}

const KINDS = {
  /** Count the votes of selection (n0 samples) and of estimation (n further samples), and report interim counts. */
  *certify(network, { image, sigma, n0, n, seed, index, pace }, report) {
    const selection = new Array(CLASSES).fill(0),
      estimation = new Array(CLASSES).fill(0),
      began = performance.now();
    const samples = { sigma, seed, index, purpose: SELECT_AND_ESTIMATE, from: 0, to: n0 + n };
    for (const { noisy, labels, start } of countVotes(network, image, samples)) {
      labels.forEach((label, i) => {
        (start + i < n0 ? selection : estimation)[label]++;
      });
      report({ selection, estimation, noisy, vote: labels[0] });
      // Start slowly, so that the eye can follow: the next batch is due no earlier than this time.
      yield began + pace * Math.cbrt(start / (n0 + n));
    }
    return { selection, estimation };
  },

  /** Count votes on a pushed image. */
  *predict(network, { image, sigma, n, seed, index }, report) {
    const counts = new Array(CLASSES).fill(0);
    for (const { labels } of countVotes(network, image, { sigma, seed, index, purpose: PREDICT, from: 0, to: n })) {
      for (const label of labels) counts[label]++;
      report({ counts });
      yield;
    }
    return { counts };
  },

  /** Predict images pushed to several distances, without noise. */
  *looks(network, { image, direction, distances }) {
    const answers = [];
    for (let start = 0; start < distances.length; start += IMAGES) {
      const images = distances.slice(start, start + IMAGES).map((distance) => moved(image, direction, distance));
      answers.push(...network.scores(images).map((scores) => largest(Array.from(scores))));
      yield;
    }
    return { answers };
  },

  *attack(network, { image, kind, label, target, sigma, size, seed, index }) {
    if (kind === "random") return { direction: randomDirection(seed, index) };
    if (kind === "look") return { direction: yield* foolOneLook(network, image, label) };
    const aim = kind === "digit" ? target : -1;
    return { direction: yield* foolTheVote(network, image, { sigma, label, target: aim, size, seed, index }) };
  },
};

/** Run the most urgent task for a moment, then let messages in. */
function work() {
  queued = false;
  const until = performance.now() + 24;
  let pause = 0;
  while (tasks.size && performance.now() < until) {
    const due = [...tasks.values()].filter((task) => task.due <= performance.now());
    if (!due.length) {
      pause = Math.min(...[...tasks.values()].map((task) => task.due)) - performance.now();
      break;
    }
    const task = due.reduce((a, b) => (b.urgency > a.urgency ? b : a));
    const { done, value } = task.steps.next();
    task.due = done ? 0 : (value ?? 0);
    if (!done) continue;
    tasks.delete(task.id);
    postMessage({ id: task.id, finished: true, ...value });
  }
  for (const task of tasks.values()) {
    if (task.news) postMessage({ id: task.id, ...task.news });
    task.news = null;
  }
  if (!pause) queue();
  else if (pause < Infinity) setTimeout(queue, pause); // a task that waits for its network queues itself
}

const turn = new MessageChannel();
turn.port1.onmessage = work;
let queued = false;

function queue() {
  if (queued || !tasks.size) return;
  queued = true;
  turn.port2.postMessage(null);
}

self.onmessage = async ({ data }) => {
  if (data.cancel) return void tasks.delete(data.cancel);
  if (data.files) {
    for (const [name, bytes] of Object.entries(data.files)) files.set(name, bytes);
    return;
  }
  const { id, kind, network, urgency, options } = data;
  const task = { id, urgency, news: null, due: Infinity };
  tasks.set(id, task);
  if (!networks.has(network))
    networks.set(
      network,
      readNetwork(files.get(network)).then((layers) => new Network(layers)),
    );
  task.steps = KINDS[kind](await networks.get(network), options, (news) => (task.news = news));
  task.due = 0;
  queue();
};
