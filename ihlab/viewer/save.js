// The large picture as an SVG file of its own: colours written out, nothing of the page needed.

const CELL = 12, FONT = "system-ui, 'DejaVu Sans', sans-serif";
const MOST_RECTS = 160; // tokens: of longer rows the cells are one image, or the file would be tens of megabytes

/** Characters that no XML may hold (XML 1.0, section 2.2), half surrogate pairs among them. */
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

/** The SVG of a picture: `{ title, row, colorAt, stripe, canvas, legend }`. */
function pictureSvg({ title, row, colorAt, stripe, canvas, legend }) {
  const { n, tokens } = row, { every, short, font, margin } = labelsOf(tokens);
  const ink = css(cssColor("--text")), line = css(cssColor("--line")), ground = css(cssColor("--surface"));
  const cell = Math.max(2, Math.min(CELL * 2, 560 / n)), left = 12 + margin * cell, top = 34 + margin * cell, side = n * cell;
  const width = Math.max(left + side + 16, 360), height = top + side + 62;
  const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "font-family": FONT });
  const write = (content, x, y, size, anchor, more = {}) => {
    const element = shape("text", { x, y, "font-size": size, "text-anchor": anchor, fill: ink, ...more });
    element.textContent = content.replace(NOT_XML, "\ufffd");
    svg.append(element);
  };
  svg.append(shape("rect", { width, height, fill: ground }));
  write(title, 12, 22, 14, "start", { "font-weight": 600 });
  if (n <= MOST_RECTS) {
    for (let q = 0; q < n; q++) {
      for (let k = 0; k <= lastKey(row, q); k++) {
        svg.append(shape("rect", { class: "cell", x: left + k * cell, y: top + q * cell, width: cell, height: cell, fill: css(colorAt(q, k)), "shape-rendering": "crispEdges" }));
      }
    }
  } else {
    svg.append(shape("image", { x: left, y: top, width: side, height: side, href: canvas.toDataURL(), style: "image-rendering: pixelated" }));
  }
  for (const [q, k] of stripe) {
    svg.append(shape("rect", { class: "stripe", x: left + k * cell, y: top + q * cell, width: cell, height: cell, fill: "none", stroke: css(cssColor("--stripe")) }));
  }
  svg.append(shape("rect", { x: left, y: top, width: side, height: side, fill: "none", stroke: line }));
  short.forEach((token, at) => {
    if (at % every) return;
    const near = 0.4 * font * cell, place = (at + 0.5) * cell;
    write(token, left - near, top + place, font * cell, "end", { "dominant-baseline": "central" });
    write(token, left + place, top - near, font * cell, "start", {
      "dominant-baseline": "central", transform: `rotate(-90 ${left + place} ${top - near})`,
    });
  });
  legend(svg, write, left, top + side + 20, Math.min(side, 320));
  return new XMLSerializer().serializeToString(svg);
}

/** The scale under a picture of one head. */
function scaleLegend(range, scale) {
  return (svg, write, x, y, width) => {
    const colors = range.signed ? scale.colors : scale.colors.slice(SHADES), steps = 64;
    for (let i = 0; i < steps; i++) {
      const fill = css(colors[Math.round(i / (steps - 1) * (colors.length - 1))]);
      svg.append(shape("rect", { x: x + i * width / steps, y, width: width / steps + 0.5, height: 10, fill }));
    }
    for (const [place, text] of legendTicks(range)) write(text, x + place * width, y + 24, 10, "middle");
  };
}

/** The names of overlaid heads in their colours. */
function headsLegend(heads) {
  return (svg, write, x, y) => heads.forEach(({ name, color }, i) => {
    svg.append(shape("rect", { x: x + 64 * i, y, width: 12, height: 12, fill: css(color) }));
    write(name, x + 64 * i + 18, y + 11, 12, "start");
  });
}

/** Offer a text to the reader as a file. */
function saveFile(name, text, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = make("a", { download: name });
  link.href = address;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
