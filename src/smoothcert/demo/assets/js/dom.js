// Functions that create elements and format numbers.

function element(make, name, properties, children) {
  const made = make(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

const h = (name, properties = {}, ...children) =>
  element((tag) => document.createElement(tag), name, properties, children);
const s = (name, properties = {}, ...children) =>
  element((tag) => document.createElementNS("http://www.w3.org/2000/svg", tag), name, properties, children);
const $ = (id) => document.getElementById(id);

const whole = (value) => value.toLocaleString("en-US");
/** Format a radius, rounded down: a certificate is never rounded up. */
const radiusText = (value) => (Math.floor(value * 100 + 1e-9) / 100).toFixed(2);
const boundText = (value) => (Math.floor(value * 1e4) / 1e4).toFixed(4);

/** Paint an image of 28x28 values on a canvas; values outside [0, 1] are clipped on the screen only. */
function paint(canvas, image) {
  canvas.width = canvas.height = SIDE;
  const context = canvas.getContext("2d"),
    pixels = context.createImageData(SIDE, SIDE);
  image.forEach((value, i) => {
    pixels.data.fill(255 * value, 4 * i, 4 * i + 3);
    pixels.data[4 * i + 3] = 255;
  });
  context.putImageData(pixels, 0, 0);
}

/** Add radio buttons to a fieldset; `choose` gets the value. */
function addChoices(fieldset, choices, chosen, choose) {
  for (const [value, ...label] of choices)
    fieldset.append(
      h(
        "label",
        {},
        h("input", {
          type: "radio",
          name: fieldset.id,
          value,
          checked: String(value) === String(chosen),
          onchange: () => choose(value),
        }),
        ...label,
      ),
    );
}
