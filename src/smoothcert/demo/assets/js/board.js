// Step 3: answers along the push, as strips below the slider.

class Lane {
  constructor(name, smoothed) {
    const [title, about] = TITLES[name];
    this.smoothed = smoothed;
    this.zone = h("div", { class: "ball-zone" }, h("span"));
    this.strips = { look: h("div", { class: "strip", role: "img" }), vote: h("div", { class: "strip", role: "img" }) };
    this.needle = h("div", { class: "needle" });
    this.pushed = h("canvas", { width: SIDE, height: SIDE, "aria-hidden": "true" });
    this.results = { look: h("p"), vote: h("p") };
    const both = smoothed ? ["look", "vote"] : ["look"];
    this.root = h(
      "div",
      { class: "lane", "data-network": name },
      h("div", {}, h("h3", {}, title), h("p", { class: "about-lane" }, about)),
      h(
        "div",
        { class: smoothed ? "way" : "way bare" },
        ...(smoothed ? [this.zone] : []),
        ...both.map((key) => this.strips[key]),
        this.needle,
      ),
      h("div", { class: "outcome" }, this.pushed, ...both.map((key) => this.results[key])),
    );
  }

  /** Mark the certified ball along the push. */
  showZone(radius, reach) {
    this.zone.hidden = !radius;
    this.zone.style.width = `${(100 * Math.min(radius, reach)) / reach}%`;
    this.zone.firstChild.textContent = `certified to ${radiusText(radius)}`;
  }

  /** Fill a strip with answers at equally spaced distances: -1 if the vote is undecided, null if not counted yet. */
  fill(key, answers, original) {
    const runs = [];
    answers.forEach((answer) => {
      if (runs.length && runs.at(-1).answer === answer) runs.at(-1).length++;
      else runs.push({ answer, length: 1 });
    });
    const kind = (answer) => (answer === null ? "" : answer < 0 ? "unsure" : answer === original ? "same" : "turned");
    const label = (answer, share) =>
      answer === null || answer < 0 || share < 0.04
        ? ""
        : share < 0.12
          ? String(answer)
          : `${key === "look" ? "reads" : "vote"} ${answer}`;
    this.strips[key].replaceChildren(
      ...runs.map(({ answer, length }) =>
        h(
          "span",
          { class: kind(answer), style: `flex: ${length} 1 0${length < answers.length / 25 ? "; padding: 0" : ""}` },
          label(answer, length / answers.length),
        ),
      ),
    );
    const text = runs.map(({ answer }) => (answer === null ? "counting" : answer < 0 ? "undecided" : answer));
    this.strips[key].setAttribute(
      "aria-label",
      `${key === "look" ? "One prediction" : "The vote"}: ${text.join(", then ")}`,
    );
  }

  showResult(key, answer, original, detail = "") {
    const result = this.results[key];
    const said = answer === null ? "…" : answer < 0 ? "undecided" : String(answer);
    result.className = answer === null || answer < 0 ? "" : answer === original ? "same" : "turned";
    result.replaceChildren(
      key === "look" ? "one prediction: " : "vote: ",
      h("b", {}, said),
      ...(detail ? [h("small", {}, detail)] : []),
    );
  }

  moveTo(distance, reach, image) {
    this.needle.style.left = `calc(${(100 * distance) / reach}% - 1px)`;
    paint(this.pushed, image);
  }
}

/** Return sentences about the answers at this distance, as text and elements. */
function summarize(distance, networks) {
  if (!distance) return ["Drag the slider, or use the arrow keys, and watch the answers."];
  const name = (network) => TITLES[network.name][0];
  const list = (names) => [names.slice(0, -1).join(", "), names.at(-1)].filter(Boolean).join(" and ");
  const smoothed = networks.filter((network) => network.smoothed && network.certificate);
  const fooled = networks.filter((network) => network.look !== null && network.look !== network.lookAtStart);
  const looks = [...new Set(fooled.map(({ look }) => look))];
  const readers = looks.map((look) => ({ look, names: fooled.filter((one) => one.look === look).map(name) }));
  const parts = [];
  if (fooled.length)
    parts.push(
      h("b", { class: "turned" }, "One prediction is fooled: "),
      `${list(readers.map(({ look, names }) => `${list(names)} ${names.length > 1 ? "read" : "reads"} ${look}`))}. `,
    );
  const inside = smoothed.filter(({ certificate }) => distance <= certificate.radius);
  const outside = smoothed.filter(({ certificate }) => distance > certificate.radius);
  if (inside.length)
    parts.push(
      h("b", { class: "same" }, inside.length > 1 ? "Both votes hold" : `The vote of ${name(inside[0])} holds`),
      ", and must: the image is inside the certified ball. ",
    );
  const said = ({ vote, chosen }) =>
    vote === null
      ? "is counting"
      : vote < 0
        ? "is undecided"
        : vote === chosen
          ? `still says ${vote}`
          : `now says ${vote}`;
  if (outside.length)
    parts.push(
      `Beyond ${outside.length > 1 ? "both guarantees" : `the guarantee of ${name(outside[0])}`}: `,
      `${list(outside.map((network) => `${name(network)} ${said(network)}`))}.`,
    );
  return parts;
}
