"""Each erratum: the corrected number agrees with the independent one, and the printed one does not."""

import numpy as np
import pytest
import torch

from paper_lib.analysis import errata
from paper_lib.analysis.misspecification import change_point_task
from paper_lib.inference.gaussian import Gaussian
from paper_lib.inference.regression import condition_line, line_features
from paper_lib.rng import generator

QUICK = errata.Config(num_draws=40_000)

# How far the corrected number may be from the independent one, relative: Monte Carlo error, or what linearising costs.
TOLERANCE = {"simulation": 0.03, "draws from the prior": 0.06, "quadrature, not linearised": 0.02}


@pytest.fixture(scope="module")
def result():
    return errata.run(QUICK)


def test_corrected_agrees_with_the_independent_route_and_printed_does_not(result):
    for row in result.checks.itertuples():
        tolerance = TOLERANCE.get(row.route, 1e-6)
        assert row.corrected == pytest.approx(row.independent, rel=tolerance), row
        assert abs(row.printed - row.independent) > 5 * tolerance * abs(row.independent), row


def test_the_chapter_says_how_near_the_corrected_numbers_come():
    """Within 1 %; every printed one is off by more than a half."""
    checks = errata.run(errata.Config()).checks.set_index("point")
    off = (checks[["printed", "corrected"]].sub(checks.independent, axis=0)).div(checks.independent.abs(), axis=0)
    assert off.corrected.abs().max() < 0.01
    assert off.printed.abs().min() > 0.5
    said = errata.numbers(errata.run(errata.Config()).checks)
    assert said["corrected_off"] == pytest.approx(100 * off.corrected.abs().max())
    assert said["printed_off"] == pytest.approx(100 * off.printed.abs().min())


def test_exact_inference_in_one_model_ends_where_all_data_at_once_take_it():
    tasks = [change_point_task(task, 50, 100.0, generator(0, task)) for task in range(2)]
    x, y = (torch.cat(part) for part in zip(*tasks, strict=True))
    prior = Gaussian(torch.zeros(2).double(), torch.eye(2).double())
    at_once, _ = condition_line(prior, line_features(x), y, 100.0)
    line = prior
    for part in (slice(0, 50), slice(50, 100)):
        line, _ = condition_line(line, line_features(x[part]), y[part], 100.0)
    torch.testing.assert_close(line.mean, at_once.mean, rtol=1e-9, atol=1e-9)


def test_table_keeps_what_is_read(result):
    text = errata.shown(result.checks).set_index("quantity")
    assert list(text.loc["M5, performance after 2 tasks (pooled points)"]) == ["1.7", "0.85", "0.85"]


def test_every_point_has_a_check(result):
    assert list(dict.fromkeys(result.checks.point)) == [f"M{i}" for i in range(1, 8)]


def test_printed_exponent_diverges_and_the_corrected_one_settles(result):
    drift = result.drift
    growth = np.diff(np.log(drift.printed.to_numpy()))
    assert (growth > 0.4).all()  # 2 log(1 / (1 - h)) = 0.446 in the long run
    settled = 0.1 / (1 - 0.8**2)
    assert drift.corrected.iloc[-1] == pytest.approx(settled, rel=1e-3)
    np.testing.assert_allclose(drift.corrected, drift.simulated, rtol=0.04)


@pytest.mark.parametrize("bad", [{"num_steps": 0}, {"reversion": 1.0}, {"num_draws": 0}])
def test_settings_without_meaning_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        errata.Config(**bad)
