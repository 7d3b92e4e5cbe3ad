"""Published evaluations that a method's own predictions cannot be: what they see, they must be shown.

HIBNN's head is chosen in its release once for the whole test set of a task, by the expected entropy, so the grouping of
the test points tells that they share a task; and what counts as correct is a share of single draws. Its own predictions
choose a head for each point.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import torch

from paper_lib.data.stream import Task
from paper_lib.methods.hibnn import HIBNN, State, choose

RULES, ENTROPIES = ("task", "point"), ("expected", "predictive")


def head_selection(method: HIBNN, state: State, groups: Sequence[Task]) -> pd.DataFrame:
    """Accuracy by how the head is chosen; the release has ``task``, ``expected`` and ``accuracy_of_draws``.

    Args:
        method: configuration.
        state: after the tasks of ``groups``, and maybe further ones.
        groups: test points of one task each.

    Returns:
        A line for each rule (one head a ``task``, or a ``point``), entropy, seed and group, with the columns ``rule,
        entropy, seed, task_tested, accuracy, accuracy_of_draws, own_head``: the last is the share of points that the
        head of their task is chosen for, and the last but one the mean accuracy of single draws.

    Raises:
        ValueError: the stream names tasks, so no head is chosen.
    """
    if state.spec.scenario == "task_incremental":
        raise ValueError("scenario='task_incremental' names the task of a point, and no head is chosen")
    lines = []
    for group in groups:
        found, labels = method.by_head(state, group.x), group.y[None, :, None]
        for rule in RULES:
            for entropy in ENTROPIES:
                score = found.uncertainty(entropy)
                if rule == "task":
                    score = score.mean(1, keepdim=True).expand_as(score)
                head = score.argmin(-1)
                hits = choose(found.log_prob, head).argmax(-1) == group.y
                votes = choose(found.votes, head).take_along_dim(labels, dim=-1).squeeze(-1)
                shares = torch.stack([hits.float(), votes, (head == group.index).float()]).mean(-1).T
                lines += [
                    (rule, entropy, seed, group.index + 1, *numbers)
                    for seed, numbers in zip(state.seeds, shares.tolist(), strict=True)
                ]
    columns = ["rule", "entropy", "seed", "task_tested", "accuracy", "accuracy_of_draws", "own_head"]
    return pd.DataFrame(lines, columns=columns)
