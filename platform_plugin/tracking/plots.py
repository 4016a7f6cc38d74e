"""Two pictures of a run: how long requests took, and what the run spent its time on.

Figures are made without pyplot, whose state is one for all threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from platform_plugin.report import RunReport

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK, SOFT = "#1f4e79", "#9db8d2"
COLOURS = ("#9aa5b1", "#7a9cc6", "#c98a3b", "#1f4e79", "#6b8f71", "#8a6fa8")


def latency(report: RunReport) -> Figure | None:
    """Return the histogram of the seconds a request took, with its quantiles; None where none was answered."""
    buckets = report.latency.to_dict()["buckets"]
    if not buckets:
        return None
    figure, axes = _blank(7.0, 3.6)
    highs = [bound for bound, _ in buckets]
    lows = [bound / 2**0.25 for bound in highs]  # the width of a bucket
    widths = [high - low for low, high in zip(lows, highs, strict=True)]
    axes.bar(lows, [n for _, n in buckets], width=widths, align="edge", color=SOFT, edgecolor=INK, linewidth=0.6)
    axes.set_xscale("log")
    for percent, style in ((50, "-"), (90, "--"), (99, ":")):
        seconds = report.latency.quantile(percent / 100)
        assert seconds is not None
        axes.axvline(seconds, color=INK, linestyle=style, linewidth=1.2, label=f"p{percent}  {seconds:.3g} s")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_formatter(lambda value, _: f"{value:g}" if len(highs) < 8 else "")
    axes.tick_params(axis="x", which="minor", labelsize=7)
    axes.set_xlabel("seconds a request took (logarithmic)")
    axes.set_ylabel("requests")
    axes.set_title(f"{report.latency.total:,} requests of {report.stage}, {report.model}", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9)
    return figure


def timeline(report: RunReport, points: list[tuple[float, int, int]]) -> Figure:
    """Return the steps one after the other, and above the same seconds how many requests were done.

    Args:
        points: seconds since the beginning, requests done, output tokens.
    """
    rows = 2 if len(points) > 1 else 1
    figure, axes = _blank(7.0, 2.4 + 2.0 * (rows - 1), rows)
    bars = axes[-1] if rows == 2 else axes
    begin = 0.0
    for place, (name, seconds) in enumerate(report.steps.items()):
        colour = COLOURS[place % len(COLOURS)]
        bars.barh(0, seconds, left=begin, height=0.5, color=colour, label=f"{name}  {seconds:.2f} s")
        begin += seconds
    # What is left is the plan of the result, and waiting for the count of the rows.
    rest = max(0.0, report.seconds - begin)
    bars.barh(0, rest, left=begin, height=0.5, color="#e3e6ea", label=f"other  {rest:.2f} s")
    bars.set_yticks([])
    bars.set_ylim(-0.6, 0.6)
    bars.set_xlim(0, max(report.seconds, 1e-3))
    bars.set_xlabel("seconds since the transform began")
    figure.legend(ncols=3, loc="outside lower center", frameon=False, fontsize=8)
    if rows == 2:
        course = axes[0]
        course.step([p[0] for p in points], [p[1] for p in points], where="post", color=INK)
        course.set_ylabel("requests done")
        course.set_ylim(bottom=0)
        course.sharex(bars)
        course.tick_params(labelbottom=False)
    title = f"{report.rows:,} rows in {report.seconds:.1f} s"
    (axes[0] if rows == 2 else axes).set_title(title, loc="left", fontsize=10)
    return figure


def _blank(width: float, height: float, rows: int = 1) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, 1, height_ratios=[2, 1][-rows:])
    for one in axes if rows > 1 else [axes]:
        one.spines[["top", "right"]].set_visible(False)
    return figure, axes
