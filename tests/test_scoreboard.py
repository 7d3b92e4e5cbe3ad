"""The generated pages are those of today's claims and stored runs, and tell of every exhibit of the paper."""

import re
from pathlib import Path

import pytest
import scoreboard

from paper_lib import paper, runs, sweep, tables

ROOT = Path(__file__).resolve().parent.parent
EXHIBITS = (
    *(f"Figure {n}" for n in (1, 2, 3, 4, 6, "A1", "A2", "A8")),
    *("Figures 5, A9", "Figures 7, A7", "Figure A3", "Figure A5", "Figures A4, A6"),
    *("Table 1", "Table 2", "Lemma 1", "Algorithm 1", "Sec. 4", "Sec. 4, App. B", "Sec. 3, text", "Sec. 7, text"),
)
"""The figures and tables of the paper, its lemma, its algorithm, and sentences with numbers."""


def test_stored_pages_are_what_would_be_written():
    for path, text in scoreboard.written().items():
        assert path.read_text() == text, f"{path.name} is stale: run python scripts/scoreboard.py"


@pytest.mark.parametrize("exhibit", EXHIBITS)
def test_every_exhibit_has_a_verdict(exhibit):
    judged = [judgement for claim, judgement in scoreboard.judged() if claim.exhibit == exhibit]
    assert judged and all(judgement.verdict in tables.VERDICTS for judgement in judged)


def test_every_printed_number_is_there():
    page = (ROOT / "book" / "reproduction.md").read_text()
    for p in paper.PRINTED:
        assert re.search(
            rf"{re.escape(paper.label(p.row))} on {re.escape(paper.LABELS[p.dataset])}: {p.value:.2f}", page
        )


def test_rows_without_a_printed_number_stand_beside_those_with_one():
    page = (ROOT / "book" / "reproduction.md").read_text()
    for dataset in ("split_mnist", "split_fmnist"):
        found = tables.by_seed(sweep.stored_at_paper_scale(dataset, ("replay", "joint"), "class_incremental"))
        for row, final in found.items():
            cells = rf"{paper.LABELS[dataset]} \| {re.escape(paper.label(row))} \| {final.mean():.2f} / [\d.]+ \| 10 "
            assert re.search(cells, page), cells


def test_without_stored_runs_every_number_is_open(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "RESULTS", tmp_path)
    judged = scoreboard.judged()
    assert {judgement.verdict for claim, judgement in judged if claim.needs} == {"open"}
    assert {judgement.verdict for claim, judgement in judged if claim.tested} <= set(tables.VERDICTS[:3])
