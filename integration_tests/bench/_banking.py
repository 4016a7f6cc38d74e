"""The prompts of the benches: messages of BANKING77 behind one few-shot prefix."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

MESSAGES = Path(__file__).parents[3] / "shared" / "data" / "banking77" / "test.csv"
SYSTEM = "You route the messages of a bank's customers. Answer with one topic and one sentence.\n" + "\n".join(
    f"Message: {text} -> {topic}"
    for text, topic in [
        ("My card has not arrived yet.", "card: ask for the date on which it was sent"),
        ("Why was I charged twice?", "payment: look the two payments up"),
        ("How do I verify my identity?", "identity: send the list of documents"),
        ("I cannot see my transfer.", "transfer: ask for the day and the amount"),
        ("The machine kept my card.", "cash: block the card and order another"),
        ("Which currencies can I hold?", "account: send the list of currencies"),
    ]
)


def messages(count: int, start: int = 0) -> list[str]:
    """Return `count` distinct messages of customers, from `start` on."""
    if not MESSAGES.exists():
        raise SystemExit(f"this bench needs {MESSAGES}, which is not there.")
    with MESSAGES.open(newline="") as file:
        rows = csv.DictReader(file)
        return [row["text"] for row in itertools.islice(rows, start, start + count)]
