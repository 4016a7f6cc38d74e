"""The pictures of an evaluation, as PNG files: for the report and for MLflow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from platform_plugin.errors import MissingDependencyError
from platform_plugin.evaluation.finding import Findings
from platform_plugin.evaluation.result import EvaluationResult
from platform_plugin.evaluation.rows import Buckets
from platform_plugin.evaluation.units import shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = ("#3b6fb6", "#e08a1e", "#3f9b6e", "#b5506d", "#7a5ea8", "#5aa5b5", "#8c6d46", "#777777")
MOST_DRAWN = 40
"""Classes at most that a confusion matrix can be read with."""
_INK, _FAINT = "#222222", "#d9dce1"
_SIDES = (("#3f9b6e", "wins"), ("#c9ced6", "ties"), ("#c2554d", "losses"))
_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.edgecolor": "#9aa1ab",
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": "#555555",
    "ytick.color": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "svg.fonttype": "path",
}


def draw(findings: Findings, result: EvaluationResult, folder: Path) -> dict[str, Path]:
    """Draw what there is to be drawn into `folder`; return title -> file, in the order of reading.

    Raises:
        MissingDependencyError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError as exc:
        raise MissingDependencyError(
            'the report of evaluate() needs matplotlib: pip install "platform-plugin[evaluation]"'
        ) from exc
    folder.mkdir(exist_ok=True)
    if findings.scored is None:
        return {}
    wanted: dict[str, Callable[[], Figure | None]] = {
        "Metrics": lambda: _metrics(result, findings.names),
        "Wins and losses": lambda: _pairs(result),
        "Confusion": lambda: _confusion(findings),
        "Length of the answers": lambda: None if _closed(findings) else _lengths(findings),
        "Latency": lambda: _histogram(findings.latencies(), findings.names, "seconds of a request", "s"),
    }
    made = {}
    with matplotlib.rc_context(_STYLE):
        for title, figure_of in wanted.items():
            figure = figure_of()
            if figure is not None:
                path = folder / f"{title.lower().replace(' ', '_')}.png"
                figure.savefig(path, dpi=150, bbox_inches="tight", facecolor="white")
                made[title] = path
    return made


def _closed(findings: Findings) -> bool:
    """Return whether every prediction is a class: how long a class's name is says nothing."""
    return bool(findings.confusions) and not any(line[-1] for counts in findings.confusions for line in counts)


def _lengths(findings: Findings) -> Figure | None:
    return _histogram(findings.lengths(), findings.names, "characters", "characters")


def _figure(width: float, height: float, *grid: int, **options: Any) -> tuple[Figure, list[Any]]:
    """Return a figure and its axes, one after the other; without pyplot, which keeps figures and wants a display."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(*(grid or (1, 1)), squeeze=False, **options)
    return figure, list(axes.flat)


def _metrics(result: EvaluationResult, names: Sequence[str]) -> Figure:
    from matplotlib.ticker import MaxNLocator

    columns = min(3, len(result.units))
    lines = math.ceil(len(result.units) / columns)
    figure, axes = _figure(3.6 * columns, (0.75 + 0.32 * len(names)) * lines, lines, columns)
    for axis in axes[len(result.units) :]:
        axis.set_visible(False)
    for place, (metric, unit) in enumerate(result.units.items()):
        axis, scale = axes[place], 100 if unit == "share" else 1
        found = [result.model(name).values[metric] for name in names]
        for line, one in enumerate(found):
            colour = COLOURS[line % len(COLOURS)]
            value = scale * one.value
            axis.barh(line, value, height=0.62, color=colour, alpha=0.85)
            if not math.isnan(one.low):
                ends = [[value - scale * one.low], [scale * one.high - value]]
                axis.errorbar(value, line, xerr=[[max(0, e[0])] for e in ends], color=_INK, capsize=3, lw=1)
            top = value if math.isnan(one.high) else scale * one.high
            text = axis.annotate(shown(one.value, unit), (top, line), (5, 0), textcoords="offset points", va="center")
            # Readable over the line of a constant.
            text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1, "alpha": 0.85})
        most = max((v for one in found for v in (one.value, one.high) if not math.isnan(v)), default=1.0) * scale
        constant = result.constant.values.get(metric) if result.constant is not None else None
        if constant is not None:
            most = max(most, scale * constant)
            axis.axvline(scale * constant, color=_INK, lw=1, ls=(0, (4, 3)), zorder=3)
        axis.set_xlim(0, most * 1.3 or 1)
        ticks = MaxNLocator(4, steps=[1, 2, 5, 10]).tick_values(0, axis.get_xlim()[1])
        axis.set_xticks([t for t in ticks if t <= min(axis.get_xlim()[1], 100 if unit == "share" else math.inf)])
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
        axis.set_yticks(range(len(names)), [_cut(n) for n in names] if place % columns == 0 else [""] * len(names))
        axis.invert_yaxis()
        arrow = {"higher": " \u2191", "lower": " \u2193"}.get(result.better[metric], "")
        axis.set_title(f"{metric}{arrow}")
        axis.set_xlabel("%" if unit == "share" else unit, fontsize=8)
        axis.tick_params(axis="y", length=0)
    return figure


def _pairs(result: EvaluationResult) -> Figure | None:
    counted = [(c, (c.wins, c.ties or 0, c.losses or 0)) for c in result.comparisons if c.wins is not None]
    told = [(c, counts) for c, counts in counted if counts[0] + counts[2]]
    if not told:
        return None
    figure, (axis,) = _figure(8.5, 0.7 + 0.34 * len(told))
    for line, (_, counts) in enumerate(told):
        total, start = sum(counts), 0.0
        for (colour, _), count in zip(_SIDES, counts, strict=True):
            width = 100 * count / total
            axis.barh(line, width, left=start, height=0.66, color=colour)
            if width > 2:
                axis.text(start + width / 2, line, f"{count:,}", ha="center", va="center", fontsize=8)
            start += width
    axis.set_yticks(range(len(told)), [f"{_cut(c.model)}: {c.metric}" for c, _ in told])
    axis.invert_yaxis()
    axis.set_xlim(0, 100)
    axis.set_xlabel(f"% of rows, against {result.baseline}")
    axis.tick_params(axis="y", length=0)
    handles = [axis.barh(0, 0, color=colour, label=label) for colour, label in _SIDES]
    axis.legend(handles=handles, ncols=3, frameon=False, loc="lower left", bbox_to_anchor=(0, 1.0))
    return figure


def _confusion(findings: Findings) -> Figure | None:
    from matplotlib.patches import Rectangle

    classes = findings.facts.classes
    if not findings.confusions or len(classes) > MOST_DRAWN:
        return None
    names = findings.names[:4]
    size = 1.9 + 0.26 * len(classes)
    across = min(2, len(names))
    down = math.ceil(len(names) / across)
    figure, axes = _figure(across * size + 0.6, down * size, down, across)
    for axis in axes[len(names) :]:
        axis.set_visible(False)
    for place, name in enumerate(names):
        axis, counts = axes[place], findings.confusions[place]
        shares = [[n / max(1, sum(line)) for n in line] for line in counts]
        axis.imshow(shares, cmap="Blues", vmin=0, vmax=1, aspect="equal")
        for row, line in enumerate(counts):
            for column, count in enumerate(line):
                if count:
                    ink = "white" if shares[row][column] > 0.55 else _INK
                    axis.text(column, row, f"{count}", ha="center", va="center", fontsize=6.5, color=ink)
            # Where the label is the prediction: it is looked for first, also where no row is.
            axis.add_patch(Rectangle((row - 0.5, row - 0.5), 1, 1, fill=False, edgecolor="#e08a1e", lw=0.9))
        axis.set_xticks(range(len(classes) + 1), [*map(_cut, classes), "(none)"], rotation=90, fontsize=7.5)
        totals = [f"{_cut(name)} ({sum(line):,})" for name, line in zip(classes, counts, strict=True)]
        axis.set_yticks(range(len(classes)), totals, fontsize=7.5)
        axis.tick_params(length=0)
        axis.set_title(name)
        axis.set_xlabel("prediction")
        if place % across == 0:
            axis.set_ylabel("label")
        axis.axvline(len(classes) - 0.5, color="#9aa1ab", lw=0.8)
        for spine in axis.spines.values():
            spine.set_visible(False)
    return figure


def _histogram(found: Sequence[Buckets], names: Sequence[str], label: str, unit: str) -> Figure | None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    if not any(sum(one.counts) for one in found):
        return None
    figure, (axis,) = _figure(8.5, 2.6)
    for place, (one, name) in enumerate(zip(found, names, strict=True)):
        total = sum(one.counts)
        if not total:
            continue
        shares = [100 * count / total for count in one.counts]
        colour = COLOURS[place % len(COLOURS)]
        told = f"{_cut(name)}, median {float(f'{one.median:.3g}'):,g} {unit}"
        axis.stairs(shares, one.edges, color=colour, lw=1.8, label=told)
        axis.stairs(shares, one.edges, color=colour, fill=True, alpha=0.12)
    filled = [i for one in found for i, count in enumerate(one.counts) if count]
    edges = found[0].edges
    least, most = edges[max(0, min(filled) - 1)], edges[min(max(filled) + 2, len(edges) - 1)]
    axis.set_xscale("log")
    axis.set_xlim(least, most)
    narrow = MaxNLocator(10, steps=[1, 2, 5, 10])  # within a factor of 10, a logarithmic scale has one tick or two
    axis.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5), numticks=20) if most > 10 * least else narrow)
    axis.xaxis.set_minor_locator(NullLocator())
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.4g}")
    axis.set_xlabel(f"{label}, logarithmic scale" if most > 2 * least else label)
    axis.set_ylabel("% of rows")
    axis.grid(axis="y", color=_FAINT, lw=0.6)
    axis.set_axisbelow(True)
    axis.legend(frameon=False, loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)
    return figure


def _cut(text: str, most: int = 24) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"
