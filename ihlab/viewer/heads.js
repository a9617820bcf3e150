// The order of the heads and which of them are shown: by layer, or by a score; of one layer, and from a least score on.

// `by`: the place of a score in `data.score_names`, or -1 for layers. `layer`: the one shown, or "" for all.
const arranged = { by: -1, layer: "", least: 0 };
let headButtons = [];

const scoreBy = ({ layer, head }, by) => data.heads[state.step][layer][head].scores[by] ?? -Infinity;

/** The numbers of the heads to show, in groups of a heading and heads. */
function headGroups() {
  const kept = heads.map((each, i) => i).filter((i) => arranged.layer === "" || heads[i].layer === Number(arranged.layer));
  if (arranged.by < 0) {
    const layers = [...new Set(kept.map((i) => heads[i].layer))];
    return layers.map((layer) => ({ heading: `Layer ${layer}`, members: kept.filter((i) => heads[i].layer === layer) }));
  }
  const members = kept.filter((i) => scoreBy(heads[i], arranged.by) >= arranged.least);
  members.sort((a, b) => scoreBy(heads[b], arranged.by) - scoreBy(heads[a], arranged.by));
  return [{ heading: `${members.length} of ${heads.length} heads, by ${data.score_names[arranged.by]}`, members }];
}

function arrangeHeads() {
  $$("heads").replaceChildren(...headGroups().map(({ heading, members }) => make("div", {}, [
    make("p", { className: "layer", textContent: heading }),
    make("div", { className: "row" }, members.map((i) => headButtons[i])),
  ])));
  $$("least-choice").hidden = arranged.by < 0;
}

/** The choices above the heads, where there are enough heads to choose from. */
function buildArrangement() {
  headButtons = heads.map(headButton);
  $$("arrangement").hidden = heads.length <= 8;
  $$("order").append(...["layer", ...data.score_names].map((name, i) => make("option", { value: i - 1, textContent: `by ${name}` })));
  $$("layer").append(make("option", { value: "", textContent: "all layers" }), ...Array.from(
    { length: data.n_layers }, (_, layer) => make("option", { value: layer, textContent: `layer ${layer}` }),
  ));
  const changed = (name, read) => (event) => { arranged[name] = read(event.target.value); arrangeHeads(); };
  $$("order").addEventListener("change", changed("by", Number));
  $$("layer").addEventListener("change", changed("layer", String));
  $$("least").addEventListener("input", changed("least", Number));
  arrangeHeads();
}
