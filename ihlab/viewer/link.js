// The page's state as the fragment of its address, so that a link opens on what was seen.

/** The fragment of a state: the step and the head by their own numbers, so that it holds for a page made anew. */
function fragmentOf(state, data, views) {
  const name = (i) => `${Math.floor(i / data.n_heads)}.${i % data.n_heads}`;
  const parts = {
    step: data.metrics && data.steps[state.step], row: data.rows.length > 1 ? state.row : null,
    head: name(state.chosen), view: views.length > 1 ? views[state.view].id : null, query: state.query, key: state.key,
    heads: state.overlay ? state.overlay.map(name).join(",") : null, value: state.value ? 1 : null,
    stripe: state.stripe ? null : 0, from: state.from ? 1 : null,
  };
  return `#${Object.entries(parts).filter(([, part]) => part !== null).map(([key, part]) => `${key}=${part}`).join("&")}`;
}

/** The changes to a state that a fragment asks for. What it does not name, and what is not there, stays as it is. */
function changesOf(fragment, data, views) {
  const given = new URLSearchParams(fragment.replace(/^#/, ""));
  const changes = {};
  const whole = (name, count) => (/^\d+$/.test(given.get(name) ?? "") && Number(given.get(name)) < count ? Number(given.get(name)) : null);
  const head = (name) => {
    const [, layer, at] = /^(\d+)\.(\d+)$/.exec(name) ?? [];
    return layer < data.n_layers && at < data.n_heads ? layer * data.n_heads + Number(at) : null;
  };
  const put = (name, value) => { if (value !== null && value !== -1) changes[name] = value; };
  put("step", data.steps.indexOf(Number(given.get("step") ?? NaN)));
  put("row", whole("row", data.rows.length));
  put("chosen", head(given.get("head") ?? ""));
  put("view", views.findIndex((view) => view.id === given.get("view")));
  const { n } = data.rows[changes.row ?? 0];
  put("query", whole("query", n));
  put("key", whole("key", n));
  for (const name of ["value", "stripe", "from"]) {
    if (["0", "1"].includes(given.get(name))) changes[name] = given.get(name) === "1";
  }
  const heads = (given.get("heads") ?? "").split(",").map(head).filter((i) => i !== null).slice(0, HEAD_COLORS.length);
  if (heads.length > 0 || given.get("heads") === "") changes.overlay = [...new Set(heads)];
  return changes;
}

const IN_A_FRAME = location.protocol === "about:"; // of a notebook: it has no address of its own

/** Write the state into the address, without a step in the history. */
function writeAddress(fragment) {
  if (!IN_A_FRAME) history.replaceState(null, "", location.href.replace(/#.*/, "") + fragment);
}

/** The address of what is seen; in a notebook its fragment alone, to put behind the address of a written page. */
const addressOf = (fragment) => (IN_A_FRAME ? fragment : location.href.replace(/#.*/, "") + fragment);
