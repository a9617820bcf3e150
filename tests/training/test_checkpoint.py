"""Checkpoints that cannot be trusted are refused in one sentence."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from ihlab import Transformer, fork, train
from ihlab.training import checkpoint
from tasks import ConfigError

# Checksums


def test_a_flipped_bit_is_told_wherever_it_is(small, tmp_path):
    path = tmp_path / "m.safetensors"
    checkpoint.save(path, {"x": torch.arange(3.0), "y": torch.ones(2, 2)}, {"step": "7"})
    whole = path.read_bytes()
    like = {"x": torch.zeros(3), "y": torch.zeros(2, 2)}
    accepted = unnamed = 0
    for at in range(0, 8 * len(whole), 3):
        changed = bytearray(whole)
        changed[at // 8] ^= 1 << at % 8
        path.write_bytes(bytes(changed))
        try:
            read = checkpoint.load(path, like=like, about={"step": "7"})
        except ConfigError as error:
            unnamed += str(path) not in str(error)
            continue
        accepted += 1  # a bit of the name of the checksum, or of its entry
        assert read["x"].tolist() == [0, 1, 2]
        assert read["y"].tolist() == [[1, 1], [1, 1]]
    assert accepted <= 8 * len(checkpoint.ENTRY + checkpoint.CHECKSUM)
    assert unnamed == 0


def test_a_checksum_covers_names_types_and_shapes_in_any_order():
    x, y = torch.arange(4.0), torch.ones(2)
    same = [{"x": x, "y": y}, {"y": y, "x": x}]
    others = [{"y": x, "x": y}, {"x": x.view(2, 2), "y": y}, {"x": x.view(torch.int32), "y": y}]
    sums = [checkpoint.checksum(tensors, {}) for tensors in (*same, *others)]
    assert sums[0] == sums[1]
    assert len(set(sums)) == 4


def test_the_file_of_another_step_or_run_is_refused(small, tmp_path, finished):
    run, other = finished, train(small.replace(seed=1), tmp_path)
    last = run.checkpoint_path(small.steps)
    last.write_bytes(run.checkpoint_path(small.checkpoint_steps()[-2]).read_bytes())
    with pytest.raises(
        ConfigError,
        match=rf"{last} does not belong here: its step is {small.checkpoint_steps()[-2]}, not 24",
    ):
        run.model()
    last.write_bytes(other.checkpoint_path(small.steps).read_bytes())
    with pytest.raises(
        ConfigError, match=rf"{last} does not belong here: its run is {other.config.digest}"
    ):
        run.model()


# Weights


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused_by_name(small, tmp_path, value):
    model, path = Transformer(small.model), tmp_path / "m.safetensors"
    model.W_U.data[1, 2] = value
    checkpoint.save(path, checkpoint.model_state(model))
    with pytest.raises(
        ConfigError,
        match=r"m\.safetensors is damaged: its tensor 'unembed\.\S+' holds a number that is not",
    ):
        checkpoint.load_weights(path, model)


# The optimiser's state


def test_a_weight_without_gradient_in_some_steps_does_not_stop_a_run(small, tmp_path, finished):
    path = finished.optimizer_path(small.steps)
    save_file(load_file(path) | {f"step/{NAME}": torch.tensor(3.0)}, path)
    state = checkpoint.load_optimizer(path, small.steps, finished.model())
    assert state[f"step/{NAME}"] == 3


NAME = "blocks.0.attn.key_shift.weight"

SPOILT = {
    f"'exp_avg/{NAME}' is missing, not float32 [2, 2]": {f"exp_avg/{NAME}": None},
    "is float32 [1, 2], not float32 [2, 2]": {f"exp_avg/{NAME}": torch.zeros(1, 2)},
    f"'exp_avg/{NAME}' holds a NaN": {f"exp_avg/{NAME}": torch.full((2, 2), torch.nan)},
    f"'step/{NAME}' is 25.0, but must be 0 to 24": {f"step/{NAME}": torch.tensor(25.0)},
}


@pytest.mark.parametrize("sentence", SPOILT)
def test_a_spoilt_optimiser_state_is_refused_before_a_kernel_sees_it(
    small, tmp_path, finished, sentence
):
    """In a file from before checksums, which would be enough to refuse it."""
    (finished.folder / "done.json").unlink()
    path = finished.optimizer_path(small.steps)
    held = load_file(path) | SPOILT[sentence]
    save_file({name: x.clone() for name, x in held.items() if x is not None}, path)
    for resume in (
        lambda: train(small, tmp_path),
        lambda: fork(finished, small.steps, steps=30, root=tmp_path),
    ):
        with pytest.raises(ConfigError) as refused:
            resume()
        assert str(path) in str(refused.value)
        assert sentence in str(refused.value)
