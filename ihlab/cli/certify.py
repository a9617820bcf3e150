"""The command `certify`: prove or refute that a model answers every sequence correctly."""

from dataclasses import replace
from pathlib import Path

from ihlab.cli.inspect import Corpus, Root, RunName, Step, TaskName, found_run
from ihlab.cli.paths import TABLES, check_output, write_table, writing
from ihlab.cli.terminal import text
from tasks.config import require

CERTIFICATES = (".safetensors",)
EXIT_CODES = {"refuted": 1, "unknown": 2}


def certify(
    run: RunName,
    /,
    root: Root = Path("runs"),
    step: Step = None,
    task: TaskName = None,
    corpus: Corpus = None,
    lengths: tuple[int, int] | None = None,
    margins: bool | None = None,
    csv: Path | None = None,
    out: Path | None = None,
    check: bool = False,
    export: Path | None = None,
) -> None:
    """Prove or refute that a run's model (one layer of attention) answers every sequence of its task correctly.

    The proof is about the stored weights in real arithmetic. `ihlab attack` searches for wrong answers of any model.

    With one head and no MLP a proof of 16 ids takes seconds; more heads or an MLP take seconds for each question and
    length, and may stay unknown.

    Exits with 0 if that is proved, with 1 if a sequence is answered wrongly, and with 2 if neither is known.

    Args:
        lengths: The smallest and the largest number of tokens; by default all up to the task's. Models without learned
            positions read longer sequences than they were trained on.
        margins: Compute the smallest margin of every length, not only of the largest; by default up to 32 token ids.
        csv: Write the table here, with the worst sequence of each row.
        out: The certificate; by default the name of the run's folder, its step, and digits for the options.
        check: Check the existing certificate of this call, instead of making one.
        export: Also write this folder: weights, verdicts and a checker that needs Python alone.
    """
    stored = found_run(run, None, root, task, corpus)
    assert stored is not None
    stored.require_task()
    step = stored.require_checkpoint(step)
    check_output("--csv", csv, TABLES, stored)
    from ihlab.certify import Certificate
    from ihlab.certify import certify as prove
    from ihlab.certify import check as checked
    from ihlab.certify.certify import plan, require_same_call

    model = stored.model(step)
    wanted = None if lengths is None else range(lengths[0], lengths[1] + 1)
    _, _, planned = plan(model, None, wanted, None, margins)
    path = out or Path(f"{stored.folder.name}-step-{step}-{planned.key}.safetensors")
    check_output("--out", path, CERTIFICATES, stored)
    if check:
        require(path.exists(), f"There is no certificate {path}: make it without --check.")
        certificate = Certificate.open(path)
        # Margins change no claim.
        require_same_call(path, replace(planned, margins=certificate.margins))
        print(f"{checked(path, model)} verdicts hold.")
    else:
        with writing(path):
            certificate = prove(model, None, wanted, margins=margins, path=path)
    if export is not None:
        certificate.export(export)
    print(certificate.verdict)
    words = " ".join(map(str, model.to_str_tokens(certificate.worst)))
    print(text(f"The sequence with the smallest margin: {words}"))
    if csv is not None:
        write_table(certificate.table, csv)
    if certificate.status != "proved":
        raise SystemExit(EXIT_CODES[certificate.status])
