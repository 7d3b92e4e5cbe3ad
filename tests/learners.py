"""What tests of several methods do with them: learn the first tasks of a stream, and look into states."""

import torch

from paper_lib.data.stream import Spec


def learned(method, stream, seeds=(0, 1), num_tasks=2, report=None):
    """The states after each of the first tasks, and what the last task reported."""
    state = method.init(stream.spec, seeds, "cpu")
    states = []
    for task in stream.train[:num_tasks]:
        state, info, _ = method.learn(state, task, *([report] if report else []))
        states.append(state)
    return states, info


def tensors(tree):
    """The tensors of a state."""
    if isinstance(tree, torch.Tensor):
        return [tree]
    if isinstance(tree, tuple) and not isinstance(tree, Spec):
        return [t for part in tree for t in tensors(part)]
    return []


def copied(tree):
    """A copy of a state, as a checkpoint would make it."""
    if isinstance(tree, torch.Tensor):
        return tree.clone()
    if isinstance(tree, tuple):
        parts = [copied(part) for part in tree]
        return type(tree)(*parts) if hasattr(tree, "_fields") else tuple(parts)
    return tree
