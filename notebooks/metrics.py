# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What is measured
#
# One number for a learner of many tasks hides what it forgot. Appendix B of {cite:p}`kessler2023sequential` defines the
# average performance $P_k$ and the average forgetting $F_k$ {eq}`eq:metrics`, and calls $P_5$ the main metric used
# throughout. Some numbers of Table 1 fit neither: they look like means over the whole triangle of the accuracy matrix.
# This chapter shows the three side by side.

# %%
import numpy as np

from paper_lib import plots
from paper_lib.experiments import metrics
from paper_lib.metrics import average_accuracy, final_accuracy, learning_accuracy, matrices_by_method
from paper_lib.metrics import complete_forgetting as forget_all
from paper_lib.notebook import from_notebook

# %% tags=["parameters"]
dataset = "split_digits"  # or split_mnist, split_fmnist; domain- or task-incremental also toy_gaussians, toy_pan
scenario = "class_incremental"  # class_incremental, domain_incremental or task_incremental
preset = "quick"  # quick or paper
seeds = [0, 1, 2]  # a list, one number, "0,1,2" or "0:10"
device = "cpu"  # cpu or cuda:0

# %%
config = from_notebook(metrics.Config, globals())
matrices = matrices_by_method(metrics.run(config))

# %% [markdown]
# ## By hand
#
# A learner that is perfect on each new task and loses half of a task with every task that follows has the matrix
# $a = ((1), (\tfrac12, 1), (0, \tfrac12, 1))$, a row a task trained. $F_1$ is undefined: there is nothing to forget.

# %%
metrics.scores(metrics.BY_HAND)

# %% [markdown]
# ## A small stream
#
# Each panel is the matrix of one learner. Of each row SGD keeps little but the entry of the task just learned; replay
# keeps a part of the rest. Joint training on all tasks so far is the multi-task bound; a network for each task, kept as
# it was when the task was learned, the single-task bound.

# %% mystnb={"image": {"alt": "Four triangular heat maps of accuracy on each task after each task. SGD: only the diagonal is high. Replay: entries below the diagonal fall a little with each task. Joint training and a network a task are high everywhere."}}
plots.accuracy_matrices(matrices)

# %% mystnb={"image": {"alt": "Average accuracy over the tasks so far against tasks learned. A network a task and joint training stay near the top, replay declines slowly, SGD falls as one over the number of tasks."}}
final = {name: final_accuracy(a).mean() for name, a in matrices.items()}
assert final["joint"] > final["replay"] > final["sgd"]
assert learning_accuracy(matrices["single_task"]).mean() >= final["joint"]
plots.accuracy_over_tasks({name: average_accuracy(a) for name, a in matrices.items()})

# %% [markdown]
# ## Why 33 % is complete forgetting
#
# With five tasks a learner that knows its last task only, with accuracy $a$, has one entry in each row of the matrix.
# So $P_5 = a / 5$, at most 20 %, and the triangle mean is $5 a / 15$, at most 33.3 %. Three printed numbers, called
# "mean accuracies across all tasks" and "average accuracy", fit the second: each gives an accuracy just below 100 % on
# the task just learned, as binary digits and clothes have, and a $P_5$ below 20 %.

# %%
metrics.identified()

# %% mystnb={"image": {"alt": "Triangle mean and final accuracy of a learner that forgets all, against its accuracy on the task just learned: two lines, to 33.3 and to 20 percent at full accuracy. Three printed numbers of the paper lie on the upper line at accuracies of 98 to 100 percent, far above the lower one."}}
single = np.linspace(95, 100, 51)
figure = plots.complete_forgetting(
    single,
    {
        "triangle mean": [forget_all(a, 5).triangle_mean for a in single],
        "$P_5$": [forget_all(a, 5).final_accuracy for a in single],
    },
    {name: (row.just_learned, row.printed) for name, row in metrics.identified().iterrows()},
)
figure

# %% [markdown]
# ## What a standard error cannot be
#
# The table calls its second numbers standard errors over 10 seeds. The variance of accuracies between 0 and 100 is
# largest with half of them at either end, which makes the standard error of ten at most $50 / \sqrt{9} = 16.67$. Three
# printed ones are larger. A search over random sets of ten accuracies finds the bound and nothing above it.

# %% mystnb={"image": {"alt": "Standard error over ten seeds against the gap between two halves of five seeds: a straight line to 16.67 at a gap of 100 points, where a dashed line marks the largest possible. Three printed values, 16.96, 18.56 and 20.21, lie above it."}}
bound, found = metrics.largest_standard_error()
assert found <= bound + 1e-9 and min(metrics.PRINTED_SE.values()) > bound
plots.sd_bound(np.linspace(0, 100, 101), bound, metrics.PRINTED_SE)

# %% [markdown]
# **What agrees.** $P_k$ and $F_k$ are as defined. **What does not.** Rows of Table 1 seem to mix two metrics, and its
# spreads are not all standard errors. Where this book sets runs beside that table, it states $P_T$ and the triangle
# mean, sd, se and the number of seeds.
# **What to note.** Joint training bounds a learner only if its model can do all tasks, see
# {doc}`/notebooks/misspecification`; and a learner that learns nothing forgets nothing, so $F_k$ never stands alone.
