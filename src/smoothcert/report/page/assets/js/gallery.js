// Test images of a run: the most and least robust, the wrong, the abstained; each clean and under a draw of noise.

const galleryView = { run: null };
const KIND_TEXT = {
  "most robust": "Right, with the largest radii",
  "least robust": "Right, with the smallest radii",
  wrong: "Wrong, with the largest radii",
  abstained: "Abstained",
};
const sheets = new Map();

/** Standard normal numbers from a seed (mulberry32 and Box-Muller): the same noise each time the page is opened. */
function normals(seed) {
  let now = seed >>> 0;
  const uniform = () => {
    now = (now + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(now ^ (now >>> 15), now | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (((mixed ^ (mixed >>> 14)) >>> 0) + 0.5) / 4294967296;
  };
  return () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform());
}

/** The pixels of a data set's sheet, decoded once. */
function sheetOf(dataset) {
  if (!sheets.has(dataset)) {
    const sheet = data.gallery.sheets.find((other) => other.dataset === dataset);
    sheets.set(
      dataset,
      sheet &&
        new Promise((resolve, reject) => {
          const picture = new Image();
          picture.onload = () => resolve({ ...sheet, picture });
          picture.onerror = () => reject(new Error("the sheet of images cannot be decoded"));
          picture.src = sheet.png;
        }),
    );
  }
  return sheets.get(dataset);
}

/** An image of the sheet on a canvas; with noise of standard deviation sigma where it is given. */
function canvasOf(sheet, position, alt, sigma = 0, draw = 0) {
  const [width, height] = sheet.size;
  const canvas = h("canvas", { width, height, role: "img", "aria-label": alt });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(sheet.picture, 0, position * height, width, height, 0, 0, width, height);
  if (sigma) {
    const pixels = context.getImageData(0, 0, width, height),
      next = normals(1000003 * draw + sheet.indices[position]);
    const grey = (sheet.grey ??= isGrey(pixels.data));
    const scale = (255 * sigma) / sheet.shrink; // a pixel that is the mean of k x k has a k-th of the noise
    for (let i = 0; i < pixels.data.length; i += 4) {
      const same = grey ? scale * next() : 0;
      for (let channel = 0; channel < 3; channel++) pixels.data[i + channel] += grey ? same : scale * next();
    }
    context.putImageData(pixels, 0, 0);
  }
  return canvas;
}

function isGrey(pixels) {
  for (let i = 0; i < pixels.length; i += 4)
    if (pixels[i] !== pixels[i + 1] || pixels[i] !== pixels[i + 2]) return false;
  return true;
}

const className = (sheet, label) => (label < 0 ? "abstains" : (sheet.classes[label] ?? String(label)));

/** What a pick says in a line; also the name of its button. */
function pickText(sheet, pick) {
  const label = className(sheet, sheet.labels[pick.image]);
  if (pick.predict < 0) return `${label}: abstains`;
  const said =
    pick.predict === sheet.labels[pick.image] ? label : `${label} taken for ${className(sheet, pick.predict)}`;
  return `${said}, radius ${pick.radius.toFixed(3)}`;
}

/** Votes as bars, the label's class marked; where they were not kept, the bound of p_A. */
function voteBars(sheet, run, pick, most) {
  if (!pick.votes)
    return [
      h(
        "p",
        { class: "remark" },
        pick.predict < 0 ? "votes not kept" : `vote share at least ${percent(normalCdf(pick.radius / run.sigma), 2)}`,
      ),
    ];
  return pick.votes
    .slice(0, most)
    .map(([label, count]) =>
      h(
        "div",
        { class: `vote${label === sheet.labels[pick.image] ? " own" : ""}` },
        h("span", { class: "name" }, className(sheet, label)),
        h("span", { class: "track" }, h("span", { style: { width: `${(100 * count) / pick.cast}%` } })),
        h(
          "span",
          { class: "number" },
          percent(count / pick.cast, count / pick.cast > 0.99 || count / pick.cast < 0.01 ? 2 : 1),
        ),
      ),
    );
}

/** Phi by Abramowitz and Stegun 7.1.26 through erf, good to 1e-7. */
function normalCdf(value) {
  const t = 1 / (1 + (0.3275911 * Math.abs(value)) / Math.SQRT2);
  const tail =
    t *
    (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))) *
    Math.exp((-value * value) / 2);
  return value >= 0 ? 1 - tail / 2 : tail / 2;
}

function card(sheet, run, pick, all) {
  const name = `Image ${sheet.indices[pick.image]}`;
  return h(
    "button",
    { type: "button", class: "card", onclick: () => openDetail(sheet, run, all, all.indexOf(pick)) },
    h(
      "span",
      { class: "views" },
      canvasOf(sheet, pick.image, name),
      canvasOf(sheet, pick.image, "under noise", run.sigma ?? 0),
    ),
    h(
      "span",
      { class: "caption" },
      h("b", {}, className(sheet, sheet.labels[pick.image])),
      pick.predict >= 0 &&
        pick.predict !== sheet.labels[pick.image] &&
        h("span", { class: "taken" }, ` taken for ${className(sheet, pick.predict)}`),
      h("span", { class: "quiet" }, pick.predict < 0 ? " abstains" : ` ${pick.radius.toFixed(2)}`),
    ),
    h("span", { class: "votes" }, ...voteBars(sheet, run, pick, 3)),
  );
}

async function drawGallery() {
  const runs = filteredRuns().filter((run) => data.gallery.runs[run.id]);
  const notes = data.gallery.missing.map((text) => h("p", { class: "note" }, text));
  if (!runs.length) {
    byId("gallery-controls").replaceChildren();
    byId("gallery").replaceChildren(
      ...(notes.length ? notes : [h("p", { class: "note" }, "No run that is shown has images here.")]),
    );
    return;
  }
  if (!runs.includes(galleryView.run)) galleryView.run = [...runs].sort((a, b) => b.acr[0] - a.acr[0])[0];
  const run = galleryView.run,
    picks = data.gallery.runs[run.id];
  byId("gallery-controls").replaceChildren(
    picker(
      "Run",
      runs.map((other) => [other, severalSets() ? `${other.title}, ${other.set}` : other.title]),
      run,
      (other) => {
        galleryView.run = other;
        drawGallery();
      },
    ),
  );
  const sheet = await sheetOf(run.dataset);
  if (galleryView.run !== run) return;
  const all = data.gallery.kinds.flatMap((kind) => picks[kind]);
  const groups = data.gallery.kinds
    .filter((kind) => picks[kind].length)
    .map((kind) =>
      h(
        "div",
        { class: "kind" },
        h("h3", {}, KIND_TEXT[kind]),
        h("div", { class: "cards" }, ...picks[kind].map((pick) => card(sheet, run, pick, all))),
      ),
    );
  byId("gallery").replaceChildren(...notes, ...groups);
}

panels.push(drawGallery);
