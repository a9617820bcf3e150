"""Head scores of patterns, summed one query at a time."""

import pytest
import torch

from ihlab.measure.heads import pattern_scores, source_positions


@pytest.mark.parametrize("alphabet", [4, 6, 9])
def test_scores_are_the_attention_summed_by_hand(alphabet):
    tokens = torch.randint(alphabet, (2, 14), generator=torch.Generator().manual_seed(0))
    patterns = torch.rand(2, 2, 3, 14, 14).tril().double()
    scores = pattern_scores(patterns, tokens)
    for layer in range(2):
        for head in range(3):
            found: dict[str, list[float]] = {name: [] for name in scores}
            for i, row in enumerate(tokens.tolist()):
                for q in range(14):
                    pattern = patterns[layer, i, head, q].tolist()
                    earlier = [k for k in range(q) if row[k] == row[q]]
                    after = [k + 1 for k in earlier]
                    if earlier:
                        found["duplicate_token"].append(sum(pattern[k] for k in earlier))
                    last = row[q] not in row[q + 1 :]
                    if earlier and last and not set(after) & {q - 1, q, *earlier}:
                        found["prefix_matching"].append(sum(pattern[k] for k in after))
                    if q >= 2:
                        found["previous_token"].append(pattern[q - 1])
                        found["first_position"].append(pattern[0])
            for name, values in found.items():
                assert scores[name][layer, head].item() == pytest.approx(sum(values) / len(values))


def test_the_six_tokens_of_the_guide():
    places = source_positions(torch.tensor([[0, 1, 0, 2, 0, 1]]))
    assert {name: marked[0].nonzero().tolist() for name, marked in places.items()} == {
        "prefix_matching": [[5, 2]],
        "previous_token": [[2, 1], [3, 2], [4, 3], [5, 4]],
        "duplicate_token": [[2, 0], [4, 0], [4, 2], [5, 1]],
        "first_position": [[2, 0], [3, 0], [4, 0], [5, 0]],
    }
