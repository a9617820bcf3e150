"""The basin map: what is measured of a run."""

from figures.basin_map.study import BASIN_MAP
from ihlab.training.run import Run


def test_what_is_measured_is_what_the_metrics_say(tmp_path):
    """By hand: found at step 20 and lost again."""
    plans = BASIN_MAP.runs("laptop")
    plan = next(p for p in plans if p.config.init_shift == (0.2, 1.4) and p.config.seed == 3)
    run = Run.create(plan.config, tmp_path)
    at_end = {"alpha1_0.0": -0.5, "alpha2_0.0": 1.5, "beta1_0.0": 3.0, "beta2_0.0": -1.0}
    accuracies = enumerate((0.125, 0.89, 0.9, 0.5))
    run.write_metrics(
        [{"step": 10 * i, "accuracy": 0.0, "accuracy_first": a} | at_end for i, a in accuracies]
    )
    [row] = BASIN_MAP.gather([(plan.cell_name, run)], "laptop").to_dict("records")
    known = {
        "alpha1": 0.2, "seed": 3, "key_angle": 0.244979, "value_norm": 1.456022, "distance": 0.447214,
        "angular_distance": 0.370764, "end_key_angle": -0.321751, "end_value_norm": 3.162278, "rows": 128,
        "accuracy_start": 0.125, "steps": 20, "accuracy": 0.5,
    }  # fmt: skip
    assert {name: row[name] for name in known} == known
