// The lists beside the picture: where a query attends, which queries attend to a key, what is predicted.

const LISTED = 6;

function drawLists() {
  const { query, key } = state;
  const keys = Array.from({ length: lastKey(row, query) + 1 }, (_, k) => [query, k]);
  const queries = Array.from({ length: n }, (_, q) => [q, key]).filter(([q]) => key <= lastKey(row, q));
  $$("attended-title").textContent = `Where ${named(query)} attends`;
  $$("readers-title").textContent = `What attends to ${named(key)}`;
  fillList($$("attended"), keys, ([, k]) => k, (k) => set({ key: k }));
  fillList($$("readers"), queries, ([q]) => q, (q) => set({ query: q }));
  drawPredictions(query);
}

/** The strongest of some entries [query, key], over all heads shown, each by the token `tokenOf` names. */
function fillList(list, entries, tokenOf, choose) {
  const all = shown.flatMap((head) => entries.map(([q, k]) => ({ head, q, k, value: head.panel.values[q * n + k] })));
  const strongest = all.sort((a, b) => strength(b.value) - strength(a.value)).slice(0, LISTED);
  list.replaceChildren(...strongest.map(({ head, q, k, value }) => {
    const token = tokenOf([q, k]), amount = writtenAt(head, q, k);
    const bar = make("i", { className: value < 0 ? "minus" : "" });
    bar.style.width = `${100 * Math.abs(value) / range.size}%`;
    const name = make("span", { className: marked(q, k) ? "text hit" : "text", title: row.tokens[token] }, [
      ...(state.overlay ? [chip(head.color)] : []), row.tokens[token],
    ]);
    const button = make("button", { type: "button" }, [
      make("span", { className: "place", textContent: token }), name,
      make("span", { className: "amount" }, [bar]), make("span", { className: "number", textContent: amount }),
    ]);
    button.setAttribute("aria-label", `${named(token)}, ${state.overlay ? `head ${head.name}, ` : ""}${amount}`);
    button.addEventListener("click", () => choose(token));
    return make("li", {}, [button]);
  }));
}

/** What the model predicts after a query: [{ word, chance, right }], the target and its loss; null without a model. */
function predictionsAt(query) {
  const { predictions } = row;
  if (!predictions) return null;
  const top = predictions.top[state.step], width = top.length / n, target = predictions.target[query];
  const best = Array.from({ length: width }, (_, i) => ({
    word: data.words[top[query * width + i]], right: top[query * width + i] === target,
    chance: predictions.chance[state.step][query * width + i] / 65535,
  }));
  const loss = predictions.loss[state.step][query];
  const asked = target < 0
    ? (predictions.asked === "target" ? "Nothing is scored here." : "The sequence ends here.")
    : `${predictions.asked} ‘${data.words[target]}’: probability ${Math.exp(-loss).toFixed(3)}, loss ${loss.toFixed(3)}`;
  return { best, asked };
}

function drawPredictions(query) {
  const found = predictionsAt(query);
  $$("predictions-panel").hidden = found === null;
  if (found === null) return;
  $$("predictions-title").textContent = `Predicted at ${named(query)}`;
  $$("predictions").replaceChildren(...found.best.map(({ word, chance, right }) => {
    const bar = make("i");
    bar.style.width = `${100 * chance}%`;
    return make("li", { className: right ? "right" : "" }, [
      make("span", { className: "place", textContent: right ? "✓" : "" }),
      make("span", { className: "text", textContent: word, title: word }),
      make("span", { className: "amount" }, [bar]), make("span", { className: "number", textContent: chance.toFixed(3) }),
    ]);
  }));
  $$("asked").textContent = found.asked;
}

/** A note by a token of the row: what is predicted there, the target and its loss. */
function showTokenTip(at, button) {
  const found = predictionsAt(at);
  const lines = found === null ? [] : [
    make("span", { textContent: `predicts ${found.best.map(({ word, chance }) => `‘${word}’ ${chance.toFixed(3)}`).join(", ")}` }),
    make("span", { textContent: found.asked }),
  ];
  const tags = readingOf(...(state.from ? [state.query, at] : [at, state.key]));
  $$("tip").replaceChildren(make("b", { textContent: named(at) }), ...lines, make("span", { textContent: tags }));
  const { left, bottom, top } = button.getBoundingClientRect();
  placeTip(left, bottom + 8, top - 8);
}

/** One entry in a sentence. */
const readingOf = (q, k) => `query ${named(q)} → key ${named(k)}: ${reading(q, k)}`;

/** Put the note where it is inside the window: below a place, or above it. */
function placeTip(left, below, above) {
  $$("tip").hidden = false;
  const { offsetWidth: width, offsetHeight: height } = $$("tip");
  $$("tip").style.left = `${Math.max(8, Math.min(left, innerWidth - width - 8))}px`;
  $$("tip").style.top = `${below + height > innerHeight ? Math.max(8, above - height) : below}px`;
}

/** The tags of a head at the step shown, as small labels with their scores. */
function tagsOf({ layer, head }) {
  const { scores, tags } = data.heads[state.step][layer][head];
  return tags.map((i) => make("span", { className: `tag tag${i}`, textContent: `${data.score_names[i]} ${scores[i].toFixed(2)}` }));
}

/** All scores of a head in a line. */
function scoresOf({ layer, head }) {
  const { scores } = data.heads[state.step][layer][head];
  return data.score_names.map((name, i) => `${name} ${scores[i] === null ? "–" : written(scores[i], 0.01)}`).join(" · ");
}
