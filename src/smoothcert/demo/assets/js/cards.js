// Step 2: a card for each smoothed network.

const TITLES = {
  gaussian: ["Gaussian", "trained on noisy images"],
  catrs: ["CAT-RS", "trained on noisy images for large radii"],
  ordinary: ["Ordinary network", "trained with almost no noise, no vote, no guarantee"],
};
const FIELD = 100; // radius of the gray field behind the ball, in drawing units
const FIRST = 8; // votes at the start of the bound's axis, which is logarithmic
const BOX = { width: 240, height: 150, left: 34, right: 6, top: 8, bottom: 22 };

class Card {
  constructor(method) {
    const [title, about] = TITLES[method];
    this.part = {
      answer: h("b", { class: "answer" }),
      claim: h("p", { class: "claim" }),
      state: h("p", { class: "state" }),
      copy: h("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" }),
      caption: h("span", { class: "state" }),
    };
    this.ball = s("svg", { viewBox: "-112 -112 224 240", role: "img" });
    this.bound = s("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img" });
    this.bars = h("ol", { class: "bars", start: 0 });
    for (let label = 0; label < CLASSES; label++)
      this.bars.append(
        h(
          "li",
          {},
          h("span", { class: "number" }),
          h("span", { class: "column" }, h("i")),
          h("b", { "aria-hidden": "true" }, String(label)),
        ),
      );
    const { answer, claim, state, copy, caption } = this.part;
    this.votesCaption = h("figcaption", {}, "Votes by digit");
    this.root = h(
      "article",
      { class: "card", "data-network": method, "aria-label": title },
      h("header", {}, h("h3", {}, title), h("p", {}, about)),
      h("div", { class: "verdict" }, answer, h("div", {}, claim, state), h("div", { class: "copy" }, copy, caption)),
      h(
        "div",
        { class: "charts" },
        h("figure", { class: "ball" }, h("figcaption", {}, "Certified ball"), this.ball),
        h("figure", { class: "bound" }, h("figcaption", {}, "Share of votes"), this.bound),
      ),
      h("figure", { class: "votes" }, this.votesCaption, this.bars),
    );
  }

  /** Show the certificate from the votes so far. */
  show(run, settings) {
    const { answer, claim, state, caption, copy } = this.part,
      { certificate, trials, finished, chosen } = run;
    answer.textContent = chosen < 0 ? "…" : finished && certificate.answer < 0 ? "?" : chosen;
    if (!trials) claim.replaceChildren("choosing the answer");
    else if (certificate.radius > 0)
      claim.replaceChildren(
        finished ? "cannot change within " : "radius so far ",
        h("b", {}, radiusText(certificate.radius)),
      );
    else claim.replaceChildren(finished ? "no guarantee: the vote is too close" : "not certain yet");
    state.textContent = trials
      ? `${whole(run.votes)} of ${whole(trials)} ${finished ? "votes" : "so far"}`
      : `first ${whole(settings.n0)} votes`;
    if (run.noisy) paint(copy, run.noisy);
    caption.textContent = run.noisy ? `reads ${run.vote}` : "";
    this.showBars(run.counts);
    this.drawBound(run, settings);
    this.drawBall(run, settings);
  }

  showBars(counts) {
    const total = Math.max(
        1,
        counts.reduce((a, b) => a + b),
      ),
      top = largest(counts);
    counts.forEach((count, label) => {
      const bar = this.bars.children[label];
      bar.className = label === top && count ? "top" : "";
      bar.children[0].textContent = count ? whole(count) : "\u00a0";
      bar.children[1].firstChild.style.height = count ? `max(2px, ${(100 * count) / total}%)` : "0";
      bar.setAttribute("aria-label", `${label}: ${whole(count)} votes`);
    });
  }

  drawBall({ certificate, finished }, { sigma, distance, limit }) {
    const scale = FIELD / limit,
      radius = certificate ? certificate.radius : 0,
      away = Math.min(distance * scale, FIELD + 8);
    const [dx, dy] = [Math.cos(-0.7), Math.sin(-0.7)];
    const tip = { cx: away * dx, cy: away * dy, r: 6, class: distance > radius ? "tip outside" : "tip" };
    // The radius of a small ball is written below it.
    const name = { x: 0, y: radius * scale < 50 ? radius * scale + 16 : 24, "text-anchor": "middle" };
    this.ball.replaceChildren(
      s("circle", { class: "field", r: FIELD }),
      s("circle", { class: "certified", r: radius * scale, "stroke-dasharray": finished ? null : "4 4" }),
      s("line", { class: "push", x1: 0, y1: 0, x2: away * dx, y2: away * dy }),
      s("circle", tip),
      s("text", { ...name, class: "value" }, radius ? `r = ${radiusText(radius)}` : ""),
      s("text", { x: 0, y: FIELD + 22, "text-anchor": "middle" }, `gray: changes up to ${limit.toFixed(2)}`),
    );
    const where = distance ? `; the image is ${distance.toFixed(2)} away` : "";
    this.ball.setAttribute("aria-label", `Ball of radius ${radiusText(radius)}, at noise ${sigma}${where}`);
  }

  drawBound({ history, certificate }, { n }) {
    const { width, height, left, right, top, bottom } = BOX;
    const x = (trials) =>
        left + ((width - left - right) * Math.log(Math.max(trials, FIRST) / FIRST)) / Math.log(n / FIRST),
      y = (share) => top + ((height - top - bottom) * (1 - Math.max(share, 0.4))) / 0.6;
    const line = (key) => history.map((point) => `${x(point.trials).toFixed(1)},${y(point[key]).toFixed(1)}`);
    const rows = [0.5, 0.75, 1].flatMap((share) => [
      s("line", { class: share === 0.5 ? "half" : "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      s("text", { x: left - 5, y: y(share) + 4, "text-anchor": "end" }, share.toFixed(2)),
    ]);
    const last = history.at(-1);
    // Write the bound where there is no curve: at the right, above the dashed line, or at the top if the bound is low.
    const low = Math.min(...history.filter(({ trials }) => x(trials) > width / 2 - 20).map(({ bound }) => bound));
    const end = { x: width - right, y: low > 0.66 ? y(0.5) - 6 : y(1) + 16 };
    this.bound.replaceChildren(
      ...rows,
      s("polygon", { class: "gap", points: [...line("share"), ...line("bound").reverse()].join(" ") }),
      s("polyline", { class: "share", points: line("share").join(" ") }),
      s("polyline", { class: "lower", points: line("bound").join(" ") }),
      s("text", { x: left, y: height - 6 }, `${FIRST} votes`),
      s("text", { x: width - right, y: height - 6, "text-anchor": "end" }, `${whole(n)} votes`),
      s("text", { x: width - right, y: y(0.5) + 13, "text-anchor": "end" }, "must exceed 0.50"),
      ...(last
        ? [s("text", { ...end, "text-anchor": "end", class: "value" }, `at least ${boundText(last.bound)}`)]
        : []),
    );
    const text = certificate ? `Lower bound ${boundText(certificate.bound)}` : "No votes yet";
    this.bound.setAttribute("aria-label", text);
  }
}
