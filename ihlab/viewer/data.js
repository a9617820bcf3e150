"use strict";

// From the payload to numbers. A panel is one [query, key] picture of one head at one step, on one row.
// `at` says which: { row, step, layer, head }, the row with all that belongs to it.

/** What `packed` made: base64 of gzip of little-endian numbers. */
async function unpack(text) {
  const characters = atob(text), bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

/** Every step of a list of texts, as numbers of one type. */
const unpackAll = (texts, Type) => Promise.all(texts.map(async (text) => new Type(await unpack(text))));

/** Every value of an object, by a function that may wait. */
async function mapped(object, change) {
  return Object.fromEntries(await Promise.all(Object.entries(object).map(async ([name, each]) => [name, await change(each)])));
}

/** A row of the payload with its numbers unpacked; panels still in bytes. */
async function unpackRow(row, data) {
  const n = row.tokens.length, ends = data.n_layers * data.n_heads * n;
  const split = (buffer) => ({
    low: new Float32Array(buffer, 0, ends), high: new Float32Array(buffer, 4 * ends, ends), levels: new Uint8Array(buffer, 8 * ends),
  });
  const { predictions } = row;
  return {
    ...row, n, marks: new Set(row.stripe.map(([q, k]) => q * n + k)),
    panels: await mapped(row.panels, async (texts) => (await Promise.all(texts.map(unpack))).map(split)),
    norms: await mapped(row.norms, (texts) => unpackAll(texts, Float32Array)),
    predictions: predictions && {
      ...predictions, top: await unpackAll(predictions.top, Uint32Array),
      chance: await unpackAll(predictions.chance, Uint16Array), loss: await unpackAll(predictions.loss, Float32Array),
    },
  };
}

/** The last key that a query of a row sees. */
const lastKey = (row, q) => (row.causal ? q : row.n - 1);

/** Panel number `index`: `values` [n * n], 0 where nothing is seen, and what each query's may be off by, `error` [n]. */
function dequantised({ levels, low, high }, index, row) {
  const { n } = row, size = row.causal ? n * (n + 1) / 2 : n * n;
  const values = new Float32Array(n * n), error = new Float32Array(n);
  let at = index * size;
  for (let q = 0; q < n; q++) {
    const least = low[index * n + q], span = high[index * n + q] - least;
    error[q] = span / 510;
    for (let k = 0; k <= lastKey(row, q); k++) values[q * n + k] = least + span * levels[at++] / 255;
  }
  return { values, error };
}

/** Whose value is read: sum over b of beta[b] A[q, j + b]. With one beta left, one value route. */
function throughValues({ values: pattern, error: patternError }, beta, n) {
  const values = new Float32Array(n * n);
  beta.forEach((weight, b) => {
    for (let q = 0; q < n; q++) {
      for (let j = 0; j + b <= q; j++) values[q * n + j] += weight * pattern[q * n + j + b];
    }
  });
  const size = beta.reduce((sum, weight) => sum + Math.abs(weight), 0);
  return { values, error: patternError.map((error) => error * size) };
}

/** Each key's weights times the norm of the value that they weigh. */
function timesNorms({ values, error }, norms, n) {
  const most = norms.reduce((best, norm) => Math.max(best, norm), 0);
  return { values: values.map((value, i) => value * norms[i % n]), error: error.map((each) => each * most) };
}

/** What makes (beta, W_V) -> (c beta, W_V / c), which leaves a model as it is, leave a score as it is: |beta| sums to 1. */
function gauge(beta) {
  const largest = beta.reduce((best, weight) => (Math.abs(weight) > Math.abs(best) ? weight : best), 0);
  return largest === 0 ? 1 : Math.sign(largest) / beta.reduce((sum, weight) => sum + Math.abs(weight), 0);
}

/** The views of a head. `panel(at)` gives values and error.
 *  `bounds(row, step)`, where known without unpacking: the least and the greatest value of all heads.
 *  `gauge` is what its stripe score is multiplied by; scores before the softmax have none.
 *  `norm` names the values that its weights multiply: mixed ones, or each token's own. */
function makeViews(data) {
  const index = ({ layer, head }) => layer * data.n_heads + head;
  const stored = (kind) => (at) => dequantised(at.row.panels[kind][at.step], index(at), at.row);
  const raw = stored("pattern");
  const bounds = (kind) => (row, step) => boundsOf(row.panels[kind][step]);
  const views = [{
    id: "raw", label: "Raw", panel: raw, bounds: bounds("pattern"), gauge: () => 1, norm: "value",
    explained: "The attention pattern A[q, k]: which key the query matches.",
  }];
  if (data.beta === null) return views;

  const betaOf = ({ step, layer, head }) => data.beta[step][layer][Math.floor(head / data.group)];
  const window = data.beta[0][0][0].length;
  const offsets = Array.from({ length: window }, (_, b) => b);
  const own = data.rows[0].norms.raw ? "raw" : "value"; // values that are not shifted are their own
  const read = (b) => `β${subscript(b + 1)} A[q, k${b === 0 ? "" : ` + ${b}`}]`;
  views.push({
    id: "effective", label: "Effective", gauge: (at) => gauge(betaOf(at)), norm: own,
    panel: (at) => throughValues(raw(at), betaOf(at), at.row.n),
    explained: `${offsets.map(read).join(" + ")}: whose value the query reads. It may be negative and need not sum to 1.`,
  });
  const before = (b) => (b === 1 ? "one token before" : `${b} tokens before`);
  const routeName = (b) => (b === 0 ? "own" : window === 2 ? "previous" : `${b} back`);
  for (const b of offsets) {
    views.push({
      id: `value${b + 1}`, label: `Value: ${routeName(b)}`, gauge: (at) => gauge(betaOf(at)), norm: own,
      panel: (at) => throughValues(raw(at), betaOf(at).map((weight, c) => (c === b ? weight : 0)), at.row.n),
      explained: `${read(b)}: what is read as ${b === 0 ? "the matched token's own value" : `the value ${before(b)} the matched one`}. `
        + "The value routes sum to the effective pattern.",
    });
  }
  for (const b of offsets.filter((b) => data.rows[0].panels[`key${b + 1}`])) {
    views.push({
      id: `key${b + 1}`, label: `Key: ${routeName(b)}`, gauge: null, norm: null, panel: stored(`key${b + 1}`), bounds: bounds(`key${b + 1}`),
      explained: `α${subscript(b + 1)} q · K[k${b === 0 ? "" : ` − ${b}`}] / √d_head: the score that comes from `
        + `${b === 0 ? "the token's own key" : `the key ${before(b)}`}. The key routes sum to the score, before position bias and softmax.`,
    });
  }
  return views;
}

/** A view's panel, value-weighted if asked for and there are norms to weigh by. */
function panelAt(view, at, data, byValue) {
  const panel = view.panel(at), norms = view.norm && at.row.norms[view.norm];
  if (!byValue || !norms) return panel;
  const { n } = at.row, start = (at.layer * data.n_heads + at.head) * n;
  return timesNorms(panel, norms[at.step].subarray(start, start + n), n);
}

/** 12 as ₁₂. */
function subscript(number) {
  return [...String(number)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
}

/** The least and the greatest value of packed panels. */
function boundsOf({ low, high }) {
  return [low.reduce((least, value) => Math.min(least, value), 0), high.reduce((most, value) => Math.max(most, value), 0)];
}

/** The least and the greatest value of a view, over every row, head and step: one colour scale for all its pictures. */
function rangeOf(view, data, byValue) {
  view.ranges ??= {};
  if (view.ranges[byValue]) return view.ranges[byValue];
  let least = 0, greatest = 0;
  for (const row of data.rows) {
    for (let step = 0; step < data.steps.length; step++) {
      if (view.bounds && !(byValue && view.norm)) {
        const [low, high] = view.bounds(row, step);
        [least, greatest] = [Math.min(least, low), Math.max(greatest, high)];
        continue;
      }
      for (const each of headsOf(data)) {
        for (const value of panelAt(view, { row, step, ...each }, data, byValue).values) {
          if (value < least) least = value;
          if (value > greatest) greatest = value;
        }
      }
    }
  }
  const size = Math.max(-least, greatest) || 1;
  view.ranges[byValue] = { size, signed: least < 0 };
  return view.ranges[byValue];
}

/** All heads, layer by layer. */
function headsOf(data) {
  return Array.from({ length: data.n_layers * data.n_heads }, (_, i) => ({
    layer: Math.floor(i / data.n_heads), head: i % data.n_heads,
  }));
}

/** Mean over the queries with a stripe of the weight on it: 1 for a perfect induction head. Null without a stripe. */
function stripeScore(values, { stripe, n }) {
  const queries = new Set(stripe.map(([q]) => q));
  if (queries.size === 0) return null;
  return stripe.reduce((sum, [q, k]) => sum + values[q * n + k], 0) / queries.size;
}

/** A number with as many decimals as its error leaves true, at most four. */
function written(value, error) {
  const decimals = Math.min(4, Math.max(0, Math.floor(-Math.log10(Math.max(error, 1e-9)))));
  const text = value.toFixed(decimals);
  return Number(text) === 0 ? text.replace("-", "") : text.replace("-", "−");
}
