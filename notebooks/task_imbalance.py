# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Does a larger second task make a learner forget the first?
#
# Section 5 of {cite:p}`kessler2023sequential` treats online learning of a network as filtering and reads off its
# update {eq}`eq:bnn_kf` that, if there is more data for the current task, the data will dominate the prior and earlier
# tasks are forgotten. There is no experiment in the paper. Here are the filter, its derivation checked, what one and
# two weights forget exactly, and networks on the first two tasks of Split-MNIST.
#
# The model: optimal weights drift by an Ornstein-Uhlenbeck step, $\theta^*_t = (1-h)\,\theta^*_{t-1} + \eta\,\epsilon_t$
# (the paper writes $\vartheta$ for $h$), and each point is a noisy look at them.

# %%
from paper_lib import plots, runs, schematics
from paper_lib.experiments import task_imbalance
from paper_lib.notebook import from_notebook

# %% tags=["parameters"]
dataset = "split_digits"  # the first two tasks of this stream
scenario = "domain_incremental"  # both tasks share two outputs; or class_incremental
preset = "quick"  # or paper: five ratios, a thousand points
seeds = [0, 1]  # each with its own points, initialisation and order
device = "cpu"  # or cuda:0
methods = ["sgd", "vcl", "joint"]  # rows to run

# %% mystnb={"image": {"alt": "Graphical model of filtering: a chain of latent optimal weights, each with an arrow to the observed output of its step, which also has an arrow from its observed input."}}
figure = schematics.filtering_model()
figure

# %% [markdown]
# ## The derivation
#
# Two printed variances are not those of the model. The optimum of a weight in a quadratic loss,
# $\theta_i^* = -H_{-ii}^\top \theta_{-i} / H_{ii}$, moves with variance
# $\eta^2 = \eta_{-i}^2\, H_{-ii}^\top H_{-ii} / H_{ii}^2$: the paper leaves out $H_{ii}^2$. And the step multiplies
# variances by $(1-h)^2$, where the paper's appendix has $(1-h)^{-2}$, so that without data its variance grows without
# bound. The dots are simulated steps; their optima are where autograd's slope is zero.
#
# Lemma 1 is exact for a network that is linear in the weight: its mean and spread equal Bayes' rule summed over a grid
# of the weight's values. What it must be given is $\tilde y = y - f(x; \theta_0) + g\,\theta_0$; with $y$, as printed,
# it follows something else. For the tanh network itself it is a good approximation here.

# %% mystnb={"image": {"alt": "Left: variance of the step of five weights' optima; simulated dots lie on the corrected formula and up to a hundred times below the printed one. Right: variance of a weight without data; simulated dots and the corrected formula stay at the limit of about one while the printed one reaches a thousand after sixty steps."}}
steps, idle = task_imbalance.transitions(), task_imbalance.variance_without_data()
assert ((steps.corrected - steps.simulated).abs() < 4 * steps.se).all()
assert ((steps.printed - steps.simulated).abs() > 20 * steps.se).all()
assert idle.printed.iloc[-1] > 100 * idle.limit.iloc[-1] > 90 * idle.corrected.iloc[-1]
plots.filter_assumptions(steps, idle)

# %% mystnb={"image": {"alt": "Posterior mean of one weight over 25 observations. Lemma 1's line and band coincide with numerical integration of the linearised network, pass close to that of the network itself and follow the true weight; the line with y as printed runs far below."}}
lemma = task_imbalance.lemma_1()
route = lemma.pivot(index="time", columns="route", values=["mean", "sd"])
assert (route["mean", "lemma"] - route["mean", "linearised, by integration"]).abs().max() < 1e-6
assert (route["sd", "lemma"] - route["sd", "linearised, by integration"]).abs().max() < 1e-6
assert (route["mean", "lemma"] - route["mean", "printed target"]).abs().mean() > 1
plots.lemma_1(lemma)

# %% [markdown]
# ## What is forgotten, exactly
#
# *One weight at rest* ($h = \eta = 0$) ends at $(n_1 A + n_2 B) / (n_1 + n_2)$ for targets $A$ and $B$: only the ratio
# of sizes counts. *One weight that drifts* discounts each older point, by
# $\prod (1-h)(1 - K g)$ with gain $K$; then the number of new points counts, whatever the old task's size was. *Two
# weights* that the tasks read out along different directions can satisfy both. With their full covariance nothing is
# forgotten at any ratio. Take them as independent, as a mean-field posterior does, and imbalance costs again.

# %% mystnb={"image": {"alt": "Error on task 1 against the ratio of task sizes in three panels. One weight at rest: curves for 10, 50 and 250 points coincide and rise from 0 to 0.9. One weight that drifts: the curves are apart, the largest task forgotten at the smallest ratio. Two weights: same direction rises as before, 60 degrees apart with full covariance stays at 0, with independent weights rises to 0.3."}}
still = task_imbalance.one_weight((10, 50, 250), max_ratio=10)
drifting = task_imbalance.one_weight((10, 50, 250), max_ratio=10, reversion=0.01, eta_var=0.001)
pairs = {
    "same direction, full covariance": task_imbalance.two_weights(0, "full", 50, 10),
    "60° apart, full covariance": task_imbalance.two_weights(60, "full", 50, 10),
    "60° apart, independent": task_imbalance.two_weights(60, "independent", 50, 10),
}
assert (still.error - still.num_second / (still.num_first + still.num_second)).abs().max() < 1e-4
assert drifting[drifting.ratio == 1].error.is_monotonic_increasing and drifting[drifting.ratio == 1].error.max() > 0.8
assert pairs["60° apart, full covariance"].error.max() < 1e-3 < 0.3 < pairs["60° apart, independent"].error.max()
plots.error_by_ratio(still, drifting, pairs)

# %% [markdown]
# So imbalance alone does not make exact inference forget: a model must also be unable to hold both tasks, or an
# approximation must lose how. A network can hold both. Does imbalance make it forget?
#
# ## Networks
#
# Both tasks share two outputs, as one observation model explains all data in Section 5. (With an output a class,
# training without the old classes also teaches that they do not occur, which is a cause of its own; `scenario` runs
# that too.) More data usually also means more updates, so there are three designs: task 2 grows, at equal passes over
# it; task 2 grows, at equal updates; task 1 shrinks, at equal updates. They share the run with equal sizes. Live, on
# small digits:

# %% mystnb={"image": {"alt": "Live run on digits: forgetting of task 1 and accuracy on task 2 against the ratio of sizes, a column a design, for SGD, VCL and joint training."}}
config = from_notebook(task_imbalance.Config, globals())
live = task_imbalance.by_design(task_imbalance.run(config), config)
if config == task_imbalance.Config():
    forgetting = live.groupby(["row", "design", "ratio"]).forgetting.mean()
    passes, updates, smaller = (forgetting["sgd", design] for design in task_imbalance.DESIGNS)
    assert passes[5.0] - passes[0.2] > 0.1 > abs(updates[5.0] - updates[0.2])
    assert abs(smaller[5.0] - smaller[0.2]) < 0.1 and forgetting["joint"].max() < 0.15
plots.task_imbalance(live)

# %% [markdown]
# Stored: Split-MNIST (0 or 1, then 2 or 3), 1,000 points in the task that keeps its size and 100 to 10,000 in the
# other, 600 updates where they are equal, a hidden layer of 100 units, 5 seeds. All settings are ours. The table has
# forgetting at equal sizes, and its change from ratio 0.1 to 1 (`below`) and from 1 to 10 (`above`), in points of
# accuracy with 95 % intervals of the paired change.

# %% mystnb={"image": {"alt": "Stored run on Split-MNIST: SGD and VCL forget 10 to 30 points of accuracy on task 1. With equal passes forgetting rises up to equal sizes and not beyond; with equal updates, and with a smaller task 1, no rise exceeds the spread. Joint training forgets almost nothing at any ratio."}}
stored = task_imbalance.by_design(runs.stored("task_imbalance"), task_imbalance.PAPER)
plots.task_imbalance(stored)

# %%
effect = task_imbalance.effect_of_ratio(stored).set_index(["row", "design"])
forgotten, change = 100 * stored.groupby(["row", "design", "ratio"]).forgetting.mean(), 100 * effect
same_passes, same_updates, smaller_first = task_imbalance.DESIGNS
assert change.below_low["sgd", same_passes] > 9
assert (change.below_low[:, same_updates] * change.below_high[:, same_updates])[["sgd", "vcl"]].lt(0).all()
assert change.above_high["sgd", same_updates] < -3
assert change.loc[("sgd", smaller_first), ["below_low", "below_high", "above_low", "above_high"]].abs().max() < 3
assert forgotten["joint"].max() < 1.5 < 20 < change.equal_sizes[["sgd", "vcl"]].min()
change.drop(columns="n").round(1).join(effect.n)

# %% [markdown]
# **What agrees.** In one weight at rest the claim is exact. In networks it holds where a small task 2 also brings few updates:
# with equal passes SGD forgets more at equal sizes than at a tenth, and the interval of `below` excludes 0.
#
# **What does not.** That part is not shown to be due to the data: with equal updates the interval of the same change
# contains 0. From equal sizes to a tenfold task 2 no rise is seen, and SGD with equal updates forgets *less* (`above`).
# Shrinking task 1 tenfold, and again, hardly moves SGD's forgetting, as nothing in SGD knows its size; VCL's posterior
# does, and it may forget a little more. Balanced tasks already cost more than a fifth of the accuracy on task 1
# (`equal_sizes`), while one network fitted to both tasks at once, on the same points, keeps almost all of it at any
# ratio. So here forgetting comes from learning in sequence with what SGD and mean-field VCL keep, not from imbalance.
#
# **What to keep in mind.** Five seeds, each with its own points, and with a small task 2 they differ widely, so a
# moderate effect of data alone at small ratios is not excluded. VCL takes one Monte Carlo sample a step and few steps:
# its divergence from the prior still falls when training ends. The drifting weight says why a ratio may be the wrong
# axis: what is discounted is counted in new points, not in their share.
