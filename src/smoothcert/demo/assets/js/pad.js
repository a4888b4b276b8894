// The digit: chosen from test images, or drawn with a pointer or the arrow keys.

const pad = { drawn: null, pen: null, down: false, row: 14, column: 14 };

/** Move the center of mass of the drawing to the middle of the image, as in MNIST. */
function centered(image) {
  let mass = 0,
    row = 0,
    column = 0;
  image.forEach((value, i) => {
    mass += value;
    row += value * Math.floor(i / SIDE);
    column += value * (i % SIDE);
  });
  if (!mass) return image;
  const down = 14 - Math.round(row / mass),
    right = 14 - Math.round(column / mass);
  return image.map((_, i) => {
    const fromRow = Math.floor(i / SIDE) - down,
      fromColumn = (i % SIDE) - right;
    const inside = fromRow >= 0 && fromRow < SIDE && fromColumn >= 0 && fromColumn < SIDE;
    return inside ? image[fromRow * SIDE + fromColumn] : 0;
  });
}

/** Paint a soft, round stroke between two points, in pixels of the image. */
function stroke(from, to) {
  const steps = Math.max(1, Math.ceil(4 * Math.hypot(to.x - from.x, to.y - from.y)));
  for (let step = 0; step <= steps; step++) {
    const x = from.x + ((to.x - from.x) * step) / steps,
      y = from.y + ((to.y - from.y) * step) / steps;
    pad.drawn.forEach((value, i) => {
      const distance = Math.hypot((i % SIDE) + 0.5 - x, Math.floor(i / SIDE) + 0.5 - y);
      pad.drawn[i] = Math.max(value, Math.min(1, Math.max(0, 1.9 - distance)));
    });
  }
  paint($("pad"), pad.drawn);
}

function beginDrawing(clear) {
  if (pad.drawn && !clear) return;
  pad.drawn = new Float32Array(PIXELS);
  paint($("pad"), pad.drawn);
  $("pad-hint").replaceChildren(
    h("button", { type: "button", class: "plain", onclick: () => beginDrawing(true) }, "Clear and draw again"),
  );
  for (const button of $("digits").children) button.setAttribute("aria-checked", "false");
}

let settled = 0;
/** Let the networks read the drawing when the pen has rested for a moment. */
function endDrawing() {
  clearTimeout(settled);
  settled = setTimeout(() => chooseSubject({ image: centered(pad.drawn), index: 1 << 20, name: null }), 600);
}

function showSubject({ image, name }) {
  paint($("pad"), name === null ? pad.drawn : image);
  $("pad").setAttribute("aria-label", name === null ? "Your drawing" : `A handwritten ${name}`);
  if (name === null) return;
  pad.drawn = null;
  $("pad-hint").textContent = "draw on it, or choose below";
}

function preparePad(canvas) {
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    const scale = SIDE / box.width;
    return { x: (event.clientX - box.left) * scale, y: (event.clientY - box.top) * scale };
  };
  canvas.addEventListener("pointerdown", (event) => {
    clearTimeout(settled);
    beginDrawing(false);
    canvas.setPointerCapture(event.pointerId);
    pad.pen = place(event);
    stroke(pad.pen, pad.pen);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pad.pen) return;
    const next = place(event);
    stroke(pad.pen, next);
    pad.pen = next;
  });
  for (const name of ["pointerup", "pointercancel"])
    canvas.addEventListener(name, () => {
      if (pad.pen) endDrawing();
      pad.pen = null;
    });
  canvas.addEventListener("keydown", (event) => {
    const [down, right] =
      { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key] ?? [];
    if (event.key !== " " && down === undefined) return;
    event.preventDefault();
    if (event.key === " ") pad.down = !pad.down;
    const from = { x: pad.column, y: pad.row };
    pad.row = Math.min(24, Math.max(4, pad.row + (down ?? 0)));
    pad.column = Math.min(24, Math.max(4, pad.column + (right ?? 0)));
    if (!pad.down) return;
    beginDrawing(false);
    stroke(from, { x: pad.column, y: pad.row });
    endDrawing();
  });
}

/** Add the test images as a group of radio buttons, which the arrow keys walk through. */
function addDigits(group, digits, choose) {
  const buttons = digits.map((digit, i) => {
    const canvas = h("canvas");
    paint(canvas, digit.image);
    const walk = (event) => {
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const next = (i + by + digits.length) % digits.length;
      buttons[next].focus();
      choose(digits[next]);
    };
    const about = { type: "button", role: "radio", "aria-label": `A ${digit.name}`, "aria-checked": "false" };
    return h("button", { ...about, onclick: () => choose(digit), onkeydown: walk }, canvas);
  });
  group.append(...buttons);
}

function markDigit(digits, index) {
  digits.forEach((digit, i) => {
    const chosen = digit.index === index,
      any = digits.some((other) => other.index === index);
    $("digits").children[i].setAttribute("aria-checked", String(chosen));
    $("digits").children[i].tabIndex = chosen || (!any && i === 0) ? 0 : -1;
  });
}
