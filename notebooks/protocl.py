# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # ProtoCL: Bayes over class prototypes
#
# Does a learner remember if it models how the data come about, class by class, rather than its network's weights?
# Section 6 of {cite:p}`kessler2023sequential` embeds an input with a network, gives every class a Gaussian prototype
# in the embedding {eq}`eq:protocl_model`, and updates prototypes and label frequencies exactly
# {eq}`eq:protocl_updates`. The embedding is trained by gradient, on the current task united with a memory of 200 points
# a task. The paper's text maximises the joint predictive {eq}`eq:protocl_predictive`, in which nothing keeps classes
# apart; like the released code we minimise $-\log p(y \mid z)$, the joint divided by its sum over classes. The paper
# reports 93.73 % on Split-MNIST and 82.73 % on Split-FMNIST (Table 1), and 33.25 % without memory.
#
# The release is the authors' code, [skezle/bayes_cl_posterior](https://github.com/skezle/bayes_cl_posterior). `protocl`
# below is the corrected method: one posterior shared by a batch, no label of the test set seen, dropout off in
# evaluation. `replay` has the same memory and no prototypes; `joint` trains on all tasks so far.

# %%
from IPython.display import display
from myst_nb import glue

from paper_lib import plots
from paper_lib.experiments import protocl, protocl_tuning
from paper_lib.notebook import from_notebook, shown

# %% tags=["parameters"]
dataset = "split_digits"  # split_digits, split_mnist, split_fmnist, split_cifar10, split_cifar100 or split_cifar10_100
scenario = "class_incremental"  # class_incremental, domain_incremental or task_incremental
preset = "quick"  # quick, or paper for the size of the paper
seeds = [0, 1, 2]  # a list, one number, "0,1,2" or "0:10"
device = "cpu"  # cpu or cuda:0
methods = ["protocl", "replay", "joint", "sgd"]  # or protocl_{paper_epochs,as_published,no_memory}
eval_split = "test"  # or validation, a tenth of the training data
epochs = None  # passes over each task, if not the preset's
batch_size = None  # points a step, if not the preset's
learning_rate = None  # of Adam, if not the preset's
weight_decay = None  # L2 term, if not the preset's
dropout = None  # rate, if not the preset's
memory_per_task = None  # points kept of each task, if not the preset's
evidence_mode = None  # cumulative, recompute_final or recompute_each_epoch, if not the preset's
class_prior = None  # counts or uniform, if not the preset's
forget = None  # factor on earlier evidence in every step, if not the preset's

# %%
config = from_notebook(protocl.Config, globals())
table = protocl.run(config)
curves = protocl.curves(table)

# %% mystnb={"image": {"alt": "Average accuracy over the tasks so far against the number of tasks learned. Joint training stays at the top, ProtoCL and replay fall a little with each task, SGD without memory falls to one over the number of tasks."}}
plots.accuracy_over_tasks(curves)

# %%
final = {row: values[:, -1].mean() for row, values in curves.items()}
num_classes = 10 if scenario == "class_incremental" else 2
assert "protocl" not in final or scenario != "class_incremental" or final["protocl"] > 3 / num_classes

# %% [markdown]
# ## At the paper's scale
#
# Ten seeds, the test set, the paper's networks and memory. Settings were chosen on validation data, and the number of
# epochs is one of them; `protocl_paper_epochs` has the best settings that keep the paper's fifty. `protocl_as_published`
# is the release's configuration: each place in a batch keeps its own posterior, dropout stays on, there is one hidden
# layer of 256 units, and a memory of 1,000 points is shared by the tasks so far. It differs from the release in two
# ways: evaluation labels update nothing, and the test set is scored, where the release's commands for these two data
# sets score a validation split.
#
# The paper defines its metric as the accuracy over all tasks at the end, $P_5$ {eq}`eq:metrics`. Its number without
# memory, 33.25, is instead what we find for the mean over the whole triangle of the accuracy matrix, which also counts
# how well early tasks were known early. We infer that ProtoCL's other numbers are such means too: both stand in every
# row, and the verdict is on the triangle mean: it `agrees` if the gap is at most the printed ± (`pm`) plus two of our
# standard errors. That is generous, as the paper calls its ± a standard error and ours are far smaller; `z` reads the ±
# as a standard deviation over ten seeds and counts the gap in standard errors of the difference, and `P_T z` counts
# that of $P_5$. Rows of fewer seeds or epochs than the paper's are marked `reduced` and carry no verdict.

# %%
comparison = {name: protocl.comparison(name) for name in ("split_mnist", "split_fmnist")}
for name, lines in comparison.items():
    display(name, shown(lines))
    glue(f"protocl_{name}", shown(lines), display=False)

# %% [markdown]
# Before these runs we wrote down what a corrected ProtoCL should reach: a little more than the printed number as a
# triangle mean on Split-MNIST, about as much on Split-FMNIST, a final accuracy to go with it, and seed by seed no less
# than replay of the same memory.

# %%
targets = {name: shown(protocl.targets(name)) for name in comparison}
for name, lines in targets.items():
    display(name, lines)
    glue(f"protocl_targets_{name}", lines, display=False)
for name, lines in comparison.items():
    assert lines.verdict[["protocl_paper_epochs", "protocl_as_published"]].eq("agrees").all(), name
    assert lines.P_T["protocl"] < lines.P_T["replay"] < lines.P_T["joint"], name
assert (comparison["split_fmnist"].z[["protocl_paper_epochs", "protocl_as_published"]] < -2).all()
assert all(
    (lines["P_T z"][["protocl_paper_epochs", "protocl_as_published"]] < -5).all() for lines in comparison.values()
)

# %% [markdown]
# The printed numbers are met on both sets by ProtoCL with the paper's epochs and as published, if they are triangle
# means and their ± is taken as it is called; by `z` the gap on Split-FMNIST is more than chance. As final accuracies,
# which the paper defines, they are not met: $P_5$ lies below them. Without memory nothing is remembered, and the
# triangle mean is near 33.25. Most of our own targets are missed. Replay of the same memory without prototypes
# remembers more on both sets. So here it is the memory that prevents forgetting, as the paper itself says, and a
# classifier does no worse without prototypes.

# %% mystnb={"image": {"alt": "Accuracy matrices on Split-MNIST, one a method: after each task in rows, on each task in columns. The diagonal is near 100 percent; below it accuracy falls with every task learned since, least for joint training and at once for SGD."}}
stored = protocl.paper_scale("split_mnist")
plots.accuracy_matrices(protocl.matrices(stored))

# %% mystnb={"image": {"alt": "Average accuracy over the tasks so far on Split-MNIST at the paper's scale, mean and standard deviation over ten seeds for every method, between the bounds of joint training and SGD."}}
plots.accuracy_over_tasks(protocl.curves(stored))

# %% [markdown]
# ## How the settings were chosen
#
# Forty-eight configurations a method and data set on validation data: 24 with 3 to 25 epochs, drawn from a grid over
# learning rate, dropout, weight decay, replay's weight and repetition, and for ProtoCL also forgetting and what it
# predicts with; then twice 12 around the best so far, which may also take the paper's 50. Of ProtoCL 12 more have 50
# epochs, so its budget is the larger one. Each dot is one; its score is the mean of $P_5$ and triangle mean. The best
# were trained on two more seeds, and the winners there are what the tables above report.

# %% mystnb={"image": {"alt": "Validation score against epochs a task on both data sets, a dot a trial. The best settings of either method are within a few points of one another from 3 to 50 epochs; some of ProtoCL fail. On both sets the best dots of replay lie above the best of ProtoCL."}}
tried = {name: {row: protocl_tuning.tried(row, name) for row in ("protocl", "replay")} for name in comparison}
for name in comparison:
    for row in tried[name]:
        display(f"{row}, {name}", shown(protocl_tuning.ranking(row, name, "final"), ".4g"))
plots.scores_by_epochs(tried)
