# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # What the released code does
#
# :::{admonition} Answer
# :class: tip
# **The paper:** describes ProtoCL in words that its released code does not follow everywhere.\
# **Here:** {glue:text}`num_choices` choices in training and prediction and two in evaluation are tested one by one. On Split-MNIST (3 seeds) "{glue:text}`worst`", as in the text, moves the final accuracy by {glue:text}`worst_change:+.1f` points; of the code's choices "{glue:text}`worst_code`" costs most ({glue:text}`worst_code_change:+.1f`).\
# **Verdict:** no single choice of the code brings the final accuracy to the printed 93.73. HIBNN's code chooses a head with knowledge that a class-incremental learner does not have.
# :::
#
# **Question.** The text and the released code of {term}`ProtoCL` part in several places, and so do those of
# {term}`HIBNN`. Which of these choices moves a number? One choice is changed at a time, and the {term}`final accuracy`
# tells:
#
# $$\begin{aligned}
# &P_5(\text{as corrected, one choice changed}) \\
# &{}- P_5(\text{as corrected}).
# \end{aligned}$$
#
# "As corrected" is ProtoCL with the settings of {doc}`/notebooks/protocl` and none of the choices below.
#
# Two choices concern evaluation. ProtoCL's code takes the labels of test points into its posterior once they are
# scored. HIBNN's code chooses one head for the whole test set of a task, by the entropy $H$ of its predictions, a mean
# over draws $w$ of the weights:
#
# $$\begin{aligned}
# \hat\jmath &= \arg\min_j \frac{1}{|G|} \sum_{x \in G} \mathbb{E}_w H\big[p(y \mid x, w, \text{head } j)\big], \\
# G &= \text{the test set of a task.}
# \end{aligned}$$
#
# So the grouping tells that all points of $G$ share a task. Class-incremental learning asks for $G = \{x\}$.

# %% tags=["hide-input"]
from myst_nb import glue

from paper_lib import plots_sampling as plots
from paper_lib import tables
from paper_lib.experiments import release_audit
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
dataset: str = "split_digits"  # split_digits, split_mnist or split_fmnist
preset: str = "quick"  # quick, or paper for the epochs of the paper
seeds: list[int] = [0, 1, 2]  # a list, one number, "0,1,2" or "0:3"; of HIBNN the first
device: str = "cpu"  # cpu or cuda:0
epochs: int = None  # passes of ProtoCL over each task, if not the preset's
memory_per_task: int = None  # points that ProtoCL keeps of each task, if not the preset's

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The quick run on digits, with dropout of 0.2, where the quick run of the chapter on ProtoCL has none: each choice by itself, a dot a seed. Most move little. Maximising the joint predictive draws all classes together.", "name": "fig-audit-live"}, "image": {"alt": "Final accuracy of ProtoCL as corrected and with each choice changed, a line each. All lie near each other but the joint predictive, which is at chance, and dropout in predictions, which is a few points lower."}}
selection = from_notebook(release_audit.LIVE, globals())
found = release_audit.run(selection)
plots.factors(found, release_audit.MEANING)

# %% tags=["hide-input", "nbval-ignore-output"]
Table(release_audit.shown(found))

# %% [markdown]
# ## At the paper's scale
#
# Split-MNIST, three seeds, six epochs a task, as the chapter {doc}`/notebooks/protocl` chose them for the corrected
# row. Nothing was tuned anew for a choice. The change is paired over seeds; with three of them, two standard errors are
# no proof.

# %% tags=["hide-input"]
for name, value in release_audit.numbers().items():
    glue(name, value, display=False)
Table(release_audit.shown(release_audit.stored()), source=release_audit.source())

# %% tags=["hide-input"]
Table(tables.verdicts(release_audit.CLAIMS))

# %% [markdown]
# ## Learning from the test set
#
# The posterior takes in each test batch, labels included, once it is scored, from the first task to the last. "Share of
# labels counted" is what the test labels make up of all labels that the posterior has counted at the end, in percent.
# The run is the quick one above, on digits.

# %% tags=["hide-input"]
method, state, stream = release_audit.learned(selection)
Table(release_audit.shown_learning(release_audit.learning_from_test(method, state, stream.held_out)))

# %% [markdown]
# ## A head for a group
#
# HIBNN on the same data, one seed, percent. "Own head" is the share of test points that get the head of their own task.
# "Accuracy of single draws" is the mean accuracy of one draw of the weights at a time. The expected entropy is the mean
# of the entropies of single draws of the weights; the predictive entropy is that of the mean over draws.

# %% tags=["hide-input"]
Table(release_audit.shown_heads(release_audit.run_heads(selection)), spec=".1f")

# %% [markdown]
# {glue:text}`heads_split_mnist` seeds of Split-MNIST and {glue:text}`heads_split_fmnist` of Split-FMNIST, on the
# network of HIBNN's code, one hidden layer of 100. They are reduced to 100 epochs of 1,000, at ten times the learning
# rate ({doc}`/notebooks/class_incremental` says how the rate was chosen). One seed of Split-MNIST has all 1,000.

# %% tags=["hide-input"]
Table(
    release_audit.shown_heads(release_audit.stored_heads()),
    spec=".1f",
    source=f"`{release_audit.HEAD_COMMAND}`, which trains nothing: after the runs of HIBNN in the chapter on Tables 1 and 2",
)

# %% [markdown]
# ## What agrees, what does not, why
#
# **Three of the code's choices move the final accuracy by a point or less.** They are a posterior for each place in a
# batch (the $i$-th point of every batch updates the $i$-th of several posteriors), a prior concentration that is not
# learned, and partial batches left out. One memory, shared out anew after each task, is larger while tasks are few, and
# helps: {glue:text}`memory_change:+.1f` points. The code's choices in the table together, with the code's own settings,
# are the row "as published" of {doc}`/notebooks/protocl`. It does not learn from test labels.
#
# **Dropout in predictions costs.** The release never leaves training mode, so each test point is embedded by a thinned
# network: {glue:text}`dropout_change:+.1f` points on Split-MNIST, with this book's dropout of 0.2.
#
# **The joint predictive failed as the loss.** The text maximises $p(z, y)$. It is as large where all classes share one
# point as where each has its own, so nothing keeps classes apart. With the settings of the other loss it ends at
# {glue:text}`joint_final:.1f` % (3 seeds). The code minimises $-\log p(y \mid z)$, which is small only where classes
# are apart.
#
# **Repeats of the memory help.** The text unites memory and task; the code repeats the memory until it is as large as
# the task. Without repeats: {glue:text}`repeats_change:+.1f` points. An update of the posterior after the encoder's
# step, as Algorithm 1 has it, changes {glue:text}`after_change:+.1f` points, and prototypes found anew from the final
# embeddings {glue:text}`anew_change:+.1f`.
#
# **On digits the leak is small.** In the run above taking test labels in changes no accuracy by a tenth of a point.
# They are taken in at the end there, and not between tasks as in the release. The posterior has counted every training
# point once an epoch, so test labels are a small share of what it knows. Fewer epochs make the share larger.
#
# **One head for a whole test set raises the accuracy** (n = {glue:text}`heads_split_mnist`, 100 of 1,000 epochs).
# Chosen for a whole task at once, a head is right or wrong for all of its points. Chosen for each point, it is right
# for fewer than half of the points, on all three data sets. On Split-MNIST HIBNN ends at
# {glue:text}`head_task_split_mnist` with a head for a group and at {glue:text}`head_point_split_mnist` with one for a
# point, on Split-FMNIST at {glue:text}`head_task_split_fmnist` and {glue:text}`head_point_split_fmnist`, by the
# predictive entropy that the paper names. By the expected entropy, which its code has, it is
# {glue:text}`head_code_split_mnist` and {glue:text}`head_code_split_fmnist` with a head for a group. The paper marks
# HIBNN's row with a star and says that predictive entropy is used; it does not say that the test points come in groups.
#
# **Not tested.** Other combinations of choices; what the release's dropout of 0.1 costs; training on between
# evaluations that take in test labels.
#
# ## Try it
#
# 1. Set `epochs = 2`. Does the leak grow?
#
# :::{dropdown} Answer
# Yes. The posterior counts each training point twice and not twenty times, so test labels become 7 % of what it has
# counted. The accuracy moves by a tenth of a point.
# :::
#
# 2. Set `memory_per_task = 10`. Which choice costs most then, apart from the joint predictive?
#
# :::{dropdown} Answer
# Dropout in predictions and a memory that is not repeated: nearly 4 points each.
# :::
#
# 3. Set `seeds = [1]`. Is HIBNN's head for a group right for another seed?
#
# :::{dropdown} Answer
# For three tasks of five, and as published for four. A head for a group is right or wrong for all points of a task, so
# the final accuracy moves in steps of nearly 20 points. A head for a point is right for less than half of them.
# :::
