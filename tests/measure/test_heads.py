"""Head scores of patterns, summed one query at a time."""

import pytest
import torch

from ihlab.measure.heads import pattern_scores


@pytest.mark.parametrize("alphabet", [4, 6, 9])
def test_scores_are_the_attention_summed_by_hand(alphabet):
    tokens = torch.randint(alphabet, (2, 14), generator=torch.Generator().manual_seed(0))
    patterns = torch.rand(2, 2, 3, 14, 14).tril().double()
    scores = pattern_scores(patterns, tokens)
    found: dict[str, list[torch.Tensor]] = {name: [] for name in scores}
    for i, row in enumerate(tokens.tolist()):
        for q in range(14):
            to = patterns[:, i, :, q]
            earlier = [k for k in range(q) if row[k] == row[q]]
            after = [k + 1 for k in earlier]
            if earlier:
                found["duplicate_token"].append(to[..., earlier].sum(-1))
            last = row[q] not in row[q + 1 :]
            if earlier and last and not set(after) & {q - 1, q, *earlier}:
                found["prefix_matching"].append(to[..., after].sum(-1))
            if q >= 2:
                found["previous_token"].append(to[..., q - 1])
                found["first_position"].append(to[..., 0])
    for name, values in found.items():
        torch.testing.assert_close(scores[name], torch.stack(values).mean(dim=0))
