"""Time training steps on one GPU: our model and Hugging Face's Llama, vanilla and KV shifting, and stacks of seeds.

    python benchmarks/gpu_speed.py --device cuda --out speed.csv

Every table is written as soon as it is measured, and an existing table is not measured again. All sides compute in bf16
with fused AdamW on batches that are already on the device. The sides take turns (`paired`) of several steps; the device
is synchronised only at the end of a turn. If a side fails, its error goes into the table, and the others continue.
"""

import itertools
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import tyro
from paired import figure, ratio, take_turns, timed
from workers import flops

from ihlab.measure.gathered import TrainingBatch
from ihlab.measure.loss import summed_loss
from ihlab.model.config import ModelConfig
from ihlab.model.conversion import to_llama
from ihlab.model.transformer import Transformer
from ihlab.recipes.induction import induction_run
from ihlab.storage.files import write_text
from ihlab.study.experiment import smoke
from ihlab.training.config import RunConfig
from ihlab.training.device import pick_device
from ihlab.training.ensemble import seeds
from ihlab.training.loop import Training, microbatches
from ihlab.training.run import Run
from tasks import IGNORE, InductionTask

sys.path.append(str(Path(__file__).parents[1]))
from figures.figure1.study import GPU, PAPER

PEAK_BF16 = {
    "B200": 2250.0,
    "GH200": 989.4,
    "H200": 989.4,
    "H100 PCIe": 756.0,
    "H100 NVL": 835.0,
    "H100": 989.4,
    "A100": 312.0,
    "L40S": 362.05,
    "L4": 121.0,
    "A10G": 70.0,
    "A10": 125.0,
    "A30": 165.0,
    "A40": 149.7,
    "RTX 6000 Ada": 364.2,
    "RTX A6000": 154.8,
    "RTX 4090": 165.2,
    "RTX 3090": 71.0,
}
"""TFLOP/s of dense bf16 products summed in float32, by a part of the device's name; the first match counts.

From NVIDIA's data sheets and architecture white papers. Figures that include sparsity are halved.
"""

MEMBERS = 16
OURS, SHIFTED, EVERY = "ours, vanilla", "ours, kv_shift", "ours, vanilla, logits everywhere"
LLAMA = "Hugging Face Llama"
EAGER, COMPILED = "eager", "compiled"
SIDES = (
    *((model, mode) for model in (OURS, SHIFTED, LLAMA) for mode in (EAGER, COMPILED)),
    (EVERY, COMPILED),
)
RATIOS = (
    ((SHIFTED, EAGER), (OURS, EAGER)),
    ((SHIFTED, COMPILED), (OURS, COMPILED)),
    ((OURS, COMPILED), (LLAMA, COMPILED)),
    ((EVERY, COMPILED), (LLAMA, COMPILED)),
)
COUNTED_AS = {EVERY: LLAMA}
"""A side that computes the same as another side, whose eager step gives its FLOPs."""

APART = 0.02
"""Largest allowed difference, from bf16 rounding, between two sides' losses on one batch, in nats."""


@dataclass(frozen=True)
class Turns:
    """The amount of measurement: steps per turn, and rounds of turns."""

    steps: int = 10
    rounds: int = 12
    batches: int = 4


def twelve_layers() -> RunConfig:
    """Return a run of about GPT-2 small's size: 12 layers, d_model 768, 8 sequences of 1024 positions."""
    task = InductionTask(vocab_size=32_768, length=1024)
    model = ModelConfig(
        n_layers=12, d_model=768, n_heads=12, d_vocab=task.vocab_size, n_ctx=task.length
    )
    return RunConfig(task=task, model=model, batch_size=8)


SIZES = (
    ("Figure 1a at gpu scale", GPU, Turns()),
    ("12 layers, d_model 768", twelve_layers(), Turns(3, 8)),
    ("Figure 1a at paper scale", PAPER, Turns(3, 8)),
)
"""The sizes that are timed on a GPU."""


@dataclass(frozen=True)
class Step:
    """A side's step, which does not wait for the device, and facts about it."""

    take: Callable[[], Any]
    tokens: int
    gflop: float = float("nan")
    mib: float = float("nan")
    loss: float = float("nan")


def main(out: Path, device: str = "auto") -> None:
    """Measure every table that `out` lacks. On the CPU, use tiny shapes to try the code.

    Args:
        out: A CSV, read and extended.
        device: A torch device, or auto: a GPU if there is one.
    """
    where = pick_device(device)
    on_gpu = where.type == "cuda"
    cases: dict[str, Callable[[str], list[dict[str, object]]]] = {}
    for name, run, turns in (
        SIZES if on_gpu else [("Figure 1a at smoke scale", smoke(induction_run()), Turns(1, 2, 2))]
    ):
        cases[f"A training step, {name}"] = partial(
            steps, run=microbatch_run(run), device=where, turns=turns
        )
    stacked = (
        {"laptop": induction_run(), "gpu": GPU} if on_gpu else {"smoke": smoke(induction_run())}
    )
    for scale, run in stacked.items():
        turns = Turns() if on_gpu else Turns(1, 2, 2)
        cases[f"{MEMBERS} seeds stacked, Figure 1a at {scale} scale"] = partial(
            stacks, run=run, device=where, turns=turns
        )
    done = pd.read_csv(out) if out.exists() else pd.DataFrame({"table": []})
    for table, case in cases.items():
        if table in set(done["table"]):
            continue
        done = pd.concat([done, pd.DataFrame(case(table))], ignore_index=True)
        write_text(out, done.to_csv(index=False))
        print(done[done["table"] == table].drop(columns="table").to_string(), flush=True)


# Our model and Hugging Face's Llama


def steps(
    table: str, run: RunConfig, device: torch.device, turns: Turns
) -> list[dict[str, object]]:
    """Return times of every side's step on one batch of a run, and their ratios."""
    built, failed = build({side: lambda s=side: one_step(run, *s, device, turns) for side in SIDES})
    check_same_loss(built)
    seconds = timed_turns({side: step.take for side, step in built.items()}, device, turns)
    peak, product = peak_flops(device), product_flops(device)
    counts = {
        model: built[model, EAGER].gflop if (model, EAGER) in built else float("nan")
        for model, _ in SIDES
    }
    rows = [
        figure(table, ", ".join(side), 1e3 * times, "ms")
        | facts(built[side], counts[COUNTED_AS.get(side[0], side[0])], times, peak, product)
        for side, times in seconds.items()
    ]
    rows += [
        ratio(table, f"{', '.join(a)} / {', '.join(b)}", seconds[a], seconds[b])
        for a, b in RATIOS
        if a in seconds and b in seconds
    ]
    return rows + [error_row(table, ", ".join(side), error) for side, error in failed.items()]


def microbatch_run(run: RunConfig) -> RunConfig:
    """Return the run in bf16, with one microbatch per step."""
    return run.replace(batch_size=run.batch_size // run.accumulate, accumulate=1, precision="bf16")


def facts(
    step: Step, gflop: float, seconds: np.ndarray, peak: float, product: float
) -> dict[str, float]:
    """Return tokens per second, and counted FLOP/s as fractions of the data sheet's peak and of a large product's."""
    middle = float(np.median(seconds))
    flop_per_second = 1e9 * gflop / middle
    return {
        "tokens_per_second": round(step.tokens / middle),
        "gflop": round(gflop, 3),
        "mfu": round(flop_per_second / peak, 4),
        "of_product": round(flop_per_second / product, 4),
        "step_mib": round(step.mib, 1),
    }


def one_step(run: RunConfig, model: str, mode: str, device: torch.device, turns: Turns) -> Step:
    """Return a side's step, warmed up on every batch; for eager steps with counted FLOPs."""
    attention = "kv_shift" if model == SHIFTED else "vanilla"
    ours = Transformer(run.model.replace(attention=attention), seed=run.seed)
    net = (to_llama(ours).train() if model == LLAMA else ours).to(device)
    batches = [microbatches(run, i)[0].to(device) for i in range(turns.batches)]
    loss = losses(model, net)
    if mode == COMPILED:
        loss = torch.compile(
            loss, backend="inductor" if device.type == "cuda" else "aot_eager"
        )  # to try the code
    optimizer = torch.optim.AdamW(net.parameters(), lr=run.lr, betas=run.betas, fused=True)
    given = [(arguments(model, batch), batch.total) for batch in batches]
    following = itertools.cycle(given)

    def take() -> torch.Tensor:
        tensors, total = next(following)
        with torch.autocast(device.type, torch.bfloat16):
            mean = loss(*tensors) / total
        mean.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return mean.detach()

    first = take().item()
    for _ in range(2 * len(batches) - 1):
        take()
    return Step(take, run.batch_size * run.task.length, *counted(take, mode, device), loss=first)


def counted(take: Callable[[], Any], mode: str, device: torch.device) -> tuple[float, float]:
    """Return the GFLOPs of an eager step, and the MiB that a step adds to the device's memory at its peak."""
    gflop = flops(take) / 1e9 if mode == EAGER else float("nan")
    if device.type != "cuda":
        return gflop, float("nan")
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    take()
    torch.cuda.synchronize()
    return gflop, (torch.cuda.max_memory_allocated() - before) / 2**20


def losses(model: str, net: torch.nn.Module) -> Callable[..., torch.Tensor]:
    """Return a function from a side's `arguments` to its summed loss."""
    if model != LLAMA:
        return lambda *tensors: summed_loss(net, *tensors)  # type: ignore[arg-type]

    def of_all(tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = net(tokens, use_cache=False).logits.float()
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets, ignore_index=IGNORE, reduction="sum"
        )

    return of_all


def arguments(model: str, batch: TrainingBatch) -> tuple[Any, ...]:
    """Return the arguments of a side's loss: tensors of scored positions, or the targets of all positions."""
    if model in (OURS, SHIFTED):
        return batch.tensors
    targets = batch.targets
    if batch.index is not None:
        targets = torch.full((batch.tokens.numel(),), IGNORE, device=batch.tokens.device)
        targets[batch.index[: batch.count]] = batch.targets[: batch.count]
    if model == EVERY:
        return batch.tokens, None, targets, None
    return batch.tokens, targets


def check_same_loss(built: dict[tuple[str, str], Step]) -> None:
    """Raise if sides start with different losses: times of different computations do not compare."""
    for (model, mode), step in built.items():
        reference = built.get((SHIFTED if model == SHIFTED else OURS, EAGER), step)
        apart = abs(step.loss - reference.loss)
        if not apart < APART:
            raise AssertionError(
                f"{model}, {mode}: the first loss is {apart:.2g} from ours, eager."
            )


# Stacked seeds


def stacks(
    table: str, run: RunConfig, device: torch.device, turns: Turns
) -> list[dict[str, object]]:
    """Return times of a step of stacked members, and of one member's step times the number of members."""
    config = run.replace(model=run.model.replace(attention="kv_shift"), compile=False, accumulate=1)
    members = MEMBERS if device.type == "cuda" else 2
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        sides = {
            f"{members} stacked": lambda: stacked_step(
                config, members, root / "stacked", device, turns
            ),
            "one": lambda: single_step(config, root / "one", device, turns),
        }
        if device.type == "cuda":
            sides["one, compiled"] = lambda: single_step(
                config.replace(compile=True), root / "one", device, turns
            )
        built, failed = build(sides)
        seconds = timed_turns({side: step.take for side, step in built.items()}, device, turns)
    rows = [
        figure(table, side, 1e3 * times, "ms")
        | {
            "tokens_per_second": round(built[side].tokens / float(np.median(times))),
            "step_mib": built[side].mib,
        }
        for side, times in seconds.items()
    ]
    together = next(iter(sides))
    rows += [
        ratio(
            table,
            f"{together} / {members} times {side}",
            seconds[together],
            members * seconds[side],
        )
        for side in ("one", "one, compiled")
        if side in seconds and together in seconds
    ]
    return rows + [error_row(table, side, error) for side, error in failed.items()]


def stacked_step(
    config: RunConfig, members: int, root: Path, device: torch.device, turns: Turns
) -> Step:
    """Return a step of an ensemble, on batches drawn beforehand."""
    runs = [Run.create(each, root) for each in seeds(config, members)]
    return trained_step(Training(runs, device, stacked=True), members, config, device, turns)


def single_step(config: RunConfig, root: Path, device: torch.device, turns: Turns) -> Step:
    """Return a step of one model, on batches drawn beforehand."""
    return trained_step(Training([Run.create(config, root)], device), 1, config, device, turns)


def trained_step(
    training: Any, members: int, config: RunConfig, device: torch.device, turns: Turns
) -> Step:
    """Return a step of the training loop, warmed up."""
    batches = [training.batches(i) for i in range(turns.batches)]
    following = itertools.cycle(batches)

    def take() -> None:
        training.train_step(next(following))

    for _ in range(2 * len(batches)):
        take()
    _, mib = counted(take, COMPILED, device)
    return Step(take, members * config.batch_size * config.task.length, mib=mib)


# Turns


def build(sides: dict[Any, Callable[[], Step]]) -> tuple[dict[Any, Step], dict[Any, str]]:
    """Return the sides that could be built, and the errors of those that could not."""
    built, failed = {}, {}
    for name, make in sides.items():
        try:
            built[name] = make()
        except (
            Exception
        ) as error:  # a kernel or compiler may raise anything; still measure the other sides
            traceback.print_exc(file=sys.stderr)
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return built, failed


def timed_turns(
    sides: dict[Any, Callable[[], Any]], device: torch.device, turns: Turns
) -> dict[Any, np.ndarray]:
    """Return the seconds of one step of each side in each round."""

    taken = {name: clocked(take, device, turns.steps) for name, take in sides.items()}
    return take_turns(taken, turns.rounds)


def clocked(take: Callable[[], Any], device: torch.device, repeats: int) -> Callable[[], float]:
    """Return a turn: it takes several steps, from idle device to idle device, and returns the seconds per step."""

    def several() -> None:
        for _ in range(repeats):
            take()
        _wait(device)

    seconds = timed(several)

    def turn() -> float:
        _wait(device)
        return seconds() / repeats

    return turn


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def error_row(table: str, measured: str, error: str) -> dict[str, object]:
    """Return the row of a failed side."""
    return {"table": table, "measured": measured, "note": f"failed: {error}"}


def peak_flops(device: torch.device) -> float:
    """Return the FLOP/s in bf16 from the device's data sheet; NaN for a device that is not in `PEAK_BF16`."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return next((1e12 * peak for part, peak in PEAK_BF16.items() if part in name), float("nan"))


def product_flops(device: torch.device) -> float:
    """Return the FLOP/s of a large product of random matrices in bf16, the best of a few."""
    size = 8192 if device.type == "cuda" else 512
    a, b = (torch.randn(size, size, device=device, dtype=torch.bfloat16) for _ in range(2))
    product = clocked(lambda: a @ b, device, 4)
    return 2 * size**3 / min(product() for _ in range(6))


if __name__ == "__main__":
    tyro.cli(main)
