"""The demo's inbox keeps the shape that the README and the notebooks count on."""

from __future__ import annotations

import csv
import io
from collections import Counter
from datetime import datetime
from pathlib import Path

import pytest

CSV = Path(__file__).parents[1] / "platform_plugin" / "demo" / "messages.csv"
COLUMNS = ["id", "city", "channel", "fare", "created_at", "urgent", "topic", "message"]
TOPICS = {
    "account",
    "app_bug",
    "cancellation",
    "driver_behaviour",
    "fare_dispute",
    "lost_item",
    "payment",
    "pickup",
    "safety",
}


@pytest.fixture(scope="module")
def rows() -> list[dict[str, str]]:
    text = CSV.read_bytes().decode("utf-8", errors="strict")
    reader = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    rows = list(reader)
    assert reader.fieldnames == COLUMNS
    return rows


def test_there_are_200_rows_with_ids_1_to_200(rows: list[dict[str, str]]) -> None:
    assert [row["id"] for row in rows] == [str(n) for n in range(1, 201)]


def test_every_cell_but_the_fare_is_filled(rows: list[dict[str, str]]) -> None:
    for row in rows:
        assert list(row) == COLUMNS  # a surplus cell would come under the key None
        assert all(row[name].strip() for name in COLUMNS if name != "fare"), row


def test_cells_parse_as_their_types(rows: list[dict[str, str]]) -> None:
    for row in rows:
        assert row["urgent"] in {"true", "false"}
        assert row["channel"] in {"app", "email", "phone", "chat"}
        units, _, cents = row["fare"].partition(".")
        assert row["fare"] == "" or (units.isdecimal() and cents.isdecimal() and len(cents) == 2), row
        assert datetime.fromisoformat(row["created_at"]).tzinfo is not None, row


def test_each_topic_is_allowed_and_has_at_least_8_messages(rows: list[dict[str, str]]) -> None:
    counts = Counter(row["topic"] for row in rows)
    assert set(counts) == TOPICS
    assert min(counts.values()) >= 8


def test_between_4_and_12_messages_repeat_an_earlier_one(rows: list[dict[str, str]]) -> None:
    assert 4 <= len(rows) - len({row["message"] for row in rows}) <= 12


def test_equal_messages_have_equal_topics(rows: list[dict[str, str]]) -> None:
    """Equal prompts are answered once, so they can have one label only."""
    assert len({(row["message"], row["topic"]) for row in rows}) == len({row["message"] for row in rows})


@pytest.mark.parametrize("text", ["\n", '"', ",", "{", "}", "\\", "😡", "ड", "ã", "ß"])
def test_the_awkward_characters_of_a_real_inbox_are_there(rows: list[dict[str, str]], text: str) -> None:
    assert any(text in row["message"] for row in rows)
