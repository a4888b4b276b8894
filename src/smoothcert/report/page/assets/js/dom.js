// Elements and controls. Names come from files, so they are set as text and never parsed as markup.

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

export const h = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const s = (tag, attributes = {}, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);
export const byId = (id) => document.getElementById(id);
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
export const sum = (values) => values.reduce((total, value) => total + value, 0);
export const unique = (values) => [...new Set(values)];

/** Split a text into parts so that lines break neither inside names nor between a number and its symbol or unit. */
export const unbroken = (text) =>
  text
    .split(/(σ [\d.]+\d|[\d.]+ %|\S+ = [\d.]*\d(?: to [\d.]*\d)?|\S?[\d.]+ to \S?[\d.]+|CAT-RS|\([\w-]{1,16}\))/)
    .map((part, i) => (i % 2 ? h("span", { class: "unbroken" }, part) : part));

/** Replace the controls of a panel, and keep the focus on the control at the same place. */
export function setControls(holder, ...controls) {
  const all = () => [...holder.querySelectorAll("button, select, input")];
  const focused = all().indexOf(document.activeElement);
  holder.replaceChildren(...controls.filter(Boolean));
  if (focused >= 0) all()[focused]?.focus();
}

/** Create a row of buttons of which exactly one is pressed. */
export function segmented(label, choices, chosen, choose) {
  const buttons = choices.map(([value, text]) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text),
  );
  return h("div", { class: "segmented", role: "group", "aria-label": label }, ...buttons);
}

export const toggle = (text, on, change) =>
  h("button", { type: "button", class: "toggle", "aria-pressed": String(on), onclick: () => change(!on) }, text);

export function picker(label, choices, chosen, choose) {
  const select = h(
    "select",
    { "aria-label": label, onchange: () => choose(choices[select.selectedIndex][0]) },
    ...choices.map(([value, text]) => h("option", { selected: value === chosen }, text)),
  );
  return h("label", { class: "picker" }, h("span", {}, label), select);
}

/** Create a bar of segments: `parts` maps CSS classes to sizes, and `colors` overrides the colors of classes. */
export function stackedBar(label, parts, total, colors = {}) {
  const segments = Object.entries(parts).map(([name, size]) =>
    h("span", {
      class: name,
      style: { width: `${(100 * size) / total}%`, ...(colors[name] && { background: colors[name] }) },
    }),
  );
  return h("span", { class: "bar", role: "img", "aria-label": label }, ...segments);
}
