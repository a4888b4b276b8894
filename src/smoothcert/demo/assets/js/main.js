// The state of the page, and the functions that change it.

const content = JSON.parse($("data").textContent);
const SIGMAS = [0.25, 0.5, 1],
  VOTES = [100, 1000, 10000, 100000],
  KINDS = ["look", "vote", "digit", "random"];
const N0 = 100,
  ALPHA = content.alpha,
  CHECK_VOTES = 1000, // votes at the slider's position
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
const limit = () => 4 * state.sigma; // largest distance in the drawing of the ball
const reach = () => ({ 0.25: 2, 0.5: 3, 1: 4 })[state.sigma]; // largest distance of the slider

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

/** Vote and attack again after a change of the digit, noise level, number of votes or seed. */
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

/** Let a network vote. Since n was fixed in advance, its radius is a certificate only when all n votes are counted. */
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

// A link to a step (`#attack`) removes the state from the address: restore it.
addEventListener("hashchange", () => location.hash.includes("=") || remember());

// Unless the address states a push, the slider moves once by itself, to a point just inside both certified balls.
let show = still || given.has("push") ? null : { frame: 0 };

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
  { "aria-label": "Digit to push toward", onchange: chooseTarget },
  ...Array.from({ length: CLASSES }, (_, label) => h("option", { value: label }, String(label))),
);
target.value = state.target;
const directions = [
  ["look", "Fool one prediction"],
  ["vote", "Fool the vote"],
  ["digit", "Toward a ", target],
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
