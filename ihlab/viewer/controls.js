// What a reader's hands do: pointer and keys, playing, links, pictures, colours.

// Keys and pointer

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const within = (value, count) => Math.min(Math.max(value, 0), count - 1);

/** Arrow keys move among buttons: one along, or `line` along for up and down. */
function moveAmong(container, selector, line) {
  container.addEventListener("keydown", (event) => {
    const arrow = ARROWS[event.key];
    if (!arrow) return;
    event.preventDefault();
    const buttons = [...container.querySelectorAll(selector)];
    const next = buttons[within(buttons.indexOf(document.activeElement) + arrow[0] * line + arrow[1], buttons.length)];
    next.focus();
    if (selector === ".head" && !state.overlay) next.click();
  });
}

function cellUnder(event) {
  const box = $$("pattern").getBoundingClientRect();
  const at = (place, start, size) => Math.floor(n * (place - start) / size);
  return [at(event.clientY, box.top, box.height), at(event.clientX, box.left, box.width)];
}

function showTip(event) {
  const [q, k] = cellUnder(event);
  const inside = q >= 0 && q < n && k >= 0 && k < n;
  $$("tip").hidden = !inside;
  if (!inside) return;
  if (!state.held) set({ query: q, key: k });
  $$("tip").replaceChildren(
    make("b", { textContent: reading(q, k) }),
    make("span", { textContent: `query ${named(q)} → key ${named(k)}` }),
  );
  placeTip(event.clientX + 14, event.clientY + 18, event.clientY - 10);
}

function holdCell(event) {
  const [q, k] = cellUnder(event);
  if (q < 0 || q >= n || k < 0 || k >= n) return;
  set({ query: q, key: k, held: !(state.held && state.query === q && state.key === k) });
}

function pictureKeys(event) {
  if (event.key === "Enter" || event.key === " ") {
    event.preventDefault();
    return set({ held: !state.held });
  }
  const arrow = ARROWS[event.key];
  if (!arrow) return undefined;
  event.preventDefault();
  return set({ query: within(state.query + arrow[0], n), key: within(state.key + arrow[1], n), held: false });
}

function play() {
  if (player !== null) return stop();
  if (state.step === data.steps.length - 1) set({ step: 0 });
  player = setInterval(() => (state.step < data.steps.length - 1 ? set({ step: state.step + 1 }) : stop()), 1000 * SECONDS_A_STEP);
  $$("play").textContent = "Pause";
  $$("play").setAttribute("aria-pressed", true);
}

function stop() {
  clearInterval(player);
  player = null;
  $$("play").textContent = "Play";
  $$("play").setAttribute("aria-pressed", false);
}

// Link and picture to take away

async function giveLink() {
  const address = addressOf(fragmentOf(state, data, views));
  $$("link-text").hidden = false;
  $$("link-text").value = address;
  $$("link-text").select();
  try {
    await navigator.clipboard.writeText(address);
    $$("said").textContent = "Link copied.";
  } catch { // a frame, or a browser that does not let pages copy: it is selected, to copy by hand
    $$("said").textContent = IN_A_FRAME ? "Put this behind the address of the written page." : "Copy the link.";
  }
}

function savePicture() {
  const step = data.metrics ? `, step ${data.steps[state.step]}` : "";
  const svg = pictureSvg({
    title: `${pictureTitle()}${step}`, row, colorAt, stripe: state.stripe ? row.stripe : [], canvas: $$("pattern"),
    legend: state.overlay ? headsLegend(shown) : scaleLegend(range, scale),
  });
  saveFile(`${data.title} ${pictureTitle()}`.replace(/[^\w.-]+/g, "-") + ".svg", svg, "image/svg+xml");
  $$("said").textContent = "Picture saved.";
}

// Colours, as the system prefers them

function useColors() {
  scale = makeScale();
  if (data.path !== null && data.field.loss) paintField($$("field"), data.field);
  drawPictures();
  drawQuery();
}

function listen() {
  $$("step").addEventListener("input", () => { stop(); set({ step: Number($$("step").value) }); });
  $$("play").addEventListener("click", play);
  $$("row").addEventListener("change", () => set({ row: Number($$("row").value) }));
  for (const name of ["stripe", "value"]) $$(name).addEventListener("change", () => set({ [name]: $$(name).checked }));
  $$("overlay").addEventListener("change", () => set({ overlay: $$("overlay").checked ? [state.chosen] : null }));
  document.querySelectorAll("#direction input").forEach((input, i) => input.addEventListener("change", () => set({ from: Boolean(i) })));
  $$("link").addEventListener("click", giveLink);
  $$("save").addEventListener("click", savePicture);
  darkPreferred.addEventListener("change", useColors);
  $$("picture").addEventListener("pointermove", showTip);
  $$("picture").addEventListener("pointerdown", showTip);
  $$("picture").addEventListener("click", holdCell);
  $$("picture").addEventListener("pointerleave", hideTip);
  $$("picture").addEventListener("keydown", pictureKeys);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    hideTip();
    set({ held: false });
  });
  window.addEventListener("hashchange", () => set(changesOf(location.hash, data, views)));
  moveAmong($$("heads"), ".head", data.n_heads);
  moveAmong($$("tokens"), ".token", 1);
}
