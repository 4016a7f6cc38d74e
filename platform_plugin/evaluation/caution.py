"""What the reader should know before believing the numbers: rows without an answer, models that know nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from platform_plugin.evaluation.answers import DataFacts
from platform_plugin.evaluation.units import shown

MANY_FAIL = 0.1
FAR = 0.25
"""Share of the rows by which a prediction is far more frequent than its label."""


def cautions(
    facts: DataFacts,
    label: str | None,
    names: Sequence[str],
    errors: Sequence[Mapping[str, int]],
    unjudged: Sequence[int],
    confusions: Sequence[Sequence[Sequence[int]]],
) -> list[str]:
    """Return the warnings of an evaluation, one line each.

    Args:
        names: of the models; `errors`, `unjudged` and `confusions` have one entry each, as `rows` counts them.
        confusions: empty where they were not counted.
    """
    made = []
    if label and facts.labelled < facts.rows:
        made.append(
            f"{facts.rows - facts.labelled:,} of {facts.rows:,} rows have no {label}: they are left out of "
            "what compares with it."
        )
    for name, found in zip(names, errors, strict=True):
        failed = sum(found.values())
        if failed >= MANY_FAIL * facts.rows:
            kinds = ", ".join(f"{count:,} {kind}" for kind, count in found.items())
            made.append(
                f"{name} has no prediction in {failed:,} of {facts.rows:,} rows ({kinds}): they count as wrong. "
                "Look at the errors before its metrics."
            )
    for name, count in zip(names, unjudged, strict=True):
        if count:
            made.append(f"The judge gave no score to {count:,} predictions of {name}: they are left out of its mean.")
    for name, counts in zip(names, confusions, strict=False):
        made += of_classes(name, facts.classes, counts)
    return made


def of_classes(model: str, classes: Sequence[str], counts: Sequence[Sequence[int]]) -> list[str]:
    """Return what a confusion matrix says of a model beside answering one class always: one line, or none.

    Args:
        counts: a line a label and a column a prediction, as `rows.confusions` makes it.
    """
    labels = [sum(line) for line in counts]
    said = [sum(line[place] for line in counts) for place in range(len(classes))]
    rows, right = sum(labels), sum(line[place] for place, line in enumerate(counts))
    made = []
    most = max(range(len(classes)), key=labels.__getitem__)
    if right <= labels[most]:
        made.append(
            f"is no better than a constant: it is right in {shown(right / rows, 'share')} of rows; always answering "
            f"{classes[most]!r} would be right in {shown(labels[most] / rows, 'share')} ({labels[most]:,} of {rows:,})"
        )
    top = max(range(len(classes)), key=said.__getitem__)
    if said[top] > rows / 2 and said[top] - labels[top] >= FAR * rows:
        made.append(f"answers {classes[top]!r} in {said[top]:,} of {rows:,} rows; {labels[top]:,} have that label")
    return [f"{model} {'. It '.join(made)}."] if made else []
