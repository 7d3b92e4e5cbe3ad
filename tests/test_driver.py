"""The driver: what it evaluates, what it hands to a method, and that an interrupted run ends with the same numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pytest
import torch

from paper_lib import driver, training
from paper_lib.data.stream import SCENARIOS, Spec, make_stream
from paper_lib.methods import Learned, Method, unreported
from paper_lib.methods.fromp import FROMP
from paper_lib.methods.protocl import ProtoCL
from paper_lib.methods.replay import Replay, joint
from paper_lib.methods.vcl import VCL

SEEDS = (0, 2)
REPLAY = Replay(hidden=(8,), epochs=3, batch_size=64, dropout=0.2, memory_per_task=20)
PROTOCL = ProtoCL(
    hidden=(8,), embedding_dim=4, epochs=3, batch_size=64, dropout=0.2, learning_rate=1e-3, memory_per_task=20
)
SMALL_VCL = VCL(hidden=(8,), epochs=3, batch_size=256, num_samples=2, num_samples_predict=3, likelihood_start=False)
METHODS = {
    "replay": REPLAY,
    "frozen trunk": replace(REPLAY, train_trunk=False),
    "joint": joint(hidden=(8,), epochs=3, batch_size=256),
    "protocl": PROTOCL,
    "per_slot": replace(PROTOCL, posterior="per_slot", memory_total=100, predict_with_dropout=True),
    "recompute_final": replace(PROTOCL, evidence_mode="recompute_final"),
    "recompute_each_epoch": replace(PROTOCL, evidence_mode="recompute_each_epoch", evidence_after_step=True),
    "vcl": replace(SMALL_VCL, restart=True),
    "vcl_coreset": replace(SMALL_VCL, coreset_per_task=20),
    "fromp": FROMP(hidden=(8,), epochs=3, learning_rate=1e-3, memory_per_task=20),
}


class Killed(Exception):
    """What stands for a kill."""


@dataclass(frozen=True, repr=False)
class KilledAt:
    """A method that is killed inside a task, after so many reports in it."""

    inner: Method
    task: int
    reports: int
    error: type[BaseException] = Killed

    def __repr__(self):
        return repr(self.inner)  # its checkpoints are those of the method that goes on

    def init(self, *arguments):
        return self.inner.init(*arguments)

    def learn(self, state, task, report=unreported):
        left = self.reports

        def counted(running, fraction):
            nonlocal left
            report(running, fraction)
            left -= 1
            if task.index == self.task and left == 0:
                raise self.error

        return self.inner.learn(state, task, counted)

    def predict(self, *arguments):
        return self.inner.predict(*arguments)


@pytest.fixture(scope="module")
def digits():
    return make_stream("split_digits")


def assert_same(one, other):
    for name in driver.SCORES:
        np.testing.assert_array_equal(one.scores[name], other.scores[name])
    assert one.info.keys() == other.info.keys()
    for name in one.info:
        for a, b in zip(one.info[name], other.info[name], strict=True):
            np.testing.assert_array_equal(a, b)
    for kept, others in zip(one.kept, other.kept, strict=True):
        assert kept.keys() == others.keys()
        for name in kept:
            np.testing.assert_array_equal(kept[name], others[name])


@pytest.mark.parametrize("name", METHODS)
def test_a_run_resumed_inside_a_task_has_the_numbers_of_an_uninterrupted_one(name, digits, tmp_path):
    method, checkpoint = METHODS[name], tmp_path / "run.npz"
    whole = driver.run(method, digits, SEEDS)
    for task, reports in ((0, 1), (2, 2), (2, 1), (3, 3)):  # the third is killed after one more epoch of the same task
        with pytest.raises(Killed):
            driver.run(KilledAt(method, task, reports), digits, SEEDS, checkpoint=checkpoint, checkpoint_seconds=0)
        kept = [driver.kept_path(checkpoint, t).name for t, arrays in enumerate(whole.kept[:task]) if arrays]
        assert sorted(p.name for p in tmp_path.iterdir()) == ["run.npz", *kept]
    learned = []
    resumed = driver.run(Watched(method, learned), digits, SEEDS, checkpoint=checkpoint)
    assert_same(resumed, whole)
    # It went on from its last checkpoint. None is written at the last epoch of a task, without coresets the third.
    assert learned == [(3, 3 if name == "vcl_coreset" else 2), (4, 0)]


@dataclass(frozen=True, repr=False)
class Watched:
    """A method that notes the tasks that it learns, and the epoch that it begins at."""

    inner: Method
    seen: list

    def __repr__(self):
        return repr(self.inner)

    def init(self, *arguments):
        return self.inner.init(*arguments)

    def learn(self, state, task, report=unreported):
        self.seen.append((task.index, int(state.at.epoch)))
        return self.inner.learn(state, task, report)

    def predict(self, *arguments):
        return self.inner.predict(*arguments)


@dataclass(frozen=True, repr=False)
class Keeping:
    """A method that keeps a curve, after every second task."""

    inner: Method

    def __repr__(self):
        return repr(self.inner)

    def init(self, *arguments):
        return self.inner.init(*arguments)

    def learn(self, state, task, report=unreported):
        learned = self.inner.learn(state, task, report)
        return learned if task.index % 2 else learned._replace(kept={"curve": learned.info["loss"] + task.index})

    def predict(self, *arguments):
        return self.inner.predict(*arguments)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_resumed_inside_an_epoch_has_the_numbers_of_an_uninterrupted_one(name, digits, tmp_path, monkeypatch):
    method, checkpoint = replace(METHODS[name], batch_size=50, epochs=2), tmp_path / "run.npz"
    monkeypatch.setattr(training, "STEPS_A_TAPE", 2)
    whole = driver.run(method, digits, SEEDS)
    monkeypatch.setattr(training, "REPORT_SECONDS", 0)
    for task, reports in ((0, 3), (1, 8), (1, 1)):  # the third goes on inside an epoch and is killed in it again
        with pytest.raises(Killed):
            driver.run(KilledAt(method, task, reports), digits, SEEDS, checkpoint=checkpoint, checkpoint_seconds=0)
    with np.load(checkpoint) as stored:
        assert stored["state/.at.step"] > 0
    assert_same(driver.run(method, digits, SEEDS, checkpoint=checkpoint), whole)


@pytest.mark.parametrize("name", ["replay", "protocl", "vcl", "fromp"])
def test_a_seed_that_diverges_is_said_to_and_changes_nothing_in_the_others(name, digits):
    method = METHODS[name]
    whole = driver.run(method, digits, SEEDS)
    broken = driver.run(Diverging(method, seed=0, task=2), digits, SEEDS)
    assert whole.diverged.tolist() == [-1, -1] and broken.diverged.tolist() == [2, -1]
    for metric, scores in broken.scores.items():
        np.testing.assert_array_equal(scores[1], whole.scores[metric][1])
        np.testing.assert_array_equal(scores[0, :2], whole.scores[metric][0, :2])
        assert np.isnan(scores[0, 2:]).all()
    np.testing.assert_array_equal(broken.info["loss"][4][1], whole.info["loss"][4][1])


@dataclass(frozen=True)
class Diverging:
    """A method of which one seed meets a task with parameters that are no numbers."""

    inner: Method
    seed: int
    task: int

    def init(self, *arguments):
        return self.inner.init(*arguments)

    def learn(self, state, task, report=unreported):
        if task.index == self.task:
            bad = {place: t.clone() for place, t in driver.named_tensors(state)}
            for place, tensor in bad.items():
                if place.startswith((".params", ".posterior")):
                    tensor[self.seed] = torch.nan
            state = driver._rebuilt(state, bad)
        return self.inner.learn(state, task, report)

    def predict(self, *arguments):
        return self.inner.predict(*arguments)


def test_a_label_of_probability_zero_stays_infinite(digits, tmp_path):
    @dataclass(frozen=True)
    class Certain(Uniform):
        def predict(self, state, x, task_id=None):
            log_probs = torch.full((len(state[0]), len(x), state[0].shape[1]), -torch.inf)
            log_probs[..., 0] = 0.0
            return log_probs

    for checkpoint in (tmp_path / "run.npz",) * 2:  # the second time from the checkpoint
        outcome = driver.run(Certain([]), digits, (0,), checkpoint=checkpoint)
        assert np.isposinf(outcome.scores["nll"][0][np.tri(5, dtype=bool)]).all()
        assert outcome.diverged.tolist() == [-1]


@pytest.mark.parametrize("before", [False, True])
def test_a_run_leaves_the_treatment_of_denormals_as_it_was(before, digits):
    def are_flushed():
        return bool(torch.full((3,), 1e-40).mul(1.0).view(torch.int32).eq(0).all())

    class Flushing(Uniform):
        def learn(self, state, task, report=unreported):
            assert are_flushed()
            if task.index == 1:
                raise Killed
            return super().learn(state, task, report)

    torch.set_flush_denormal(before)
    try:
        with pytest.raises(Killed):
            driver.run(Flushing([]), digits, (0,))
        assert are_flushed() is before
    finally:
        torch.set_flush_denormal(False)


def test_an_interrupt_saves_the_last_state_that_was_copied(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "COPY_SECONDS", 0)
    checkpoint, learned = tmp_path / "run.npz", []
    whole = driver.run(REPLAY, digits, SEEDS)
    for task, reports in ((0, 1), (0, 1), (3, 2)):
        with pytest.raises(KeyboardInterrupt):
            driver.run(KilledAt(REPLAY, task, reports, KeyboardInterrupt), digits, SEEDS, checkpoint=checkpoint)
    assert_same(driver.run(Watched(REPLAY, learned), digits, SEEDS, checkpoint=checkpoint), whole)
    assert learned == [(3, 2), (4, 0)]
    monkeypatch.setattr(driver, "predict", interrupted)  # while task 1 is tested: nothing of it counts twice
    checkpoint.unlink()
    with pytest.raises(KeyboardInterrupt):
        driver.run(REPLAY, digits, SEEDS, checkpoint=checkpoint)
    monkeypatch.undo()
    assert_same(driver.run(REPLAY, digits, SEEDS, checkpoint=checkpoint), whole)


def interrupted(*arguments):
    raise KeyboardInterrupt


def test_what_a_task_keeps_is_written_once_and_read_again(digits, tmp_path):
    checkpoint = tmp_path / "run.npz"
    whole = driver.run(Keeping(REPLAY), digits, SEEDS)
    assert [sorted(kept) for kept in whole.kept] == [["curve"], [], ["curve"], [], ["curve"]]
    np.testing.assert_array_equal(whole.kept[2]["curve"], whole.info["loss"][2] + 2)
    with pytest.raises(Killed):
        driver.run(Keeping(KilledAt(REPLAY, 2, 2)), digits, SEEDS, checkpoint=checkpoint, checkpoint_seconds=0)
    first = driver.kept_path(checkpoint, 0)
    assert sorted(tmp_path.iterdir()) == [checkpoint, first]
    written = first.stat().st_ino, first.stat().st_mtime_ns
    resumed = driver.run(Keeping(REPLAY), digits, SEEDS, checkpoint=checkpoint, checkpoint_seconds=0)
    assert (first.stat().st_ino, first.stat().st_mtime_ns) == written
    assert_same(resumed, whole)
    assert_same(driver.run(Keeping(REPLAY), digits, SEEDS, checkpoint=checkpoint), whole)
    first.unlink()
    with pytest.raises(ValueError, match=r"is not a checkpoint of this run .*task0"):
        driver.run(Keeping(REPLAY), digits, SEEDS, checkpoint=checkpoint)


def test_a_finished_checkpoint_gives_the_outcome_without_learning(digits, tmp_path):
    checkpoint, seen = tmp_path / "run.npz", []
    whole = driver.run(REPLAY, digits, SEEDS, checkpoint=checkpoint)
    assert_same(driver.run(Watched(REPLAY, seen), digits, SEEDS, checkpoint=checkpoint), whole)
    assert seen == []


def test_scores_are_those_of_each_pair_of_a_task_trained_and_a_task_tested(digits):
    outcome = driver.run(REPLAY, digits, SEEDS)
    state = REPLAY.init(digits.spec, SEEDS, "cpu")
    for trained, task in enumerate(digits.train):
        state, *_ = REPLAY.learn(state, task)
        for tested, held_out in enumerate(digits.held_out[: trained + 1]):
            with torch.no_grad():
                log_probs = REPLAY.predict(state, held_out.x).numpy()
            accuracy = (log_probs.argmax(-1) == held_out.y.numpy()).mean(-1)
            nll = -log_probs[:, np.arange(len(held_out.y)), held_out.y].mean(-1)
            np.testing.assert_allclose(outcome.scores["accuracy"][:, trained, tested], accuracy, atol=1e-6)
            np.testing.assert_allclose(outcome.scores["nll"][:, trained, tested], nll, rtol=1e-4)
    for scores in outcome.scores.values():
        assert scores.shape == (2, 5, 5)
        assert np.isnan(scores[:, ~np.tri(5, dtype=bool)]).all() and np.isfinite(scores[:, np.tri(5, dtype=bool)]).all()
    assert [v.shape for v in outcome.info["loss"]] == [(2, 3)] * 5
    assert (outcome.seconds > 0).all()


@dataclass(frozen=True)
class Uniform:
    """Predicts all units alike, learns nothing, and notes what it is asked."""

    asked: list

    def init(self, spec, seeds, device):
        return (torch.zeros(len(seeds), spec.num_units),)

    def learn(self, state, task, report=unreported):
        self.asked.append(("learn", task.index))
        return Learned(state, {})

    def predict(self, state, x, task_id=None):
        self.asked.append(("predict", task_id))
        return state[0][:, None].expand(-1, len(x), -1).log_softmax(-1)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_task_is_named_in_task_incremental_streams_alone(scenario):
    asked = []
    driver.run(Uniform(asked), make_stream("split_digits", scenario), (0,))
    named = scenario == "task_incremental"
    expected = []
    for t in range(5):
        expected += [("learn", t), *[("predict", j if named else None) for j in range(t + 1)]]
    assert asked == expected


@pytest.mark.parametrize("name", METHODS)
def test_predicting_changes_nothing_in_the_state(name, digits):
    method = METHODS[name]
    state, *_ = method.learn(method.init(digits.spec, SEEDS, "cpu"), digits.train[0])
    before = {place: t.clone() for place, t in driver.named_tensors(state)}
    first = driver.predict(method, state, digits.held_out[0].x)
    second = driver.predict(method, state, digits.held_out[0].x)
    assert torch.equal(first, second)
    assert all(torch.equal(before[place], t) for place, t in driver.named_tensors(state))


@dataclass(frozen=True)
class Wrong:
    """Replay that gives back something of another shape."""

    change: Callable

    def init(self, *arguments):
        return REPLAY.init(*arguments)

    def learn(self, *arguments):
        state, info, kept = REPLAY.learn(*arguments)
        return state, self.change(info), kept

    def predict(self, *arguments):
        return self.change(REPLAY.predict(*arguments))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x if isinstance(x, dict) else x[:1], r"predict gave log-probabilities \(1, .* is \(2, "),
        (lambda x: x if isinstance(x, dict) else x.mT, r"predict gave log-probabilities \(2, 10, "),
        (
            lambda x: {"n": torch.tensor(3.0)} if isinstance(x, dict) else x,
            r"info 'n' of shape \(\); its first axis must",
        ),
        (
            lambda x: {"loss": x["loss"].mT} if isinstance(x, dict) else x,
            r"info 'loss' of shape \(3, 2\); .* be 2 seeds",
        ),
    ],
)
def test_what_would_be_stored_as_another_seed_s_is_refused_after_the_first_task(change, message, digits, tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(ValueError, match=message):
        driver.run(Wrong(change), digits, SEEDS, checkpoint=path)
    assert not path.exists()  # the method that is put right goes on from nothing wrong


def test_predictions_in_chunks_are_those_of_all_points(digits):
    state, x = REPLAY.init(digits.spec, SEEDS, "cpu"), digits.held_out[0].x
    torch.testing.assert_close(driver.predict(REPLAY, state, x, chunk=7), REPLAY.predict(state, x).detach())


def test_a_checkpoint_holds_the_whole_state(digits, tmp_path):
    state, *_ = REPLAY.learn(REPLAY.init(digits.spec, SEEDS, "cpu"), digits.train[0])
    scores = {name: np.full((2, 5, 5), np.nan) for name in driver.SCORES}
    outcome = driver.Outcome(scores, {"loss": [np.ones((2, 3))]}, [{}], np.full(5, np.nan))
    driver.save(tmp_path / "deep" / "run.npz", 1, state, outcome, "this run")
    template = REPLAY.init(digits.spec, SEEDS, "cpu")
    next_task, again, stored = driver.load(tmp_path / "deep" / "run.npz", template, "cpu", "this run")
    assert next_task == 1 and again.spec == state.spec and again.seeds == SEEDS
    for (place, a), (other, b) in zip(driver.named_tensors(state), driver.named_tensors(again), strict=True):
        assert place == other and a.dtype == b.dtype and torch.equal(a, b)
    np.testing.assert_array_equal(stored.info["loss"], outcome.info["loss"])


class Counting(NamedTuple):
    """A state that no checkpoint could give back."""

    spec: Spec
    seeds: tuple[int, ...]
    counts: object


@pytest.mark.parametrize("counts", [[torch.zeros(2)], {"all": torch.zeros(2)}, np.zeros(2), 3])
def test_a_state_that_a_checkpoint_would_lose_is_refused_before_training(counts, digits):
    class Tally:
        def init(self, spec, seeds, device):
            return Counting(spec, tuple(seeds), counts)

    with pytest.raises(TypeError, match=r"tensors in tuples, frozen settings and its seeds; at \.counts it has"):
        driver.run(Tally(), digits, SEEDS)


def damage_cut(path):
    path.write_bytes(path.read_bytes()[:-200])


def damage_flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def damage_empty(path):
    path.write_bytes(b"")


def damage_scores(path):
    with np.load(path) as stored:
        arrays = {k: v for k, v in stored.items() if not k.startswith("scores/")}
    np.savez(path, **arrays)


@pytest.mark.parametrize("damage", [damage_cut, damage_flip, damage_empty, damage_scores])
def test_a_damaged_checkpoint_is_an_error_that_names_the_file(damage, digits, tmp_path):
    path = tmp_path / "run.npz"
    with pytest.raises(Killed):
        driver.run(KilledAt(REPLAY, 1, 1), digits, SEEDS, checkpoint=path, checkpoint_seconds=0)
    damage(path)
    with pytest.raises(ValueError, match=r"run\.npz is not a checkpoint of this run .*remove it to start afresh"):
        driver.run(REPLAY, digits, SEEDS, checkpoint=path)


def test_a_checkpoint_of_another_method_is_refused(digits, tmp_path):
    path = tmp_path / "run.npz"
    driver.run(REPLAY, digits, SEEDS, checkpoint=path)
    with pytest.raises(ValueError, match="is not a checkpoint of this run"):
        driver.run(PROTOCL, digits, SEEDS, checkpoint=path)
    for method, seeds in ((replace(REPLAY, learning_rate=0.1), SEEDS), (REPLAY, tuple(s + 1 for s in SEEDS))):
        with pytest.raises(ValueError, match=r"it is of Replay.*, not of Replay"):
            driver.run(method, digits, seeds, checkpoint=path)
