"use strict";

// From the payload to numbers. A panel is one [query, key] picture of one head at one step.

/** What `_packed` made: base64 of gzip of little-endian numbers. */
async function unpack(text, Type) {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Type(await new Response(stream).arrayBuffer());
}

/** Every kind of panel, still in bytes. */
async function unpackPanels(panels) {
  const stores = {};
  for (const [kind, { levels, low, high }] of Object.entries(panels)) {
    stores[kind] = {
      levels: await unpack(levels, Uint8Array),
      low: await unpack(low, Float32Array),
      high: await unpack(high, Float32Array),
    };
  }
  return stores;
}

/** Panel number `index`: `values` [n * n], 0 above the diagonal, and what each row may be off by, `error` [n]. */
function dequantised({ levels, low, high }, index, n) {
  const values = new Float32Array(n * n), error = new Float32Array(n);
  let at = index * n * (n + 1) / 2;
  for (let q = 0; q < n; q++) {
    const least = low[index * n + q], span = high[index * n + q] - least;
    error[q] = span / 510;
    for (let k = 0; k <= q; k++) values[q * n + k] = least + span * levels[at++] / 255;
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

/** What makes (beta, W_V) -> (c beta, W_V / c), which leaves a model as it is, leave a score as it is: |beta| sums to 1. */
function gauge(beta) {
  const largest = beta.reduce((best, weight) => (Math.abs(weight) > Math.abs(best) ? weight : best), 0);
  return largest === 0 ? 1 : Math.sign(largest) / beta.reduce((sum, weight) => sum + Math.abs(weight), 0);
}

/** The views of a head. `panel(step, layer, head)` gives values and error.
 *  `gauge` is what its stripe score is multiplied by; scores before the softmax have none. */
function makeViews(data, stores) {
  const n = data.tokens.length;
  const index = (step, layer, head) => (step * data.n_layers + layer) * data.n_heads + head;
  const stored = (kind) => (step, layer, head) => dequantised(stores[kind], index(step, layer, head), n);
  const raw = stored("pattern");
  const views = [{
    id: "raw", label: "Raw", panel: raw, gauge: () => 1,
    explained: "The attention pattern A[q, k]: which key the query matches.",
  }];
  if (data.beta === null) return views;

  const betaOf = (step, layer, head) => data.beta[step][layer][Math.floor(head / data.group)];
  const window = data.beta[0][0][0].length;
  const offsets = Array.from({ length: window }, (_, b) => b);
  const read = (b) => `β${subscript(b + 1)} A[q, k${b === 0 ? "" : ` + ${b}`}]`;
  views.push({
    id: "effective", label: "Effective", gauge: (...at) => gauge(betaOf(...at)),
    panel: (...at) => throughValues(raw(...at), betaOf(...at), n),
    explained: `${offsets.map(read).join(" + ")}: whose value the query reads. It may be negative and need not sum to 1.`,
  });
  const before = (b) => (b === 1 ? "one token before" : `${b} tokens before`);
  const routeName = (b) => (b === 0 ? "own" : window === 2 ? "previous" : `${b} back`);
  for (const b of offsets) {
    views.push({
      id: `value${b + 1}`, label: `Value: ${routeName(b)}`, gauge: (...at) => gauge(betaOf(...at)),
      panel: (...at) => throughValues(raw(...at), betaOf(...at).map((weight, c) => (c === b ? weight : 0)), n),
      explained: `${read(b)}: what is read as ${b === 0 ? "the matched token's own value" : `the value ${before(b)} the matched one`}. `
        + "The value routes sum to the effective pattern.",
    });
  }
  for (const b of offsets.filter((b) => stores[`key${b + 1}`])) {
    views.push({
      id: `key${b + 1}`, label: `Key: ${routeName(b)}`, gauge: null, panel: stored(`key${b + 1}`),
      explained: `α${subscript(b + 1)} q · K[k${b === 0 ? "" : ` − ${b}`}] / √d_head: the score that comes from `
        + `${b === 0 ? "the token's own key" : `the key ${before(b)}`}. The key routes sum to the score, before position bias and softmax.`,
    });
  }
  return views;
}

/** 12 as ₁₂. */
function subscript(number) {
  return [...String(number)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
}

/** The least and the greatest value of a view, over every head and step: one colour scale for all its pictures. */
function rangeOf(view, data) {
  if (view.range) return view.range;
  let least = 0, greatest = 0;
  for (let step = 0; step < data.steps.length; step++) {
    for (const { layer, head } of headsOf(data)) {
      for (const value of view.panel(step, layer, head).values) {
        if (value < least) least = value;
        if (value > greatest) greatest = value;
      }
    }
  }
  const size = Math.max(-least, greatest) || 1;
  view.range = { size, signed: least < 0 };
  return view.range;
}

/** All heads, layer by layer. */
function headsOf(data) {
  return Array.from({ length: data.n_layers * data.n_heads }, (_, i) => ({
    layer: Math.floor(i / data.n_heads), head: i % data.n_heads,
  }));
}

/** Mean over the queries with a stripe of the weight on it: 1 for a perfect induction head. Null without a stripe. */
function stripeScore(values, stripe, n) {
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
