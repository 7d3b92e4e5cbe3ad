# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Variational continual learning, with one head and with many
#
# Bayes' rule asks for the last posterior and for nothing else. Does a network remember if it is handed from task to
# task as an approximate posterior? Variational continual learning takes a diagonal Gaussian and minimises
# {eq}`eq:vcl`. Section 2.3 of {cite:p}`kessler2023sequential` finds that with a single head it "barely performs better
# than SGD", and that what helps is a head for each task, of which Bayes' rule knows nothing.
#
# As in Figure 1, rows with one head are trained domain-incrementally (the same two units for every task) and rows with
# a head a task are told the task. `joint` trains on all tasks so far. Further rows are `single_task`, a network for
# each task, kept as it was when the task was learned; `vcl_coreset` and `vcl_coreset_k_centre`, which keep points of
# every task aside until a prediction is asked for; `sgd_single_head_long`, `sgd_multi_head_long`,
# `sgd_multi_head_reference` and `vcl_multi_head_reference`, see Figure 1 below; and, without stored runs yet, `vcl_ddm`
# and `vcl_improved`, the published recipes of {cite:t}`nguyen2018variational` and of {cite:t}`swaroop2019improving`.

# %%
from IPython.display import display

from paper_lib import metrics, plots
from paper_lib.experiments import vcl_split_mnist
from paper_lib.notebook import from_notebook, shown

# %% tags=["parameters"]
dataset = "split_digits"  # split_digits, split_mnist, split_fmnist, toy_pan or toy_gaussians
scenario = None  # None: each row's own; or domain_incremental, class_incremental or task_incremental for all
preset = "quick"  # quick, or paper for the reference's epochs
seeds = [0, 1, 2]  # a list, one number, "0,1,2" or "0:10"
device = "cpu"  # cpu or cuda:0
methods = ["sgd_single_head", "vcl_single_head", "sgd_multi_head", "vcl_multi_head", "joint"]  # or those named above
epochs = None  # passes over each task, if not the preset's
batch_size = None  # points a step, if not the preset's
learning_rate = None  # of Adam, if not the preset's
coreset_per_task = None  # points that rows with a coreset keep of each task, if not the preset's

# %% mystnb={"image": {"alt": "Average accuracy over the tasks so far against the number of tasks learned. Joint training and both rows with a head a task stay near the top; SGD and VCL with one head fall together."}}
config = from_notebook(vcl_split_mnist.Config, globals())
curves = vcl_split_mnist.curves(vcl_split_mnist.run(config))
plots.accuracy_over_tasks(curves)

# %%
final = {row: values[:, -1].mean() for row, values in curves.items()}
if config == vcl_split_mnist.Config(device=config.device):
    assert final["vcl_multi_head"] > final["vcl_single_head"] + 0.05
    assert abs(final["vcl_single_head"] - final["sgd_single_head"]) < 0.05 < final["joint"] - final["vcl_single_head"]

# %% [markdown]
# ## All classes at once
#
# Class-incrementally, at the end only the last task is known; VCL holds a part of the first for a while. Digits, quick
# settings:

# %% mystnb={"image": {"alt": "Accuracy matrices on digits, class-incremental: with SGD the diagonal is near 100 and everything below it is 0; VCL keeps a part of the first task for two more tasks and nothing else; joint training is above 90 everywhere."}}
forgetful = vcl_split_mnist.class_incremental(config.seeds, config.device)
plots.accuracy_matrices(forgetful)

# %%
if config.seeds == vcl_split_mnist.Config().seeds:
    for row in ("sgd_single_head", "vcl_single_head"):
        complete = metrics.complete_forgetting(metrics.learning_accuracy(forgetful[row]).mean(), 5)
        assert abs(metrics.final_accuracy(forgetful[row]).mean() - complete.final_accuracy) < 0.05
    assert metrics.final_accuracy(forgetful["joint"]).mean() > 0.9

# %% [markdown]
# How forgetting shows in the two metrics of {doc}`metrics`, and VCL's rows of Table 1, stand in
# {doc}`class_incremental`.
#
# ## Figure 1
#
# Split-MNIST on the paper's network. The paper gives no other settings; ours are those of VCL in the public S-FSVI code
# ([timrudner/S-FSVI](https://github.com/timrudner/S-FSVI)). Its run with one head, which is class-incremental and has
# layers of 256, takes batches of 256, about five thousand steps a task, and so do `vcl_single_head` and
# `vcl_multi_head`. Its run with a head a task takes all of a task's points a step, a hundred steps;
# `vcl_multi_head_reference` does too, and begins at larger weights as that code does. SGD, here with Adam's step of
# 0.001 as VCL, takes a thousand steps; its rows `_long` and `_reference` take the batches and epochs of VCL's rows, but
# neither those weights nor the start by maximum likelihood, with which VCL learns its first task for twice as long. Our
# VCL draws the sums that enter each unit; that code draws the weights, from truncated normals. `joint` has one head.
#
# Percent, sd over seeds; `F_T` is forgetting, `learned` the accuracy on a task just learned, `reduced` marks fewer than
# ten seeds. Then differences of $P_5$ and of the triangle mean, seed by seed in percentage points, with 95 % intervals;
# `as long` and `reference` name the rows above, and a head a task means being told the task too. Last, the row with the
# public run's settings beside what that run logged: one seed, layers of 256.

# %%
stored = vcl_split_mnist.stored("split_mnist")
scores, mnist = vcl_split_mnist.scores(stored), vcl_split_mnist.statements(stored)
logs = vcl_split_mnist.beside_public_logs(stored)
display(shown(scores), shown(mnist), shown(logs))

# %% mystnb={"image": {"alt": "Two panels of average accuracy over the tasks so far on Split-MNIST, mean and standard deviation over seeds. Left, one head, on a scale that begins at 50: SGD, SGD as long as VCL, and VCL all end near 60 percent, alike but after the third task, where VCL is about five points higher. Right, a head a task, on a scale that begins at 80: SGD ends near 94 percent, near 93 with five thousand steps and near 96 with full batches; VCL, trained with batches of 256, ends near 88 and with full batches near 97. Joint training and a network a task stay at the top of both."}}
one_head = mnist.loc[["one head: VCL over SGD", "one head: VCL over SGD, as long"]]
assert (one_head.P_T.lower < 0).all() and (one_head.triangle.lower > 0).all() and (one_head.triangle.upper < 3).all()
assert one_head.P_T.upper.max() < 3 < 30 < mnist.P_T.lower["joint over VCL with one head"]
assert mnist.P_T.lower[["VCL: a head a task over one", "SGD: a head a task over one"]].min() > 20
long, full = mnist.loc["a head a task: VCL over SGD, as long"], mnist.loc["reference: VCL over SGD"]
assert long.P_T["mean"] < 0 < long.P_T.upper and full.P_T.lower < 0 < full.P_T["mean"]
assert long.triangle.lower < 0 < long.triangle.upper and full.triangle.lower > 0
assert mnist.P_T.lower[["VCL: reference over 256 a batch", "SGD: reference over 256 a batch"]].min() > 0
first = {row: a[..., 0].mean(0) for row, a in vcl_split_mnist.matrices(stored).items()}
assert first["vcl_multi_head_reference"].min() > 0.99
assert first["sgd_multi_head_reference"].min() < 0.85 < first["sgd_multi_head_reference"][-1] < 0.95
assert scores.P_T["mean"][["sgd_single_head", "sgd_single_head_long", "vcl_single_head"]].max() < 61
assert (logs.P_T["mean"] < logs.P_T.log).all() and (logs.P_T.log < logs.P_T.highest).all()
plots.accuracy_panels(vcl_split_mnist.by_heads(vcl_split_mnist.curves(stored)), own_scales=True)

# %% [markdown]
# **What agrees.** With one head VCL remembers barely more than SGD: a point or two more of the triangle mean, and of
# $P_5$ no difference that ten seeds show. All end within about eleven points of a guess between two classes, where
# joint training is near 100. With a head a task, and told it, VCL remembers far more.
#
# **What the runs add.** The heads help SGD as well, so the memory is not VCL's doing alone. Taking as many steps as
# SGD, VCL is not clearly ahead in $P_5$: its mean is a point higher after a hundred steps a task and five lower after
# five thousand, and both intervals hold zero. In the triangle mean VCL is ahead after a hundred, for it keeps the first
# task, of which SGD loses a part and regains some. Both end with more after a hundred full-batch steps than after five
# thousand of 256 points. A possible reason: in a hundred steps of 0.001 Adam moves a number by about 0.1, so the
# network stays near where it was; but SGD, held as near, keeps the first task hardly better for it, so this is a part
# at most. The public run's $P_5$ is above our mean and within the range of our seeds. What full batches, larger weights
# at the start and the longer first task contribute has not been taken apart.
#
# ## Toy sets
#
# The same methods on the two sets that the chapter on sampling uses: five binary tasks of Gaussian blobs in the plane,
# one set that of {cite:t}`pan2020continual`, one with its blobs on a circle. They have no published settings; ours were
# chosen for VCL on validation data (`experiments/vcl_toy_tuning.py`; the learning rate is the largest that was tried)
# and not for SGD, so the gap between them may be smaller than shown.

# %%
display(shown(vcl_split_mnist.by_dataset(vcl_split_mnist.scores, ("toy_pan", "toy_gaussians"))))
display(shown(vcl_split_mnist.by_dataset(vcl_split_mnist.statements, ("toy_pan", "toy_gaussians"))))

# %% mystnb={"image": {"alt": "Average accuracy over the tasks so far on the two toy sets, mean and standard deviation over ten seeds. SGD and VCL with one head fall to between 50 and 70 percent, VCL a little less; VCL with a head a task stays above 85; SGD with a head a task falls below it; joint training and a network a task stay at the top."}}
toys = vcl_split_mnist.by_dataset(vcl_split_mnist.statements, ["toy_pan", "toy_gaussians"]).swaplevel().P_T
one_head, gap = toys.loc["one head: VCL over SGD"], toys.loc["joint over VCL with one head"]
assert (one_head.lower > 0).all() and (one_head.upper < gap.lower).all()
assert (toys.lower["VCL: a head a task over one"] > 10).all() and (toys.lower["a head a task: VCL over SGD"] > 0).all()
assert toys.lower["SGD: a head a task over one", "toy_pan"] < 0
plots.accuracy_panels(
    {name: vcl_split_mnist.curves(vcl_split_mnist.stored(name)) for name in ("toy_pan", "toy_gaussians")}
)

# %% [markdown]
# With one head VCL ends above SGD on both sets, by a small part of what both lack to joint training. On Pan's set it
# forgets much less than SGD (`F_T`) and learns its tasks less well (`learned`). A head a task helps VCL on both sets;
# for SGD the gain is clear on the circle only. That fits a prior which protects the trunk that heads share, but SGD's
# settings differ and were not tuned, and on Split-MNIST, taking as many steps, VCL with such heads is not clearly ahead
# of SGD in $P_5$. Networks with ten units a layer at times lose a class even in joint training, which shows in the
# spread of that bound.
