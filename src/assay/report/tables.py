"""The tables of a report, as HTML built from escaped text."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.hacking import Hacking
from assay.report.load import Arm
from assay.report.safe import escape
from assay.report.words import LABEL
from assay.stats.interval import Interval


def table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table from ready HTML cells; the first cell of a row is its heading."""
    head = "".join(f"<th scope='col'>{cell}</th>" for cell in header)
    body = "".join(
        f"<tr><th scope='row'>{row[0]}</th>{''.join(f'<td>{cell}</td>' for cell in row[1:])}</tr>"
        for row in rows
    )
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return (
        f"<div class='scroll'><table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def chip(verdict: str) -> str:
    """A verdict as a coloured label."""
    return f"<span class='chip {escape(verdict)}'>{escape(LABEL[verdict])}</span>"


def number(value: float, digits: int = 2) -> str:
    """A number, or a dash where it is unknown."""
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def ranged(value: Interval, digits: int = 2) -> str:
    """An estimate and, smaller, its interval."""
    if math.isnan(value.low):
        return number(value.estimate, digits)
    return (
        f"{number(value.estimate, digits)} <small>[{value.low:.{digits}f}, {value.high:.{digits}f}]</small>"
    )


def arms_table(found: Sequence[tuple[Arm, Hacking]]) -> str:
    """One row an arm: its verdict, the last checkpoint, the onset."""
    gap = escape(found[0][1].gap_name)
    header = ("arm", "verdict", "truth, start → end", "reward, end", "P(rewarded, not true)", gap,
              "P(not true | rewarded)", "J", "KL", "onset")  # fmt: skip
    rows: list[list[str]] = []
    for arm, hacking in found:
        start, end = hacking.checkpoints[0], hacking.checkpoints[-1]
        onset = "none" if hacking.onset_step is None else f"step {hacking.onset_step}"
        rows.append(
            [
                escape(arm.name),
                chip(hacking.verdict),
                f"{number(start.truth.estimate)} → {ranged(end.truth)}",
                ranged(end.reward),
                ranged(end.rewarded_not_true),
                ranged(end.hacking_rate),
                ranged(end.not_true_if_rewarded),
                number(end.youden),
                number(end.kl_sequence, 1),
                onset,
            ]
        )
    return table(header, rows)


def checkpoints_table(hacking: Hacking) -> str:
    """Every matched checkpoint of one arm; the one picked by truth and the one by reward are marked."""
    rows = hacking.table()
    picked = hacking.selection
    header = [escape(name) for name in rows[0]]
    body: list[list[str]] = []
    for row in rows:
        cells = [escape(cell) for cell in row.values()]
        if picked and int(row["step"]) == picked.by_truth:
            cells[0] += " <span class='pick truth' title='highest truth'>truth’s pick</span>"
        if picked and int(row["step"]) == picked.by_reward:
            cells[0] += " <span class='pick reward' title='highest reward'>reward’s pick</span>"
        body.append(cells)
    return table(header, body)


def selection_table(found: Sequence[tuple[Arm, Hacking]]) -> str:
    """Which checkpoint truth picks, which reward alone would, and the truth lost by it."""
    rows: list[list[str]] = []
    for arm, hacking in found:
        picked = hacking.selection
        if picked is None:
            rows.append([escape(arm.name), "–", "–", "–", "–", "unknown"])
            continue
        rows.append(
            [
                escape(arm.name),
                f"step {picked.by_truth}",
                number(picked.truth_at_best),
                f"step {picked.by_reward}",
                number(picked.truth_at_reward_pick),
                "nothing" if picked.by_truth == picked.by_reward else ranged(picked.cost),
            ]
        )
    header = ("arm", "picked by truth", "its truth", "picked by reward alone", "its truth", "lost")
    return table(header, rows)
