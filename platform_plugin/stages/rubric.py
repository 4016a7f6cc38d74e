"""What a judge is told: the texts of its prompts."""

from __future__ import annotations

from collections.abc import Sequence

_SCORE = """You judge the answer of an assistant by a rubric.

Rubric: {rubric}

Scores:
1: wrong, useless or beside the point
2: mostly wrong
3: partly right
4: right, with small flaws
5: right and complete by the rubric

Say the reason in one or two sentences, then the score. Write JSON, such as \
{{"reason": "It answers the question, but not politely.", "score": 4}}
"""
_PAIR = """You compare two answers of assistants, A and B, by a rubric. Their order says nothing.

Rubric: {rubric}

Say the reason in one or two sentences, then which answer is better: "A", "B", or "tie" where neither is. \
Write JSON, such as {{"reason": "B answers the question, A does not.", "better": "B"}}
"""


def prompt(rubric: str, *, asked: str | None, reference: str | None, answers: Sequence[str], swapped: bool) -> str:
    """Return the template of a judge's prompt, with a {field} for each column. What all rows share stands first.

    Args:
        asked, reference: columns with what was asked and with a reference answer, or None.
        answers: the column of the answer, or of two.
        swapped: whether the second answer is shown first.
    """
    one = len(answers) == 1
    escaped = rubric.strip().replace("{", "{{").replace("}", "}}")
    parts = [(_SCORE if one else _PAIR).replace("{rubric}", escaped)]
    if asked is not None:
        parts.append(f"What was asked:\n{{{asked}}}\n")
    if reference is not None:
        parts.append(f"Reference answer:\n{{{reference}}}\n")
    shown = list(reversed(answers)) if swapped else list(answers)
    names = ["The answer"] if one else ["Answer A", "Answer B"]
    parts += [f"{name}:\n{{{column}}}\n" for name, column in zip(names, shown, strict=True)]
    return "\n".join(parts).rstrip()
