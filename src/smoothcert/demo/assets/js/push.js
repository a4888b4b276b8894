// Attacks all networks, reads the image along the push, and shows the image at the slider's position.

function forgetAttack(network) {
  for (const drop of network.drops ?? []) drop();
  const unknown = { direction: null, look: null, lookAtStart: null, looks: null, checked: null, dropCheck: null };
  Object.assign(network, unknown, { attacked: false, drops: [], stops: new Array(STOPS).fill(null) });
  for (const key of network.smoothed ? ["look", "vote"] : ["look"]) network.lane.fill(key, [null], null);
}

/** Start a task that is dropped when the network is attacked again. */
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

/** Read the image along the push: first with single predictions, then with votes (every fifth stop first). */
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

/** Mark the page as ready, and start the show, when all networks have been attacked. */
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

/** Move the slider by itself, once. */
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
