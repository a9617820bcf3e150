// Several heads in one picture, each in a colour of its own.

/** Okabe and Ito's colours, told apart with any colour vision. */
const HEAD_COLORS = [[0, 114, 178], [213, 94, 0], [0, 158, 115], [204, 121, 167], [230, 159, 0], [86, 180, 233]];

/** How strong a colour is for a weight: the square root of its size, as on the scale of one head. */
const opacity = (value, size) => Math.sqrt(Math.min(Math.abs(value) / size, 1));

/** Heads' colours at one entry, as inks on a light ground and as lights on a dark one: no order, none covers another. */
function blended(parts, ground, dark) {
  return ground.map((channel, i) => {
    const through = (full) => parts.reduce((left, [strength, color]) => left * (1 - strength * full(color[i])), 1);
    return Math.round(dark ? 255 - (255 - channel) * through((c) => c / 255) : channel * through((c) => 1 - c / 255));
  });
}

/** [red, green, blue] as CSS. */
const css = (color) => `rgb(${color.join(" ")})`;

/** A spot of a head's colour. */
function chip(color) {
  const spot = make("i", { className: "chip" });
  spot.style.background = css(color);
  return spot;
}
