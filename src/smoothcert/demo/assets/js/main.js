// State, and what happens when it changes.

const content = JSON.parse($("data").textContent);
const SIGMAS = [0.25, 0.5, 1],
  VOTES = [100, 1000, 10000, 100000],
  KINDS = ["look", "vote", "digit", "random"];
const N0 = 100,
  ALPHA = 0.001,
  CHECK_VOTES = 1000, // votes at the slider's place
  STRIP_VOTES = 200,
  LOOKS = 121,
  STOPS = 31;
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

const digits = content.digits.map(({ index, label, pixels }) => ({
  index,
  name: label,
  image: Float32Array.from(bytesOf(pixels), (value) => Math.fround(value / 255)),
}));
const given = new URLSearchParams(location.hash.slice(1));
const among = (values, name, otherwise) => values.find((value) => String(value) === given.get(name)) ?? otherwise;
const state = {
  subject: digits.find((digit) => String(digit.index) === given.get("digit")) ?? digits[content.first],
  sigma: among(SIGMAS, "sigma", 0.5),
  n: among(VOTES, "n", 10000),
  kind: among(KINDS, "attack", "look"),
  target: Number(given.get("target") ?? 3) % 10 || 0,
  distance: Number(given.get("push")) || 0,
  seed: given.has("seed") ? Number(given.get("seed")) >>> 0 : crypto.getRandomValues(new Uint32Array(1))[0],
};
const limit = () => 4 * state.sigma; // of the ball's drawing
const reach = () => ({ 0.25: 2, 0.5: 3, 1: 4 })[state.sigma]; // of the slider

const files = Object.entries(content.networks).map(([name, packed]) => [name, bytesOf(packed)]);
const filesOf = (...names) => Object.fromEntries(files.filter(([name]) => names.some((own) => name.startsWith(own))));
const readers = { gaussian: new Reader(filesOf("gaussian", "ordinary")), catrs: new Reader(filesOf("catrs")) };
readers.ordinary = readers.gaussian;

const networks = ["ordinary", "gaussian", "catrs"].map((name) => ({
  name,
  smoothed: name !== "ordinary",
  card: name === "ordinary" ? null : new Card(name),
  lane: new Lane(name, name !== "ordinary"),
}));
const fileName = ({ name }) => (name === "ordinary" ? name : `${name}-${state.sigma.toFixed(2)}`);
const ask = (network, ...rest) => readers[network.name].ask(rest[0], fileName(network), ...rest.slice(1));
const settings = () => ({ n: state.n, n0: N0, sigma: state.sigma, distance: state.distance, limit: limit() });

function chooseSubject(subject) {
  state.subject = subject;
  showSubject(subject);
  markDigit(digits, subject.index);
  restart();
}

/** Count the votes anew: the digit, the noise or the number of votes has changed. */
function restart() {
  delete document.documentElement.dataset.ready;
  stopShow();
  readers.gaussian.dropAll();
  readers.catrs.dropAll();
  slider.max = reach();
  state.distance = Math.min(state.distance, reach());
  for (const network of networks) {
    const empty = { counts: new Array(CLASSES).fill(0), history: [], chosen: -1, trials: 0, votes: 0, noisy: null };
    Object.assign(network, empty, { certificate: null, finished: false });
    forgetAttack(network);
    if (network.smoothed) vote(network);
    else attack(network);
  }
  remember();
}

/** Let a network vote; the radius counts when all votes are in, because n was fixed in advance. */
function vote(network) {
  const take = ({ selection, estimation, noisy, vote: label, finished = false }) => {
    const trials = estimation.reduce((a, b) => a + b);
    Object.assign(network, { trials, finished, chosen: largest(selection), counts: trials ? estimation : selection });
    if (noisy) Object.assign(network, { noisy, vote: label });
    if (trials) {
      network.votes = estimation[network.chosen];
      network.certificate = certify(network.chosen, network.votes, trials, state.sigma, ALPHA);
      network.history.push({ trials, share: network.votes / trials, bound: network.certificate.bound });
    }
    network.vote = null;
    network.card.show({ ...network, vote: label ?? network.shown }, settings());
    network.shown = label ?? network.shown;
    network.lane.showZone(network.certificate?.radius ?? 0, reach());
    if (finished) attack(network);
  };
  network.card.show(network, settings());
  network.lane.showZone(0, reach());
  const pace = still ? 0 : state.n > 100 ? 3500 : 1500;
  const options = { image: state.subject.image, sigma: state.sigma, n0: N0, n: state.n, pace, ...address() };
  ask(network, "certify", 1, options, take, take);
}

const address = () => ({ seed: state.seed, index: state.subject.index });

function forgetAttack(network) {
  for (const drop of network.drops ?? []) drop();
  const unknown = { direction: null, look: null, lookAtStart: null, looks: null, checked: null, dropCheck: null };
  Object.assign(network, unknown, { attacked: false, drops: [], stops: new Array(STOPS).fill(null) });
  for (const key of network.smoothed ? ["look", "vote"] : ["look"]) network.lane.fill(key, [null], null);
}

/** Ask for something that another attack makes obsolete. */
function askForAttack(network, ...rest) {
  const drop = ask(network, ...rest);
  network.drops.push(drop);
  return drop;
}

/** Find the direction of the push, then read the image along it. */
function attack(network) {
  if (network.smoothed && !network.finished) return;
  const { image } = state.subject;
  const look = { image, direction: new Float32Array(PIXELS), distances: [0] };
  askForAttack(network, "looks", 2, look, ({ answers: [own] }) => {
    network.lookAtStart = own;
    if (!network.smoothed) network.chosen = own;
    const kind = state.kind === "vote" && !network.smoothed ? "look" : state.kind;
    const label = kind === "look" ? own : network.chosen;
    const sigma = network.smoothed ? state.sigma : 0.01,
      size = network.smoothed ? Math.max(1.2 * network.certificate.radius, state.sigma) : 1.5;
    const options = { image, kind, label, target: state.target, sigma, size, ...address() };
    askForAttack(network, "attack", 2, options, ({ direction }) => {
      network.direction = direction ?? new Float32Array(PIXELS);
      followPush(network);
    });
  });
}

/** Read the image along the push: single looks first, then votes, at every fifth stop first. */
function followPush(network) {
  const { image } = state.subject,
    { direction } = network;
  const distances = Array.from({ length: LOOKS }, (_, i) => (i * reach()) / (LOOKS - 1));
  askForAttack(network, "looks", 2, { image, direction, distances }, ({ answers }) => {
    network.looks = answers;
    network.lane.fill("look", answers, network.lookAtStart);
    showPush();
    finishAttack(network);
  });
  if (!network.smoothed) return;
  const order = [...Array(STOPS).keys()].sort((a, b) => (a % 5 === 0 ? 0 : 1) - (b % 5 === 0 ? 0 : 1) || a - b);
  for (const stop of order) {
    const pushed = moved(image, direction, (stop * reach()) / (STOPS - 1));
    const options = { image: pushed, sigma: state.sigma, n: STRIP_VOTES, ...address() };
    askForAttack(network, "predict", 0, options, ({ counts }) => {
      network.stops[stop] = predict(counts, ALPHA);
      network.lane.fill("vote", network.stops, network.chosen);
    });
  }
}

/** When all networks have been attacked, the page is ready to be pushed. */
function finishAttack(network) {
  network.attacked = true;
  if (!networks.every((other) => other.attacked)) return;
  document.documentElement.dataset.ready = "";
  startShow();
}

/** Show the pushed images and their answers, and let the networks vote on them. */
function showPush() {
  output.replaceChildren(state.distance.toFixed(2), " ", h("small", {}, "distance"));
  slider.value = state.distance;
  slider.setAttribute("aria-valuetext", `distance ${state.distance.toFixed(2)}`);
  for (const network of networks) {
    const { lane, direction, looks } = network;
    const pushed = direction ? moved(state.subject.image, direction, state.distance) : state.subject.image;
    lane.moveTo(state.distance, reach(), pushed);
    network.look = looks ? looks[Math.round((state.distance / reach()) * (LOOKS - 1))] : null;
    lane.showResult("look", network.look, network.lookAtStart);
    if (!network.smoothed) continue;
    network.card.drawBall(network, settings());
    if (!direction) lane.showResult("vote", null, null);
    else if (network.checked !== state.distance) check(network, pushed);
  }
  $("summary").replaceChildren(...summarize(state.distance, networks));
}

function check(network, pushed) {
  network.dropCheck?.();
  network.checked = state.distance;
  network.vote = null;
  const show = ({ counts, finished }) => {
    network.vote = finished ? predict(counts, ALPHA) : null;
    const top = largest(counts);
    network.lane.showResult(
      "vote",
      finished ? network.vote : top,
      network.chosen,
      `${whole(counts[top])} of ${whole(CHECK_VOTES)}`,
    );
    if (finished) $("summary").replaceChildren(...summarize(state.distance, networks));
  };
  const options = { image: pushed, sigma: state.sigma, n: CHECK_VOTES, ...address() };
  network.dropCheck = askForAttack(network, "predict", 3, options, show, show);
}

function pushTo(distance) {
  state.distance = Math.min(Math.max(distance, 0), reach());
  showPush();
  remember();
}

/** Keep the state in the address, so that a link shows what its sender saw. A drawing is not kept. */
function remember() {
  const { subject, sigma, n, kind, target, distance, seed } = state;
  const kept = { sigma, n, attack: kind, seed, ...(kind === "digit" ? { target } : {}) };
  if (subject.name !== null) kept.digit = subject.index;
  if (distance) kept.push = distance.toFixed(2);
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}

// On the first visit the slider shows once what it does: it moves to where a look is fooled and both votes must hold.
let show = still || given.has("push") ? null : { frame: 0 };

function startShow() {
  if (!show || show.frame) return;
  const end =
    0.97 * Math.min(...networks.filter((network) => network.smoothed).map(({ certificate }) => certificate.radius));
  const began = performance.now();
  const move = (now) => {
    const part = Math.min(1, (now - began) / 2600);
    pushTo(end * part * part * (3 - 2 * part));
    if (show) show.frame = part < 1 ? requestAnimationFrame(move) : 0;
    if (part === 1) show = null;
  };
  show.frame = requestAnimationFrame(move);
}

function stopShow() {
  if (show?.frame) cancelAnimationFrame(show.frame);
  if (show?.frame) show = null;
}

const slider = h("input", { type: "range", id: "push", min: 0, max: reach(), step: 0.01, value: state.distance });
const output = h("output", { for: "push" });
slider.addEventListener("input", () => {
  stopShow();
  show = null;
  pushTo(Number(slider.value));
});
$("board").append(
  h("div", { class: "push-row" }, h("label", { for: "push" }, "Push the image"), slider, output),
  ...networks.map(({ lane }) => lane.root),
);
$("cards").append(...networks.filter(({ card }) => card).map(({ card }) => card.root));
addDigits($("digits"), digits, chooseSubject);
preparePad($("pad"));

const set = (key) => (value) => {
  state[key] = value;
  restart();
};
const redirect = (kind) => {
  state.kind = kind;
  delete document.documentElement.dataset.ready;
  stopShow();
  show = null;
  for (const network of networks) {
    forgetAttack(network);
    attack(network);
  }
  showPush();
  remember();
};
function chooseTarget() {
  state.target = Number(target.value);
  target.parentElement.querySelector("input").checked = true;
  redirect("digit");
}

const target = h(
  "select",
  { "aria-label": "Digit to push towards", onchange: chooseTarget },
  ...Array.from({ length: CLASSES }, (_, label) => h("option", { value: label }, String(label))),
);
target.value = state.target;
const directions = [
  ["look", "Fool one look"],
  ["vote", "Fool the vote"],
  ["digit", "Towards a ", target],
  ["random", "Random"],
];
addChoices(
  $("sigma"),
  SIGMAS.map((sigma) => [sigma, sigma.toFixed(2)]),
  state.sigma,
  set("sigma"),
);
addChoices(
  $("n"),
  VOTES.map((n) => [n, whole(n)]),
  state.n,
  set("n"),
);
addChoices($("kind"), directions, state.kind, redirect);
$("again").addEventListener("click", () => set("seed")(crypto.getRandomValues(new Uint32Array(1))[0]));

if (typeof DecompressionStream === "undefined") complain("This page needs a browser of 2023 or later.");
else chooseSubject(state.subject);
