// The page's state, and what a reader does to it. Every change goes through `set`, which draws what hangs on it.

const $$ = (id) => document.getElementById(id);
const data = JSON.parse($$("data").textContent);
const heads = headsOf(data);
const darkPreferred = matchMedia("(prefers-color-scheme: dark)");
const SECONDS_A_STEP = 0.7;
const THUMBNAIL = 160; // pixels a side of a head's small picture
const SETTLED = 300; // milliseconds without a change, after which the address is written: browsers refuse it every frame

// `held`: the query was clicked, and stays until Escape or another click. `from`: the row shows who attends to the key.
// `overlay`: null, or the heads that share the picture. `value`: weights times the norms of their values.
const state = {
  step: data.steps.length - 1, row: 0, chosen: 0, view: 0, query: 0, key: 0, stripe: true, held: false, from: false,
  value: false, overlay: null,
};
// row, n: the row shown; range: colour scale; shown: the heads of the large picture, [{ name, panel, color }].
let views, scale, range, row, n, shown, player = null, settling = null;

/** Change the state and draw what hangs on it: for another query or key not the pictures. */
function set(changes) {
  if ("row" in changes && changes.row !== state.row) changes = { ...rowChosen(changes.row), ...changes };
  Object.assign(state, changes);
  if ("step" in changes && arranged.by >= 0) arrangeHeads();
  const pointed = Object.keys(changes).every((name) => ["query", "key", "held"].includes(name));
  if (!pointed) drawPictures();
  drawQuery();
  clearTimeout(settling);
  settling = setTimeout(() => writeAddress(fragmentOf(state, data, views)), SETTLED);
}

/** Another row, opened where it shows most. */
function rowChosen(number) {
  openRow(number);
  return { held: false, ...bestQuery() };
}

function openRow(number) {
  row = data.rows[number];
  ({ n } = row);
  state.row = number;
  $$("tokens").replaceChildren(...row.tokens.map(tokenButton));
  $$("row").value = number;
  shown = shownHeads();
}

/** The panel of a head as it is now shown. */
const panelOf = ({ layer, head }) => panelAt(views[state.view], { row, step: state.step, layer, head }, data, state.value);
const marked = (q, k) => state.stripe && row.marks.has(q * n + k);
const named = (at) => `${at} ‘${row.tokens[at]}’`;
const nameOf = ({ layer, head }) => `${layer}.${head}`;

/** The heads of the large picture: the chosen one, or all that are overlaid. */
function shownHeads() {
  return (state.overlay ?? [state.chosen]).map((i, place) => (
    { name: nameOf(heads[i]), panel: panelOf(heads[i]), color: HEAD_COLORS[place % HEAD_COLORS.length] }
  ));
}

/** The colour of an entry of the large picture. */
function colorAt(q, k) {
  if (!state.overlay) return scale.colors[shadeOf(shown[0].panel.values[q * n + k], range.size)];
  const parts = shown.map(({ panel, color }) => [opacity(panel.values[q * n + k], range.size), color]);
  return blended(parts, scale.colors[SHADES], darkPreferred.matches);
}

// Drawing

function drawPictures() {
  const view = views[state.view], head = heads[state.chosen];
  range = rangeOf(view, data, state.value);
  shown = shownHeads();
  drawTime();
  drawControls(view);
  heads.forEach(drawHead);
  $$("picture-title").firstChild.textContent = pictureTitle();
  $$("picture").setAttribute("aria-label", `${pictureTitle()}, queries down, keys across`);
  $$("head-scores").textContent = state.overlay ? "" : scoresOf(head);
  $$("legend").hidden = state.overlay !== null;
  $$("overlaid").replaceChildren(...(state.overlay ? shown : []).map(({ name, color }) => make("span", {}, [chip(color), name])));
  if (state.overlay) paintPattern($$("pattern"), row, colorAt);
  else paintValues($$("pattern"), row, shown[0].panel.values, range.size, scale);
  paintLegend($$("legend-bar"), $$("legend-ticks"), range, scale);
  if (data.path !== null) drawPlane(head);
}

function pictureTitle() {
  const names = shown.map(({ name }) => name).join(", ");
  const weighted = state.value && views[state.view].norm ? ", value-weighted" : "";
  return `${shown.length > 1 ? "Heads" : "Head"} ${names || "–"} · ${views[state.view].label.toLowerCase()}${weighted}`;
}

function drawControls(view) {
  const weighted = state.value && view.norm;
  $$("explained").textContent = view.explained
    + (weighted ? " Times ‖v‖, the norm of the value that it weighs: a large weight on a small value moves little." : "")
    + (state.overlay ? " Heads are overlaid by the size of their weights: a sign does not show." : "");
  $$("value").disabled = view.norm === null;
  document.querySelectorAll("#views input").forEach((input, i) => { input.checked = i === state.view; });
  for (const name of ["stripe", "value"]) $$(name).checked = state[name];
  $$("overlay").checked = state.overlay !== null;
  document.querySelectorAll("#direction input").forEach((input, i) => { input.checked = Boolean(i) === state.from; });
  $$("heads-note").hidden = view.gauge === null || state.value;
  $$("heads-note").textContent = row.stripe.length
    ? `Right of each name: mean weight on the induction stripe, 1 for a perfect head${data.beta && state.view ? " (β scaled: Σ|β| = 1)" : ""}.`
    : "No token of this sequence repeats, so there is no induction stripe.";
}

function drawQuery() {
  drawFrame($$("frame"), $$("pattern"), row.tokens, state.stripe ? row.stripe : [], state);
  $$("readout").textContent = readingOf(state.query, state.key);
  drawLists();
  drawTokens();
}

/** One entry in words: a number of each head shown, or why there is none. */
function reading(q, k) {
  if (k > lastKey(row, q)) return "not seen, it comes later";
  const unit = state.value && views[state.view].norm ? " (weight × ‖v‖)" : "";
  if (!state.overlay) return writtenAt(shown[0], q, k) + unit;
  return shown.map((head) => `${head.name} ${writtenAt(head, q, k)}`).join(", ") + unit || "no head is chosen";
}

const writtenAt = ({ panel }, q, k) => written(panel.values[q * n + k], panel.error[q]);

function drawTime() {
  const step = data.steps[state.step];
  $$("step").value = state.step;
  $$("step").setAttribute("aria-valuetext", `step ${step}`);
  if (data.metrics === null) return;
  const measured = (name) => data.metrics[name][state.step]?.toFixed(3) ?? "–";
  $$("at-step").textContent = step;
  $$("at-loss").textContent = measured("loss");
  $$("at-accuracy").textContent = measured("accuracy");
  $$("at-first").textContent = measured("first");
}

function drawHead(each, i) {
  const button = headButtons[i];
  const { values } = panelOf(each);
  const score = stripeScoreOf(each, values), tags = tagsOf(each);
  const place = state.overlay ? state.overlay.indexOf(i) : -1, pressed = state.overlay ? place >= 0 : i === state.chosen;
  paintValues(button.querySelector("canvas"), row, values, range.size, scale, THUMBNAIL);
  button.querySelector(".score").textContent = score;
  button.querySelector(".tags").replaceChildren(...tags);
  button.style.borderColor = place >= 0 ? css(HEAD_COLORS[place]) : "";
  button.classList.toggle("overlaid", place >= 0);
  button.setAttribute("aria-pressed", pressed);
  const said = tags.map((tag) => `, ${tag.textContent}`).join("");
  button.setAttribute("aria-label", `Head ${nameOf(each)}${score && `, ${score} on the stripe`}${said}`);
  button.title = scoresOf(each);
  button.tabIndex = i === state.chosen ? 0 : -1;
}

function stripeScoreOf(each, values) {
  const { gauge } = views[state.view], score = stripeScore(values, row);
  return gauge === null || score === null || state.value ? "" : written(score * gauge({ step: state.step, ...each }), 0.01);
}

function drawTokens() {
  const center = state.from ? state.key : state.query;
  $$("tokens").querySelectorAll(".token").forEach((token, at) => {
    const [q, k] = state.from ? [at, state.key] : [state.query, at], unseen = k > lastKey(row, q);
    const color = unseen ? null : colorAt(q, k);
    token.style.background = unseen ? "" : css(color);
    token.style.color = unseen ? "" : inkOn(color);
    token.classList.toggle("future", unseen);
    token.classList.toggle("query", at === center);
    token.classList.toggle("held", at === center && state.held);
    token.classList.toggle("hit", marked(q, k));
    token.setAttribute("aria-pressed", at === center);
    token.setAttribute("aria-label", `${named(at)}, ${reading(q, k)}`);
    token.tabIndex = at === center ? 0 : -1;
    if (at === center) scrollWithin($$("tokens"), token);
  });
  $$("tokens-title").querySelector("span").textContent = state.from
    ? "shaded by how much each token attends to the outlined one" : "shaded by where the outlined token attends";
}

/** Scroll a box, and not the page, so that an element in it is seen. */
function scrollWithin(box, element) {
  const { top, bottom } = element.getBoundingClientRect(), bounds = box.getBoundingClientRect();
  if (top < bounds.top) box.scrollTop -= bounds.top - top + 4;
  if (bottom > bounds.bottom) box.scrollTop += bottom - bounds.bottom + 4;
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
  const columns = data.n_heads === 3 ? 3 : Math.min(data.n_heads, heads.length > 8 ? 4 : 2);
  $$("heads").style.setProperty("--columns", columns);
  $$("heads").style.setProperty("--heads", Math.min(data.n_heads, 6));
  $$("about").textContent = [data.about, data.left_out].filter(Boolean).join(". ");
  $$("time").hidden = data.metrics === null;
  $$("play").hidden = $$("step").hidden = data.steps.length === 1;
  $$("step").max = data.steps.length - 1;
  $$("row-choice").hidden = data.rows.length === 1;
  $$("row").append(...data.rows.map((each, i) => {
    const begin = each.tokens.slice(0, 10).join(" ");
    const text = `${i + 1}: ${begin.length > 48 ? `${begin.slice(0, 47)}…` : begin + (each.n > 10 ? " …" : "")}`;
    return make("option", { value: i, textContent: text });
  }));
  $$("views").append(...views.map((view, i) => {
    const input = make("input", { type: "radio", name: "view", value: view.id });
    input.addEventListener("change", () => set({ view: i }));
    return make("label", {}, [input, view.label]);
  }));
  $$("views").hidden = views.length === 1;
  $$("value-choice").hidden = Object.keys(data.rows[0].norms).length === 0;
  $$("overlay-choice").hidden = heads.length === 1;
  buildArrangement();
  const scored = `${data.beta ? "in its effective pattern " : ""}on ${data.scored}`;
  $$("tags-note").textContent = `A head's tags name what gets at least half of its attention, ${scored}.`;
  $$("plane-panel").hidden = data.path === null;
  if (data.path !== null) {
    const plane = "the plane α₂ = 1 − α₁, β₂ = 1 − β₁ where heads start; a trained head is free to leave it. Dashed: the square of initial values.";
    $$("plane-note").textContent = data.field.loss
      ? `Shaded: the exact loss of Theorem 3.4 for T = ${data.field.n_tokens}, darker is lower, on ${plane}`
      : `On ${plane}`;
  }
}

function headButton(each, i) {
  const name = make("span", { className: "name" }, [make("b", { textContent: nameOf(each) }), make("span", { className: "score" })]);
  const button = make("button", { type: "button", className: "head" }, [make("canvas"), name, make("span", { className: "tags" })]);
  button.addEventListener("click", () => set({ chosen: i, ...(state.overlay ? { overlay: toggled(state.overlay, i) } : {}) }));
  return button;
}

/** The overlaid heads with one more, or one fewer; no more than there are colours. */
function toggled(overlay, i) {
  if (overlay.includes(i)) return overlay.filter((each) => each !== i);
  return [...overlay, i].slice(-HEAD_COLORS.length);
}

function tokenButton(token, at) {
  const button = make("button", { type: "button", className: "token", textContent: token });
  const point = () => (state.from ? { key: at, query: strongestQuery(at) } : { query: at, key: strongestKey(at) });
  const center = () => (state.from ? state.key : state.query);
  button.addEventListener("pointerenter", () => {
    if (!state.held) set(point());
    showTokenTip(at, button);
  });
  button.addEventListener("pointerleave", hideTip);
  button.addEventListener("blur", hideTip);
  button.addEventListener("focus", () => {
    if (center() !== at) set({ ...point(), held: false });
    if (button.matches(":focus-visible")) showTokenTip(at, button);
  });
  button.addEventListener("click", () => set({ ...point(), held: !(state.held && center() === at) }));
  return button;
}

const hideTip = () => { $$("tip").hidden = true; };

/** A weight counts by its size, negative or not; a score before the softmax only by being high. */
function strength(value) {
  return views[state.view].gauge === null ? value : Math.abs(value);
}

/** How strong the strongest of the heads shown is at an entry. */
const strengthAt = (q, k) => Math.max(...shown.map(({ panel }) => strength(panel.values[q * n + k])));

/** The key that a query attends to most. */
function strongestKey(q) {
  let best = 0;
  for (let k = 1; k <= lastKey(row, q); k++) if (strengthAt(q, k) > strengthAt(q, best)) best = k;
  return best;
}

/** The query that attends to a key most: a later one, if there is any. */
function strongestQuery(k) {
  const queries = Array.from({ length: n }, (_, q) => q).filter((q) => q !== k && k <= lastKey(row, q));
  return queries.reduce((best, q) => (best === null || strengthAt(q, k) > strengthAt(best, k) ? q : best), null) ?? k;
}

// Opening

/** The last query with a stripe and, if there is one, a target, or else the last of the row; and its strongest key. */
function bestQuery() {
  const queries = row.stripe.map(([q]) => q), target = row.predictions?.target;
  const query = queries.findLast((q) => !target || target[q] >= 0) ?? queries.at(-1) ?? n - 1;
  return { query, key: strongestKey(query) };
}

/** Open on what a link asks for, or else on what there is to see: the head most on the stripe. */
function choose() {
  openRow(0);
  const scores = heads.map((each) => stripeScore(panelOf(each).values, row) ?? 0);
  state.chosen = scores.indexOf(Math.max(...scores));
  const asked = changesOf(location.hash, data, views);
  const { row: number = 0, query, key, ...rest } = asked;
  Object.assign(state, rest);
  openRow(number);
  Object.assign(state, bestQuery(), query === undefined ? {} : { query, key: strongestKey(query) }, key === undefined ? {} : { key });
}

async function main() {
  data.rows = await Promise.all(data.rows.map((each) => unpackRow(each, data)));
  views = makeViews(data);
  state.view = Math.min(1, views.length - 1); // with shifted values the effective pattern: what a head reads
  build();
  choose();
  listen();
  useColors();
  document.body.dataset.ready = "true";
}

main();
