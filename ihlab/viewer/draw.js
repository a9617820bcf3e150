// Drawing: colours come from the style sheet, so that dark and light are its business alone.

/** What a CSS colour variable is now, as [red, green, blue]. */
function cssColor(name) {
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const [red, green, blue] = getComputedStyle(probe).color.match(/[\d.]+/g).map(Number);
  probe.remove();
  return [red, green, blue];
}

/** Colours from one to the next: `between(0)` is the first and `between(1)` the last of `stops`. */
function ramp(stops) {
  return (at) => {
    const place = Math.min(Math.max(at, 0), 1) * (stops.length - 1);
    const first = Math.min(Math.floor(place), stops.length - 2);
    return stops[first].map((channel, i) => channel + (stops[first + 1][i] - channel) * (place - first));
  };
}

const SHADES = 512;

/** The diverging scale: SHADES colours on either side of 0, as canvas pixels and as [red, green, blue]. */
function makeScale() {
  const between = ramp(["--minus", "--minus-half", "--zero", "--plus-half", "--plus"].map(cssColor));
  const colors = Array.from({ length: 2 * SHADES + 1 }, (_, i) => between(i / (2 * SHADES)).map(Math.round));
  const pixels = new Uint32Array(Uint8Array.from(colors.flatMap((color) => [...color, 255])).buffer);
  return { colors, pixels };
}

/** The shade of a value in -size .. size: its distance from 0 as a square root. */
function shadeOf(value, size) {
  return Math.round(SHADES * (1 + Math.sign(value) * Math.sqrt(Math.min(Math.abs(value) / size, 1))));
}

/** Black or white, whichever reads better on a colour (relative luminance, WCAG 2). */
function inkOn(color) {
  const [red, green, blue] = color.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 ? "#000" : "#fff";
}

/** One pixel an entry, of the colour [red, green, blue] that `colorAt` gives it; nothing at masked keys. */
function paintPattern(canvas, row, colorAt) {
  const { n } = row;
  canvas.width = canvas.height = n;
  const image = new ImageData(n, n);
  for (let q = 0; q < n; q++) {
    for (let k = 0; k <= lastKey(row, q); k++) {
      const [red, green, blue] = colorAt(q, k), at = 4 * (q * n + k);
      image.data[at] = red;
      image.data[at + 1] = green;
      image.data[at + 2] = blue;
      image.data[at + 3] = 255;
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The values of one head [n * n] on the scale: at most `most` pixels a side, each the strongest of its entries. */
function paintValues(canvas, row, values, size, scale, most = Infinity) {
  const { n } = row, every = Math.max(1, Math.ceil(n / most)), side = Math.ceil(n / every);
  canvas.width = canvas.height = side;
  const image = new ImageData(side, side), pixels = new Uint32Array(image.data.buffer);
  const strongest = new Float32Array(side);
  for (let top = 0; top < n; top += every) {
    const bottom = Math.min(top + every, n), last = lastKey(row, bottom - 1);
    strongest.fill(0);
    for (let q = top; q < bottom; q++) {
      for (let k = 0; k <= lastKey(row, q); k++) {
        const value = values[q * n + k], at = every === 1 ? k : Math.floor(k / every);
        if (Math.abs(value) > Math.abs(strongest[at])) strongest[at] = value;
      }
    }
    for (let at = 0; at * every <= last; at++) pixels[top / every * side + at] = scale.pixels[shadeOf(strongest[at], size)];
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** The legend: the scale from left to right, even in the square root, and numbers where they are. */
function paintLegend(canvas, ticks, { size, signed }, scale) {
  const shown = scale.pixels.subarray(signed ? 0 : SHADES);
  canvas.width = shown.length;
  const image = new ImageData(shown.length, 1);
  new Uint32Array(image.data.buffer).set(shown);
  canvas.getContext("2d").putImageData(image, 0, 0);
  ticks.replaceChildren(...legendTicks({ size, signed }).map(([place, text]) => {
    const tick = make("span", { textContent: text });
    tick.style.left = `${100 * place}%`;
    return tick;
  }));
}

/** Numbers along the scale: [place from 0 to 1, text]. */
function legendTicks({ size, signed }) {
  const least = signed ? -1 : 0;
  return [-1, -0.5, 0, 0.5, 1].filter((root) => root >= least)
    .map((root) => [(root - least) / (1 - least), written(Math.sign(root) * root * root * size, size / 250)]);
}

/** Tokens as labels, in units of a cell: which have room, cut short, their size, and the margin that they need. */
function labelsOf(tokens) {
  const n = tokens.length, every = Math.ceil(n / 40);
  const short = tokens.map((token) => (token.length > 6 ? `${token.slice(0, 5)}…` : token));
  const font = Math.min(0.68 * every, Math.max(0.026 * n, 0.16));
  return { every, short, font, margin: font * (0.9 + 0.65 * Math.max(...short.map((token) => token.length))) };
}

/** Labels on both sides, the stripe and the cross hair, in units of a cell around the canvas. */
function drawFrame(svg, canvas, tokens, stripe, { query, key }) {
  const n = tokens.length;
  const { every, short, font, margin } = labelsOf(tokens);
  svg.setAttribute("viewBox", `${-margin} ${-margin} ${n + margin} ${n + margin}`);
  const share = 100 / (n + margin);
  Object.assign(canvas.style, { left: `${margin * share}%`, top: `${margin * share}%`, width: `${n * share}%`, height: `${n * share}%` });

  const parts = [rect("frame", 0, 0, n, n)];
  short.forEach((token, at) => {
    const apart = (chosen) => at === chosen || (at % every === 0 && Math.abs(at - chosen) >= every);
    if (apart(query)) {
      parts.push(label(token, -0.4 * font, at + 0.5, font, "end", "", at === query));
    }
    if (apart(key)) {
      parts.push(label(token, at + 0.5, -0.4 * font, font, "start", `rotate(-90 ${at + 0.5} ${-0.4 * font})`, at === key));
    }
  });
  parts.push(...stripe.map(([q, k]) => rect("stripe", k, q, 1, 1)));
  parts.push(rect("cross", 0, query, n, 1), rect("cross", key, 0, 1, n), rect("cell", key, query, 1, 1));
  svg.replaceChildren(...parts);
}

/** The way of (alpha1, beta1) through training, over the loss field. */
function drawPath(svg, canvas, track, now, field) {
  const { low, high } = field;
  const side = 260, left = 44, top = 6, square = side - left - top;
  const x = (value) => left + square * (value - low) / (high - low);
  const y = (value) => top + square * (high - value) / (high - low);
  svg.setAttribute("viewBox", `0 0 ${side} ${side}`);
  const share = (length) => `${100 * length / side}%`;
  Object.assign(canvas.style, { left: share(left), top: share(top), width: share(square), height: share(square) });

  const parts = [shape("rect", { class: "axis", x: left, y: top, width: square, height: square })];
  parts.push(shape("rect", { class: "unit", x: x(0), y: y(1), width: x(1) - x(0), height: y(0) - y(1) }));
  for (const tick of ticksBetween(low, high)) {
    parts.push(text(tick, x(tick), top + square + 14, "middle"), text(tick, left - 6, y(tick) + 4, "end"));
  }
  parts.push(text("α₁", left + square / 2, side - 2, "middle", "name"), text("β₁", 10, top + square / 2, "middle", "name"));
  parts.push(shape("polyline", { class: "track-edge", points: track.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
  parts.push(shape("polyline", { class: "track", points: track.map(([a, b]) => `${x(a)},${y(b)}`).join(" ") }));
  parts.push(shape("circle", { class: "start", cx: x(track[0][0]), cy: y(track[0][1]), r: 4 }));
  parts.push(shape("circle", { class: "now", cx: x(now[0]), cy: y(now[1]), r: 6 }));
  svg.replaceChildren(...parts);
}

/** Five numbers or so in a range, halves or whole. */
function ticksBetween(low, high) {
  const gap = high - low <= 2 ? 0.5 : Math.ceil((high - low) / 5);
  const ticks = [];
  for (let tick = Math.ceil(low / gap) * gap; tick <= high; tick += gap) ticks.push(tick);
  return ticks;
}

/** The loss field in even bands, so that the edges are its contour lines. */
function paintField(canvas, { loss }) {
  const between = ramp([cssColor("--field-low"), cssColor("--field-high")]);
  const least = Math.min(...loss.flat()), greatest = Math.max(...loss.flat()), bands = 14, last = loss.length - 1;
  const image = new ImageData(canvas.width, canvas.height);
  for (let row = 0; row < canvas.height; row++) {
    for (let column = 0; column < canvas.width; column++) {
      const value = interpolated(loss, last * (1 - row / (canvas.height - 1)), last * column / (canvas.width - 1));
      const band = Math.min(bands - 1, Math.floor(bands * (value - least) / (greatest - least)));
      image.data.set([...between(band / (bands - 1)), 255], 4 * (row * canvas.width + column));
    }
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

/** A grid's value at a place between its points. */
function interpolated(grid, row, column) {
  const r = Math.min(Math.floor(row), grid.length - 2), c = Math.min(Math.floor(column), grid[0].length - 2);
  const down = row - r, right = column - c;
  return (1 - down) * ((1 - right) * grid[r][c] + right * grid[r][c + 1])
    + down * ((1 - right) * grid[r + 1][c] + right * grid[r + 1][c + 1]);
}

// Elements. Text goes in as text, never as markup: a token may hold anything.

/** An HTML element. */
function make(name, properties = {}, children = []) {
  const element = Object.assign(document.createElement(name), properties);
  element.append(...children);
  return element;
}

/** An SVG element. */
function shape(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}

/** A rectangle of a CSS class. */
function rect(kind, x, y, width, height) {
  return shape("rect", { class: kind, x, y, width, height });
}

/** Text, or a number with a proper minus. */
function text(content, x, y, anchor, kind = "") {
  const element = shape("text", { x, y, "text-anchor": anchor, class: kind });
  element.textContent = typeof content === "number" ? String(content).replace("-", "−") : content;
  return element;
}

/** A token beside the picture, bold where it is chosen. */
function label(content, x, y, size, anchor, transform, chosen) {
  const element = text(content, x, y, anchor, chosen ? "on" : "");
  element.setAttribute("font-size", size);
  element.setAttribute("dominant-baseline", "central");
  if (transform) element.setAttribute("transform", transform);
  return element;
}
