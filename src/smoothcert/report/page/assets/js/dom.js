// Elements and text formats. Names come from files, so they are set as text and never parsed as markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, text] of Object.entries(value)) element.style.setProperty(key, text);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
const byId = (id) => document.getElementById(id);
const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)} %`;
const sigmaText = (sigma) => (sigma ? sigma.toFixed(2) : "?");
const signed = (value, digits) => {
  const size = Math.abs(value).toFixed(digits);
  return Number(size) === 0 ? size : `${value < 0 ? "−" : "+"}${size}`;
};
/** Round down: a certificate is never rounded up. */
const roundDown = (value, digits) => (Math.floor(value * 10 ** digits + 1e-6) / 10 ** digits).toFixed(digits);
const sum = (values) => values.reduce((total, value) => total + value, 0);
const unique = (values) => [...new Set(values)];

/** Return a callback that sets one choice of a panel and redraws it. */
const setter = (view, key, draw) => (value) => {
  view[key] = value;
  draw();
};

/** Create a row of buttons of which exactly one is pressed. */
function segmented(label, choices, chosen, choose) {
  const buttons = choices.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => press(value) }, text),
  );
  const press = (value) => {
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(choices[i][0] === value)));
    choose(value);
  };
  return h("div", { class: "segmented", role: "group", "aria-label": label }, ...buttons);
}

function toggle(text, on, change) {
  const button = h(
    "button",
    {
      type: "button",
      class: "toggle",
      "aria-pressed": String(on),
      onclick: () => {
        const now = button.getAttribute("aria-pressed") !== "true";
        button.setAttribute("aria-pressed", String(now));
        change(now);
      },
    },
    text,
  );
  return button;
}

function picker(label, choices, chosen, choose) {
  const select = h(
    "select",
    { "aria-label": label, onchange: () => choose(choices[select.selectedIndex][0]) },
    ...choices.map(([value, text]) => h("option", { selected: value === chosen }, text)),
  );
  return h("label", { class: "picker" }, h("span", {}, label), select);
}

/** Create a bar of segments, given their sizes by CSS class. */
function stackedBar(label, parts, total) {
  const segments = Object.entries(parts).map(([name, count]) =>
    h("span", { class: name, style: { width: `${(100 * count) / total}%` } }),
  );
  return h("span", { class: "bar", role: "img", "aria-label": label }, ...segments);
}

/** Format seconds: 12 s, 20 min, 4 h 05 min, 2.5 days. */
function duration(seconds) {
  if (seconds < 100) return `${seconds < 10 ? seconds.toFixed(1) : Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48
    ? `${hours} h ${String(minutes % 60).padStart(2, "0")} min`
    : `${(seconds / 86400).toFixed(1)} days`;
}
