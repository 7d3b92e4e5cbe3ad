# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Class-incremental learning: Tables 1 and 2
#
# :::{admonition} Answer
# :class: tip
# **The paper:** ProtoCL is on par with or better than S-FSVI, on Split-MNIST with 93.73 ± 1.05 against 92.94 ± 0.17 %, and far above VCL with a coreset, 52.98 ± 18.56 % (Table 1).\
# **Here:** final accuracies on Split-MNIST: S-FSVI {glue:text}`final_sfsvi:.1f` % (n = {glue:text}`n_sfsvi`), ProtoCL {glue:text}`final_protocl:.1f` % tuned and {glue:text}`final_protocl_paper_epochs:.1f` % with the paper's 50 epochs, VCL with a coreset {glue:text}`final_vcl_coreset:.1f` %; tuned replay, which the tables lack, {glue:text}`final_replay:.1f` %.\
# **Verdict:** on par with S-FSVI: {glue:text}`verdict_ranking` (tuned ProtoCL less S-FSVI {glue:text}`protocl_over_sfsvi_split_mnist` points, on Split-FMNIST {glue:text}`protocl_over_sfsvi_split_fmnist`). Printed numbers on Split-MNIST: ProtoCL's {glue:text}`verdict_protocl`, as a triangle mean; S-FSVI's {glue:text}`verdict_sfsvi`; VCL's with a coreset {glue:text}`verdict_vcl_coreset`. With one budget of trials for each, S-FSVI leads on Split-MNIST, ProtoCL on Split-FMNIST.
# :::
#
# **Question.** Which learner still knows all classes after the last task? Tables 1 and 2 of
# {cite:p}`kessler2023sequential` compare {term}`VCL`, {term}`HIBNN`, {term}`FROMP`, {term}`S-FSVI` and {term}`ProtoCL`
# in {term}`class-incremental learning`, by
#
# $$\begin{aligned} P_T &= \frac{1}{T} \sum_{j=1}^{T} a_{T,j}, \\ \text{triangle mean} &= \frac{2}{T(T+1)} \sum_{j \le k} a_{k,j}. \end{aligned}$$
#
# Here $a_{k,j}$ is the accuracy on task $j$ after task $k$, and $T$ the number of tasks. The paper defines its metric
# as the {term}`final accuracy` $P_T$, but several of its numbers fit the {term}`triangle mean`, see
# {doc}`/notebooks/metrics`.

# %% tags=["hide-input"]
from IPython.display import display
from myst_nb import glue

from paper_lib import paper, plots, sweep, tables
from paper_lib.experiments import class_incremental
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
dataset: str = "split_digits"  # split_digits, split_mnist, split_fmnist; without VCL split_cifar10
scenario: str = "class_incremental"  # or domain_incremental; task_incremental without vcl_single_head
preset: str = "quick"  # quick, or paper for the epochs of the paper or of the reference
split: str = "test"  # test, or validation, a tenth of the training data
seeds: list[int] = None  # a list, one number, "0,1,2" or "0:10", if not the preset's
device: str = "cpu"  # cpu or cuda:0
rows: list[str] = ["sgd", "vcl_single_head", "vcl_coreset", "replay", "protocl", "joint"]  # and vcl_coreset_k_centre
epochs: int = None  # passes over each task, if not the preset's
learning_rate: float = None  # of Adam, if not the preset's
memory_per_task: int = None  # points that ProtoCL and replay keep of each task, if not the preset's
coreset_per_task: int = None  # points that VCL's coresets keep of each task, if not the preset's

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The quick run on digits, with 50 points of each task kept where a row has a memory. SGD and VCL without a coreset fall to one task in five. VCL with a coreset keeps less than half, ProtoCL and replay most.", "name": "fig-classes-live"}, "image": {"alt": "Average accuracy over the tasks so far against the number of tasks learned, on digits. Joint training stays at the top, ProtoCL and replay fall a little, VCL with a coreset more, and VCL without one falls with SGD to one over the number of tasks."}}
selection = from_notebook(class_incremental.LIVE, globals())
plots.accuracy_over_tasks(tables.curves(sweep.run(selection)))

# %% [markdown]
# ## At the paper's scale
#
# Split-MNIST first, then Split-FMNIST. The printed ± is read twice: as a tolerance, and as a standard deviation over
# ten seeds ({doc}`/reproduction` says how). A {term}`coreset` or memory holds 200 points a task. "Reduced" rows have
# fewer seeds or epochs than the paper. An "uninformative ±" is above 16.67, and so can be no standard error of ten
# accuracies ({doc}`/notebooks/metrics`). Rows come from different public codes and see different pixels; the settings
# are folded away.

# %% tags=["hide-input"]
mnist = class_incremental.comparison("split_mnist")
shown, more = tables.side_by_side(mnist, paper.label)
Table(shown.rename_axis(index="on Split-MNIST"), more=more, source=class_incremental.source("split_mnist"))

# %% tags=["hide-input"]
fmnist = class_incremental.comparison("split_fmnist")
shown, more = tables.side_by_side(fmnist, paper.label)
Table(shown.rename_axis(index="on Split-FMNIST"), more=more, source=class_incremental.source("split_fmnist"))

# %% tags=["hide-input"] mystnb={"figure": {"caption": "All rows that were run. Grey is the printed number with its ±. Where ProtoCL has a printed number, open dots, the triangle means, lie within its ±; filled dots, the final accuracies, lie below it.", "name": "fig-classes-stored"}, "image": {"alt": "Two panels, Split-MNIST and Split-FMNIST, of final accuracy and triangle mean of each method as dots with printed numbers as grey bars. SGD, VCL with one head and ProtoCL without memory end at or below 20 percent; VCL with a random coreset near 50; ProtoCL, replay and joint training at the right."}}
plots.scores({"Split-MNIST": mnist, "Split-FMNIST": fmnist})

# %% tags=["hide-input"] mystnb={"figure": {"caption": "What accuracy costs on Split-MNIST, without a GPU. Of the rows that keep 200 points a task, S-FSVI with its calibrated 3 epochs ends highest, in less than a minute; with its authors' 80 it takes about twenty and ends near replay. ProtoCL's rows with that memory end one to three points below calibrated S-FSVI, in at most two and a half minutes. Machines were not equally busy, and S-FSVI's 80 epochs ran mostly one seed at a time, ProtoCL's ten together: read factors of two as equal.", "name": "fig-classes-seconds"}, "image": {"alt": "Final accuracy against training time of a seed on a logarithmic axis, a mark a method. Joint training takes about ten seconds, calibrated a minute; replay, ProtoCL and calibrated S-FSVI lie at the top between ten and two hundred, S-FSVI at the top beyond a thousand; FROMP lies near 73 percent, with random points near 90, HIBNN near 41, calibrated near 53, VCL with a random coreset near 50, and learners without memory near 20."}}
plots.accuracy_by_seconds(mnist)

# %% [markdown]
# What this chapter says about the stored runs, each with its verdict:

# %% tags=["hide-input"]
for name, value in class_incremental.numbers().items():
    glue(name, value, display=False)
Table(
    tables.verdicts(class_incremental.CLAIMS),
    more=class_incremental.shown_settings("split_mnist"),
    summary="settings on Split-MNIST",
)

# %% [markdown]
# Table 2: Split-CIFAR10, then Split-CIFAR100, ten tasks of ten classes, and last what the released code calls
# Split-CIFAR100: all of CIFAR-10 as the first task, then nine tasks of CIFAR-100. The verdicts name what is reduced
# against the paper's runs; epochs are means over tasks.

# %% tags=["hide-input"]
for name in ("split_cifar10", "split_cifar100", "split_cifar10_100"):
    shown, more = tables.side_by_side(class_incremental.comparison(name), paper.label)
    display(Table(shown.rename_axis(f"on {paper.LABELS[name]}"), more=more, source=class_incremental.source(name)))

# %% [markdown]
# ## What agrees, what does not, why
#
# ### Table 1
#
# **ProtoCL agrees, as a triangle mean.** With the paper's 50 epochs its triangle mean is
# {glue:text}`triangle_protocl_paper_epochs:.1f` % on Split-MNIST, for a printed 93.73 ± 1.05, and
# {glue:text}`triangle_protocl_paper_epochs_fmnist:.1f` % on Split-FMNIST, for 82.73 ± 1.70. Its final accuracies are
# {glue:text}`final_protocl_paper_epochs:.1f` and {glue:text}`final_protocl_paper_epochs_fmnist:.1f` %.
# {doc}`/notebooks/protocl` says how its settings were chosen.
#
# **VCL without a coreset knows its last task at most.** Its final accuracy is {glue:text}`final_vcl_single_head:.1f` %
# on Split-MNIST and {glue:text}`final_vcl_single_head_fmnist:.1f` % on Split-FMNIST (n = 3). A learner that knows only
# its last task of five ends at 20 % at most. The triangle mean of {glue:text}`triangle_vcl_single_head:.2f` % is below
# the printed 33.01: just after learning it, VCL has only {glue:text}`vcl_second_task:.0f` % of the second task. The one
# logged run of the public code ([timrudner/S-FSVI](https://github.com/timrudner/S-FSVI), layers of 256) is lower still,
# with a triangle mean of {glue:text}`log_vcl_single_head:.1f` %.
#
# **VCL with a coreset cannot be judged.** The printed ± of 18.56 and 16.96 are wider than any standard error of ten
# accuracies. The final accuracy is {glue:text}`final_vcl_coreset:.1f` %; replay of as many points ends at
# {glue:text}`final_replay:.1f` %. Replay was tuned and VCL was not. Points chosen as {term}`k-centre` points end at
# {glue:text}`final_vcl_coreset_k_centre:.1f` % (3 seeds).
#
# **Replay without prototypes remembers more than ProtoCL, if both are tuned for accuracy.** Replay ends at
# {glue:text}`final_replay:.1f` % against {glue:text}`final_protocl:.1f` % on Split-MNIST and at
# {glue:text}`final_replay_fmnist:.1f` % against {glue:text}`final_protocl_fmnist:.1f` % on Split-FMNIST. The paper's
# tables have no such row. {doc}`/notebooks/protocl` says what calibration changes.
#
# **FROMP agrees on Split-MNIST, as a triangle mean, if its authors choose the points.** Its triangle mean is
# {glue:text}`triangle_fromp:.1f` %, for a printed 84.40 ± 0.00. Its final accuracy is {glue:text}`final_fromp:.1f` %.
# If these runs are like the paper's, the Split-MNIST column sets triangle means of ProtoCL and FROMP beside a final
# accuracy of S-FSVI. That is inferred: no released script tells. With random points in place of its authors' memorable
# ones FROMP ends at {glue:text}`final_fromp_random:.1f` %, above the printed number, with a triangle mean of
# {glue:text}`triangle_fromp_random:.1f` % (n = {glue:text}`n_fromp_random`). The other settings are those of the public
# class-incremental runs of Scannell et al. (`paper_lib/rows.py`), and nothing was tuned.
#
# **On Split-FMNIST FROMP does not agree, whichever points it keeps.** The printed number is 68.54 ± 0.00. With its
# authors' points FROMP stays below, with a triangle mean of {glue:text}`triangle_fromp_fmnist:.1f` % and a final
# accuracy of {glue:text}`final_fromp_fmnist:.1f` %. With random points it is above, with
# {glue:text}`triangle_fromp_random_fmnist:.1f` and {glue:text}`final_fromp_random_fmnist:.1f` % (n =
# {glue:text}`n_fromp_random_fmnist`). So random points keep more than memorable ones on both sets. Memorable points are
# those of which the network is least certain. Perhaps they stand for few others; this was not tested. Which points the
# paper kept is not published.
#
# **On Split-MNIST S-FSVI is within a point of its printed number, as a final accuracy.** It ends at
# {glue:text}`final_sfsvi:.2f` % (n = {glue:text}`n_sfsvi`), where the paper prints 92.94 ± 0.17 and its authors report
# 92.87. Its triangle mean, {glue:text}`triangle_sfsvi:.1f` %, is farther off. By the rule of this book the gap is too
# large for "reproduced". The authors sample weights and average logits; here pre-activations are sampled and
# probabilities averaged. Whether that is the reason was not tested. By final accuracy tuned ProtoCL less S-FSVI is
# {glue:text}`protocl_over_sfsvi_split_mnist` points on the same seeds (layers of 200 and of 256).
#
# **On Split-FMNIST S-FSVI is near its printed number as a triangle mean**, {glue:text}`triangle_sfsvi_fmnist:.1f` %,
# for a printed 80.55 ± 0.41. It ends at {glue:text}`final_sfsvi_fmnist:.1f` % (n = {glue:text}`n_sfsvi_fmnist`). So the
# printed row mixes two metrics, or one of the two fits is luck, or these runs are not like the paper's. Tuned ProtoCL's
# final accuracy less S-FSVI's is {glue:text}`protocl_over_sfsvi_split_fmnist` points.
#
# **With one budget of trials for each, S-FSVI is ahead on Split-MNIST and ProtoCL on Split-FMNIST.** The rows called
# {term}`calibrated` were, except for joint training, each chosen from 21 trials of at most 12 epochs, by accuracy and
# likelihood on validation data (`paper_lib/experiments/calibration.py`). Final accuracies in percent, Split-MNIST then
# Split-FMNIST:
#
# - S-FSVI {glue:text}`final_sfsvi_calibrated:.1f` and {glue:text}`final_sfsvi_calibrated_fmnist:.1f`,
# - ProtoCL {glue:text}`final_protocl_calibrated:.1f` and {glue:text}`final_protocl_calibrated_fmnist:.1f`,
# - replay {glue:text}`final_replay_calibrated:.1f` and {glue:text}`final_replay_calibrated_fmnist:.1f`,
# - FROMP {glue:text}`final_fromp_calibrated:.1f` and {glue:text}`final_fromp_calibrated_fmnist:.1f`,
# - HIBNN {glue:text}`final_hibnn_calibrated:.1f` and {glue:text}`final_hibnn_calibrated_fmnist:.1f`.
#
# ProtoCL less S-FSVI is {glue:text}`protocl_calibrated_over_sfsvi_calibrated_split_mnist` and
# {glue:text}`protocl_calibrated_over_sfsvi_calibrated_split_fmnist` points. On both sets S-FSVI chose 3 epochs where
# its authors have 80, 10 {term}`context points` a task instead of 40, and a divergence that is not multiplied by the
# batch size, 128. By that it gains {glue:text}`gained_sfsvi` and {glue:text}`gained_sfsvi_fmnist` points, its NLL falls
# from {glue:text}`nll_sfsvi:.2f` to {glue:text}`nll_sfsvi_calibrated:.2f` and from {glue:text}`nll_sfsvi_fmnist:.2f` to
# {glue:text}`nll_sfsvi_calibrated_fmnist:.2f`, and a seed takes {glue:text}`seconds_sfsvi_calibrated` instead of
# {glue:text}`seconds_sfsvi`. Three passes alone do not help: with its authors' other settings it ends at
# {glue:text}`final_sfsvi_few` and {glue:text}`final_sfsvi_few_fmnist` % then (3 seeds). FROMP chose random points and 3
# epochs on both sets; that such points help it was known from the test set before the grid was written, as was
# ProtoCL's winner ({doc}`/notebooks/protocl`). None of this is part of the verdict on the paper.
#
# **Where their authors report numbers, FROMP and S-FSVI can be checked.** With a head a task FROMP ends at
# {glue:text}`fromp_multi_head_split_mnist` on Split-MNIST (3 seeds), for 99.3 in its README, and S-FSVI (one seed) at
# {glue:text}`sfsvi_multi_head_split_mnist` and {glue:text}`sfsvi_multi_head_split_fmnist` on the two sets, for 99.54
# and 99.05. Without a coreset S-FSVI ends at {glue:text}`sfsvi_no_coreset_split_mnist` (one seed), for 20.15 ± 0.52.
#
# **HIBNN is far below its printed number on Split-MNIST, and one seed trained longer is no nearer.** The network is
# that of its code, one layer of 100. With the code's 1,000 epochs one seed of Split-MNIST ends at
# {glue:text}`final_hibnn:.1f` %. With 100 epochs (n = {glue:text}`heads_split_mnist`), at ten times the learning rate,
# it ends at {glue:text}`final_hibnn_short:.1f` % there and at {glue:text}`final_hibnn_short_fmnist:.1f` % on
# Split-FMNIST. The paper prints 85.50 ± 3.20 and 43.70 ± 20.21. One seed, or a tenth of the epochs, carries no verdict.
# Its objective is not the code's, which adds a term for the masks on units (`paper_lib/methods/hibnn.py`). HIBNN has a
# head a task and must choose one. Here it chooses for each test point. Its code chooses once for all test points of a
# task, and so uses that they share one. By its rule the same seeds end at {glue:text}`head_code_split_mnist` and
# {glue:text}`head_code_split_fmnist` ({doc}`/notebooks/release_audit`). Two layers of 200 at the code's rate were tried
# first, on one seed of Split-MNIST whose test score was seen; their objective was still falling. Rate and its decay
# were then chosen by the objective on training data.
#
# ### Table 2
#
# **Split-CIFAR10: one seed, no tuning.** S-FSVI ends at {glue:text}`final_sfsvi_cifar10:.1f` %, near its printed 50.85.
# Replay ends at {glue:text}`final_replay_cifar10:.1f`, ProtoCL at {glue:text}`final_protocl_cifar10:.1f` and FROMP at
# {glue:text}`final_fromp_cifar10:.1f` %, for a printed 48.92 ± 10.86. ProtoCL is below its printed 55.81 by both
# metrics, and below S-FSVI, where the paper has it above. One seed settles no order. ProtoCL as published comes nearest
# to 55.81, with a triangle mean of {glue:text}`triangle_protocl_as_published_cifar10:.1f` %. With smoothed labels
# ("calibrated") and 10 epochs ProtoCL ends at {glue:text}`final_protocl_calibrated_cifar10:.1f` %, joint training with
# as many at {glue:text}`final_joint_cifar10:.1f` %.
#
# **How these runs were set.** ProtoCL and replay have the paper's 80 epochs, ProtoCL as published 50, S-FSVI those of
# its authors' runs with a head a task (200, then 50), as the paper gives none, and FROMP an eighth of its authors'.
# S-FSVI's and FROMP's batches are theirs too. Networks of ProtoCL, replay and S-FSVI ran in bfloat16, FROMP's in
# float32. S-FSVI's network, dropout and images for context are not quite its authors' (`paper_lib/methods/sfsvi.py`).
#
# **FROMP learns nothing after the first task of Split-CIFAR10; in a smaller run dropout has a part in it.** Just after
# learning them it has at most {glue:text}`fromp_later_cifar10:.1f` % of tasks 2 to 5. Its code drops units on the
# points of the current task and none on those it remembers. So the network may tell the two by the noise and answer
# each as it is asked to. Points of a test come without noise. On two tasks of 1,000 points it has
# {glue:text}`fromp_with_dropout:.1f` % of task 2 just after learning it, and {glue:text}`fromp_without_dropout:.1f` %
# without dropout. All three seeds show the drop, of widely differing size. How the paper's runs were set is not
# published.
#
# **Split-CIFAR100: one seed, no tuning, all epochs.** S-FSVI ends at {glue:text}`final_sfsvi_cifar100:.1f` %, for a
# printed 20.04 ± 2.37, with a triangle mean of {glue:text}`triangle_sfsvi_cifar100:.1f` %. ProtoCL ends at
# {glue:text}`final_protocl_cifar100:.1f` %, for a printed 23.96 ± 1.34, with a triangle mean of
# {glue:text}`triangle_protocl_cifar100:.1f` %. Replay ends at {glue:text}`final_replay_cifar100:.1f` %, with a triangle
# mean of {glue:text}`triangle_replay_cifar100:.1f` %. The three ends lie within {glue:text}`spread_cifar100:.1f`
# points, and one seed settles no order. All ran in bfloat16.
#
# **What the released code calls Split-CIFAR100 is another stream:** all of CIFAR-10 as the first task, then nine tasks
# of CIFAR-100 (`split_cifar10_100`). On it, with one seed and all epochs, ProtoCL ends at
# {glue:text}`final_protocl_cifar10_100:.1f` % and replay at {glue:text}`final_replay_cifar10_100:.1f` %; their triangle
# means are {glue:text}`triangle_protocl_cifar10_100:.1f` and {glue:text}`triangle_replay_cifar10_100:.1f` %. That is
# nearer to ProtoCL's printed 23.96, and still below it. Which of the two streams the printed numbers are of is not
# said.
#
# **Eight times the epochs gain little.** On each of the three streams, with one seed, 80 epochs instead of 10 gain
# ProtoCL and replay less than two points, and raise their NLL by more than a nat. With 10 epochs they end at
# {glue:text}`final_protocl_cifar10_short:.1f` and {glue:text}`final_replay_cifar10_short:.1f` % on Split-CIFAR10, at
# {glue:text}`final_protocl_cifar100_short:.1f` and {glue:text}`final_replay_cifar100_short:.1f` % on Split-CIFAR100,
# and at {glue:text}`final_protocl_cifar10_100_short:.1f` and {glue:text}`final_replay_cifar10_100_short:.1f` % on the
# code's.
#
# **Here, on a CPU and with one seed, S-FSVI is not slower than ProtoCL on Split-CIFAR10.** The paper prints a factor of
# 116 between them, on a GPU. Here a seed with all epochs took {glue:text}`minutes_sfsvi_cifar10:.0f` minutes with
# S-FSVI and {glue:text}`minutes_protocl_cifar10:.0f` with ProtoCL, each on a core of one machine that was busy
# otherwise too. The divergence of S-FSVI is computed here without a Jacobian, and of its network only the last layer is
# random. On Split-MNIST, where all layers are, S-FSVI took {glue:text}`times_slower` as long a seed as ProtoCL with 50
# epochs; its seeds ran mostly one at a time and ProtoCL's ten together, which is kinder to ProtoCL.
#
# **Not tested.** What the tables mark as not run; Table 2 with ten seeds.
#
# ## Try it
#
# 1. Set `memory_per_task = 10`, `coreset_per_task = 10` and `rows = ["vcl_coreset", "replay", "protocl"]`. Who loses
#    least from a smaller memory?
#
# :::{dropdown} Answer
# In points VCL with a coreset, which has least to lose: it falls from 44 to 36 %. Replay and ProtoCL lose about 10
# points and still end near 82 %, far above it.
# :::
#
# 2. Set `rows = ["vcl_coreset", "vcl_coreset_k_centre", "replay"]`. Do points at the edge of a class stand for it?
#
# :::{dropdown} Answer
# On digits about as well as random points: 46 and 44 %. On Split-MNIST, with 200 points a task and larger networks,
# random points win by far. Both end far below replay, at 92 %.
# :::
#
# 3. Set `epochs = 2`. Which learner suffers least from two passes over each task?
#
# :::{dropdown} Answer
# ProtoCL: it ends at 88 %, against 92 with the preset's epochs. Replay ends at 47 % and joint training at 73 %. A
# prototype needs one pass over a class to find its place.
# :::
