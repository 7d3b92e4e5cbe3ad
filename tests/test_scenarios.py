"""Scenarios: which heads serve which, by what a decision can know; recursive Bayes against lstsq and scipy."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from paper_lib.analysis.scenarios import LAYOUTS, Config, examples, findings, heads, layouts, recursion, refusal
from paper_lib.data.stream import SCENARIOS, make_stream
from paper_lib.rng import generator

SPECS = {scenario: make_stream("split_digits", scenario).spec for scenario in SCENARIOS}
SMALL = Config(dataset="split_digits")


def answers(layout, scenario):
    """Whether what a decision can know fixes the label, by going through all classes.

    Of heads that do not compete only the winner inside one head is known, and which head to read only from the task.
    """
    apart, labels = not layout.competing_units().all(), {}
    for task, units in enumerate(layout.task_units):
        for place, unit in enumerate(units):
            known = (place if apart else unit, task if scenario == "task_incremental" else None)
            label = (task, place) if scenario == "class_incremental" or apart else place
            labels.setdefault(known, set()).add(label)
    return all(len(possible) == 1 for possible in labels.values())


@pytest.mark.parametrize("layout, scenario", list(itertools.product(LAYOUTS, SCENARIOS)))
def test_a_layout_serves_what_its_units_can_answer(layout, scenario):
    spec = SPECS[LAYOUTS[layout]]
    assert (refusal(spec, scenario) == "") == answers(spec, scenario)


def test_tables_say_what_the_appendix_says():
    table = layouts(SPECS).set_index("layout")
    assert (table["task-incremental"] == "yes").all()
    assert list(table.loc["a head a task"] == "yes") == [True, False, False]
    assert table.loc["one head, a unit a class", "class-incremental"] == "yes"
    facts = heads(SPECS)
    assert list(facts["output units"]) == [10, 2, 10]
    assert list(facts["heads"]) == [5, 1, 1]
    assert list(facts["chance"]) == ["50 %", "50 %", "10 %"]


def test_images_are_of_the_classes_that_they_are_labelled_with():
    shown = examples(SMALL)
    stream = make_stream("split_digits", "class_incremental")
    assert shown.images.shape == (2, 2, 3, 8, 8)
    for task, place in itertools.product(range(2), range(2)):
        mine = stream.train[task].x[stream.train[task].y == 2 * task + place, 0].numpy()
        assert all((mine == image).all((1, 2)).any() for image in shown.images[task, place])
    assert shown.labels == (((0, 1), (0, 1)), ((0, 1), (0, 1)), ((0, 1), (2, 3)))
    assert shown.names == (("0", "1"), ("2", "3"))


def test_without_the_paper_s_images_digits_are_shown(monkeypatch, tmp_path):
    monkeypatch.setenv("PAPER_LIB_DATA", str(tmp_path))
    assert examples(Config()).images.shape[-2:] == (8, 8)


def test_sequence_ends_where_normal_equations_and_the_joint_density_end():
    config = Config(num_tasks=4, num_points=6)
    result = recursion(config)
    # The data, again from their definition; the posterior by ridge rows and lstsq; the evidence by scipy.
    x = np.linspace(-2, 2, 24)
    phi = np.stack([np.ones(24), x], -1)
    beta = config.noise_precision
    precision = np.eye(2) + beta * phi.T @ phi
    np.testing.assert_allclose(result.sequential.cov[-1], np.linalg.inv(precision), atol=1e-12)
    np.testing.assert_allclose(result.sequential.mean[-1], result.batch.mean, atol=1e-12)
    total = result.log_evidence.sum()
    assert total == pytest.approx(result.batch_log_evidence, abs=1e-9)
    noise = torch.randn(4, 6, generator=generator(config.seed, "recursion"), dtype=torch.float64).flatten().numpy()
    y = phi @ result.truth + noise / np.sqrt(beta)
    rows, targets = np.vstack([np.eye(2), np.sqrt(beta) * phi]), np.concatenate([np.zeros(2), np.sqrt(beta) * y])
    np.testing.assert_allclose(result.batch.mean, np.linalg.lstsq(rows, targets, rcond=None)[0], atol=1e-12)
    joint = stats.multivariate_normal(np.zeros(24), phi @ phi.T + np.eye(24) / beta)
    assert total == pytest.approx(joint.logpdf(y), abs=1e-9)


def test_findings_say_how_far_apart_the_two_ends_are():
    result = recursion(Config())
    assert "less than 1e-9" in findings(result)
    shifted = result._replace(batch_log_evidence=result.batch_log_evidence + 1)
    assert "less than 1e-9" not in findings(shifted)


@pytest.mark.parametrize("bad", [{"dataset": "split_cifar"}, {"num_tasks": 0}, {"noise_precision": 0.0}])
def test_settings_without_meaning_are_named(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        Config(**bad)
