// The page's state, and what a reader does to it. Every change goes through `set`, which draws what hangs on it.

const $$ = (id) => document.getElementById(id);
const data = JSON.parse($$("data").textContent);
const n = data.tokens.length;
const heads = headsOf(data);
const darkPreferred = matchMedia("(prefers-color-scheme: dark)");
const SECONDS_A_STEP = 0.7;

// `held`: the query was clicked, and stays until Escape or another click.
const state = { step: data.steps.length - 1, chosen: 0, view: 0, query: n - 1, key: n - 1, stripe: true, held: false };
let views, scale, range, shown, player = null; // range and shown: colour scale and panel of the large picture

/** Change the state and draw what hangs on it: for another query or key not the pictures. */
function set(changes) {
  Object.assign(state, changes);
  const pointed = Object.keys(changes).every((name) => ["query", "key", "held"].includes(name));
  if (!pointed) drawPictures();
  drawQuery();
}

/** The panel of a head as it is now shown. */
const panelOf = ({ layer, head }) => views[state.view].panel(state.step, layer, head);
const stripe = new Set(data.stripe.map(([q, k]) => q * n + k));
const marked = (q, k) => state.stripe && stripe.has(q * n + k);
const named = (at) => `${at} ‘${data.tokens[at]}’`;

// Drawing

function drawPictures() {
  const view = views[state.view], head = heads[state.chosen];
  range = rangeOf(view, data);
  shown = panelOf(head);
  drawTime();
  $$("explained").textContent = view.explained;
  heads.forEach(drawHead);
  $$("heads-note").hidden = view.gauge === null;
  const title = `Head ${head.layer}.${head.head} · ${view.label.toLowerCase()}`;
  $$("picture-title").firstChild.textContent = title;
  $$("picture").setAttribute("aria-label", `${title}, queries down, keys across`);
  paintPattern($$("pattern"), shown.values, n, range.size, scale);
  paintLegend($$("legend-bar"), $$("legend-ticks"), range, scale);
  if (data.path !== null) drawPlane(head);
}

function drawQuery() {
  drawOverlay($$("overlay"), $$("pattern"), data.tokens, state.stripe ? data.stripe : [], state);
  $$("readout").textContent = `query ${named(state.query)} → key ${named(state.key)}: ${reading(state.query, state.key)}`;
  drawAttended();
  drawTokens();
}

/** One entry in words: a number, or why there is none. */
function reading(q, k) {
  if (k > q) return "not seen, it comes later";
  return written(shown.values[q * n + k], shown.error[q]);
}

function drawTime() {
  const step = data.steps[state.step];
  const measured = (name) => data.metrics[name][state.step]?.toFixed(3) ?? "–";
  $$("step").value = state.step;
  $$("step").setAttribute("aria-valuetext", `step ${step}`);
  $$("at-step").textContent = step;
  $$("at-loss").textContent = measured("loss");
  $$("at-accuracy").textContent = measured("accuracy");
  $$("at-first").textContent = measured("first");
}

function drawHead(each, i) {
  const button = $$("heads").querySelectorAll(".head")[i];
  const { values } = panelOf(each);
  const score = stripeScoreOf(each, values);
  paintPattern(button.querySelector("canvas"), values, n, range.size, scale);
  button.querySelector(".score").textContent = score;
  button.setAttribute("aria-pressed", i === state.chosen);
  button.setAttribute("aria-label", `Head ${each.layer}.${each.head}${score && `, ${score} on the stripe`}`);
  button.tabIndex = i === state.chosen ? 0 : -1;
}

function stripeScoreOf({ layer, head }, values) {
  const { gauge } = views[state.view], score = stripeScore(values, data.stripe, n);
  return gauge === null || score === null ? "" : written(score * gauge(state.step, layer, head), 0.01);
}

function drawAttended() {
  $$("attended-title").textContent = `Where ${named(state.query)} attends`;
  const row = shown.values.subarray(state.query * n, state.query * n + state.query + 1);
  const strongest = [...row.keys()].sort((a, b) => strength(row[b]) - strength(row[a])).slice(0, 6);
  $$("attended").replaceChildren(...strongest.map((k) => {
    const bar = make("i", { className: row[k] < 0 ? "minus" : "" });
    bar.style.width = `${100 * Math.abs(row[k]) / range.size}%`;
    return make("li", {}, [
      make("span", { className: "place", textContent: k }),
      make("span", { className: marked(state.query, k) ? "text hit" : "text", textContent: data.tokens[k] }),
      make("span", { className: "amount" }, [bar]),
      make("span", { className: "number", textContent: reading(state.query, k) }),
    ]);
  }));
}

function drawTokens() {
  $$("tokens").querySelectorAll(".token").forEach((token, k) => {
    const future = k > state.query;
    const color = future ? null : scale.colors[shadeOf(shown.values[state.query * n + k], range.size)];
    token.style.background = future ? "" : `rgb(${color})`;
    token.style.color = future ? "" : inkOn(color);
    token.classList.toggle("future", future);
    token.classList.toggle("query", k === state.query);
    token.classList.toggle("held", k === state.query && state.held);
    token.classList.toggle("hit", marked(state.query, k));
    token.setAttribute("aria-pressed", k === state.query);
    token.setAttribute("aria-label", `${named(k)}, ${reading(state.query, k)}`);
    token.tabIndex = k === state.query ? 0 : -1;
  });
}

function drawPlane({ layer, head }) {
  const g = Math.floor(head / data.group);
  const [alpha, beta] = [data.alpha[state.step][layer][g], data.beta[state.step][layer][g]];
  const track = data.path.alpha1[layer][g].map((alpha1, i) => [alpha1, data.path.beta1[layer][g][i]]);
  $$("plane-title").textContent = `α₁ and β₁ through training, key/value head ${layer}.${g}`;
  drawPath($$("path"), $$("field"), track, [alpha[0], beta[0]], data.field);
  $$("path").setAttribute("aria-label", `alpha1 ${alpha[0].toFixed(2)}, beta1 ${beta[0].toFixed(2)} at step ${data.steps[state.step]}`);
  const number = (letter) => (weight, i) => make("span", { textContent: `${letter}${subscript(i + 1)} ${written(weight, 0.01)}` });
  $$("weights").replaceChildren(...alpha.map(number("α")), ...beta.map(number("β")));
}

// Building, once

function build() {
  $$("heads").style.setProperty("--columns", Math.min(data.n_heads, heads.length > 8 ? 4 : 2));
  const left = data.beta !== null && !data.panels.key1 ? ". Key routes left out: the page would pass 3 MB" : "";
  $$("about").textContent = data.model + left;
  $$("step").max = data.steps.length - 1;
  $$("views").append(...views.map((view, i) => {
    const input = make("input", { type: "radio", name: "view", value: view.id, checked: i === 0 });
    input.addEventListener("change", () => set({ view: i }));
    return make("label", {}, [input, view.label]);
  }));
  $$("views").hidden = views.length === 1;
  for (let layer = 0; layer < data.n_layers; layer++) {
    const row = heads.map((each, i) => [each, i]).filter(([each]) => each.layer === layer).map(([each, i]) => headButton(each, i));
    $$("heads").append(make("p", { className: "layer", textContent: `Layer ${layer}` }), make("div", { className: "row" }, row));
  }
  $$("heads-note").textContent = data.stripe.length
    ? `Right of each name: mean weight on the induction stripe, 1 for a perfect head${data.beta ? " (β scaled to |β₁| + |β₂| = 1)" : ""}.`
    : "No token of this row repeats: there is no induction stripe.";
  $$("plane-panel").hidden = data.path === null;
  if (data.path !== null) {
    const plane = "the plane α₂ = 1 − α₁, β₂ = 1 − β₁ where heads start; a trained head is free to leave it. Dashed: the square of initial values.";
    $$("plane-note").textContent = data.field.loss
      ? `Shaded: the exact loss of Theorem 3.4 for T = ${data.field.n_tokens}, darker is lower, on ${plane}`
      : `On ${plane}`;
  }
  $$("tokens").append(...data.tokens.map(tokenButton));
}

function headButton({ layer, head }, i) {
  const name = make("span", {}, [make("b", { textContent: `${layer}.${head}` }), make("span", { className: "score" })]);
  const button = make("button", { type: "button", className: "head" }, [make("canvas"), name]);
  button.addEventListener("click", () => set({ chosen: i }));
  return button;
}

function tokenButton(token, at) {
  const button = make("button", { type: "button", className: "token", textContent: token });
  button.addEventListener("pointerenter", () => state.held || set({ query: at, key: strongestKey(at) }));
  button.addEventListener("focus", () => state.query === at || set({ query: at, key: strongestKey(at), held: false }));
  button.addEventListener("click", () => set({ query: at, key: strongestKey(at), held: !(state.held && state.query === at) }));
  return button;
}

/** A weight counts by its size, negative or not; a score before the softmax only by being high. */
function strength(value) {
  return views[state.view].gauge === null ? value : Math.abs(value);
}

/** The key that a query attends to most. */
function strongestKey(q) {
  const row = shown.values.subarray(q * n, q * n + q + 1);
  return row.reduce((best, value, k) => (strength(value) > strength(row[best]) ? k : best), 0);
}

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
    if (selector === ".head") next.click();
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
  const { offsetWidth: width, offsetHeight: height } = $$("tip");
  $$("tip").style.left = `${Math.min(event.clientX + 14, innerWidth - width - 8)}px`;
  $$("tip").style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}

function pictureKeys(event) {
  const arrow = ARROWS[event.key];
  if (!arrow) return;
  event.preventDefault();
  set({ query: within(state.query + arrow[0], n), key: within(state.key + arrow[1], n), held: false });
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

// Theme

function isDark() {
  const given = document.documentElement.dataset.theme;
  return given ? given === "dark" : darkPreferred.matches;
}

function useTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  $$("theme").textContent = isDark() ? "Light" : "Dark";
  $$("theme").setAttribute("aria-label", `Switch to ${isDark() ? "light" : "dark"} colours`);
  scale = makeScale();
  if (data.path !== null && data.field.loss) paintField($$("field"), data.field);
  drawPictures();
  drawQuery();
}

function listen() {
  $$("step").addEventListener("input", () => { stop(); set({ step: Number($$("step").value) }); });
  $$("play").addEventListener("click", play);
  $$("stripe").addEventListener("change", () => set({ stripe: $$("stripe").checked }));
  $$("theme").addEventListener("click", () => useTheme(isDark() ? "light" : "dark"));
  darkPreferred.addEventListener("change", () => useTheme());
  $$("picture").addEventListener("pointermove", showTip);
  $$("picture").addEventListener("pointerdown", showTip);
  $$("picture").addEventListener("pointerleave", () => { $$("tip").hidden = true; });
  $$("picture").addEventListener("keydown", pictureKeys);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") set({ held: false }); });
  moveAmong($$("heads"), ".head", data.n_heads);
  moveAmong($$("tokens"), ".token", 1);
}

/** Open on what there is to see: the head most on the stripe, and the last query that has one. */
function choose() {
  const scores = heads.map((each) => stripeScore(panelOf(each).values, data.stripe, n) ?? 0);
  state.chosen = scores.indexOf(Math.max(...scores));
  if (data.stripe.length) state.query = data.stripe[data.stripe.length - 1][0];
  shown = panelOf(heads[state.chosen]);
  state.key = strongestKey(state.query);
}

async function main() {
  views = makeViews(data, await unpackPanels(data.panels));
  choose();
  build();
  listen();
  useTheme();
  document.body.dataset.ready = "true";
}

main();
