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
# :::{admonition} Answer
# :class: tip
# **The paper:** under assumptions, more data in the current task can override earlier ones (Sec. 5).\
# **Here:** with ten times as much data in task 2, one weight moves 91 % of the way from task 1 to task 2. With equal sizes SGD forgets {glue:text}`equal_sgd:.0f` and VCL {glue:text}`equal_vcl:.0f` points (5 seeds).\
# **Verdict:** exact for one weight whose best value does not drift, if the output depends on it equally at every point. In networks no rise of SGD's or VCL's forgetting is shown when task 2 grows from equal sizes to tenfold. As task 1 shrinks VCL forgets more between some ratios, picked after the runs, and over the whole range no rise is shown.
# :::
#
# **Question.** Does imbalance between two {term}`tasks <task>` cause forgetting, apart from the extra updates that more
# data bring?
# Section 5 of {cite:p}`kessler2023sequential` treats online learning of a network as filtering. The best value of one
# weight drifts, and every point is a noisy look at that value:
#
# $$\theta^*_t = (1-h)\,\theta^*_{t-1} + \eta\,\epsilon_t,$$
#
# $$y_t = f(x_t; \theta^*_t) + \sigma\,\epsilon'_t.$$
#
# Here $\theta^*_t$ is the best weight at step $t$, $h$ the speed of its return to zero (the paper writes $\vartheta$),
# $\eta$ the size of its step, $f$ the network's output for input $x_t$, $y_t$ the target, $\sigma$ its noise, and
# $\epsilon_t$ and $\epsilon'_t$ are standard normal. Lemma 1 {eq}`eq:bnn_kf` says how one point changes the belief
# about the weight.
#
# :::{margin}
# At $h = 0.01$ the mean of a weight halves in about 69 steps without data, as $0.99^{69}$ is about 0.5.
# :::

# %% tags=["hide-input"]
from myst_nb import glue

from paper_lib import plots, schematics, tables
from paper_lib.analysis import filter_derivation, weight_filter
from paper_lib.experiments import task_imbalance
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
degrees: float = 60.0  # two weights: angle between the directions in which the tasks read them out
max_ratio: float = 10.0  # one and two weights: points of task 2 for each point of task 1
reversion: float = 0.01  # the weight that drifts: its speed h
eta_var: float = 0.001  # the weight that drifts: variance of its step
dataset: str = "split_digits"  # networks: the first two tasks of this stream
scenario: str = "domain_incremental"  # networks: both tasks share two outputs; or class_incremental
preset: str = "quick"  # networks: or paper, five ratios and a thousand points
seeds: list[int] = [0, 1]  # networks: each with its own points, initialisation and order
device: str = "cpu"  # networks: or cuda:0
rows: list[str] = ["imbalance_sgd", "imbalance_vcl", "imbalance_joint"]  # networks: rows to run

# %% [markdown]
# ## One weight and two, exactly
#
# All weights begin without knowledge, and $\sigma^2 = 1$. Task 1 asks for 1 and task 2 for -1. The error is
# $(1 - \text{output}) / 2$: 0 means that the output is still that of task 1, and 1 that it is that of task 2.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Error on task 1 against the ratio of sizes. At the default settings: at rest only the ratio counts, and the curves coincide; in drift the number of new points counts; two weights keep both tasks if their covariance is kept (full), and not if it is dropped after each point (independent) or if each weight is updated alone (Lemma 1).", "name": "fig-imbalance-exact"}, "image": {"alt": "Error on task 1 against the ratio of task sizes in three panels. One weight at rest: curves for 10, 50 and 250 points coincide and rise from 0 to 0.9. One weight that drifts: the curves are apart, the largest task forgotten at the smallest ratio. Two weights: same direction rises as before, 60 degrees apart with full covariance stays at 0, with independent weights rises to 0.3, by Lemma 1 to 0.5."}}
exact = weight_filter.run(from_notebook(weight_filter.Config, globals()))
plots.error_by_ratio(*exact)

# %% [markdown]
# A drifting belief is always pulled towards 0. So its curve levels off near 0.85 and not at 1.
#
# ## Networks, live
#
# {term}`SGD`, {term}`VCL` and {term}`joint training` learn two tasks. Both tasks share two outputs, as one observation
# model explains all data in Section 5. More data usually also means more updates, so there are three designs: task 2
# grows at equal passes over it, task 2 grows at equal updates, and task 1 shrinks at equal updates. The designs share
# the run with equal sizes.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The live run. Left: forgetting of task 1. Right: accuracy on task 2. A rise to the right in the upper row alone points to updates and not to data. Here VCL rises at equal updates too; with few points it has hardly learned task 2, and these are two seeds. The stored runs below decide.", "name": "fig-imbalance-live"}, "image": {"alt": "Live run: forgetting of task 1 and accuracy on task 2 against the ratio of sizes, a row a design, for the methods that were run."}}
selection = from_notebook(task_imbalance.LIVE, globals())
plots.task_imbalance(task_imbalance.by_design(task_imbalance.run(selection), selection.preset))

# %% [markdown]
# ## Networks, stored
#
# Split-MNIST: 0 or 1, then 2 or 3. One task keeps 1,000 points; the other has 100 to 10,000. Designs with equal updates
# take 600 updates a task. With equal passes task 2 takes 60 to 6,000. The network has a hidden layer of 100 units, and
# each cell 5 seeds. All settings are this book's.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The stored runs on Split-MNIST (n = 5). With equal updates and a larger task 2 no rise of SGD's or VCL's forgetting is shown. With a smaller task 1 that of VCL rises between ratio 0.3 and 10.", "name": "fig-imbalance-stored"}, "image": {"alt": "Stored run on Split-MNIST: SGD and VCL forget 10 to 30 points of accuracy on task 1. With equal passes forgetting rises up to equal sizes and not beyond; with equal updates no rise is shown; with a smaller task 1 that of VCL is 19 at ratio 0.1, 14 at 0.3 and 27 at 10. Joint training forgets almost nothing at any ratio."}}
stored = task_imbalance.by_design(task_imbalance.stored(), "paper")
plots.task_imbalance(stored)

# %% tags=["hide-input"]
effects = task_imbalance.effect_in_words(task_imbalance.effect_of_ratio(stored))
judged = tables.verdicts(task_imbalance.CLAIMS)
for name, value in task_imbalance.numbers().items():
    glue(name, value, display=False)
Table(effects, more=judged, summary="what this chapter says of these runs, judged", source=task_imbalance.source())

# %% [markdown]
# {term}`Forgetting <forgetting>` of task 1 in points of accuracy, mean ± sd at equal sizes, and its change with the
# ratio of sizes, with the 95 % interval of the {term}`paired` change over 5 seeds. The ratio is that of task 2 to task
# 1; where task 1 shrinks, a ratio of 0.1 is a task 1 ten times as large.
#
# ## The derivation
#
# {numref}`fig-imbalance-model` shows the model. {numref}`fig-imbalance-variances` and {numref}`fig-imbalance-lemma` put
# the printed formulas beside computations that do not use them; {doc}`/notebooks/errata` has the corrections (M1, M2,
# M3). On its example the posterior mean is {glue:text}`errata.ipynb::m3_corrected:.3f` by the corrected lemma,
# {glue:text}`errata.ipynb::m3_independent:.3f` by quadrature and {glue:text}`errata.ipynb::m3_printed:.3f` as printed.
# `python -m pytest tests/test_kalman.py tests/test_filter_derivation.py` holds the formulas to this.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The paper's Figure 5. Best weights are latent and drift; inputs and outputs are observed.", "name": "fig-imbalance-model"}, "image": {"alt": "Graphical model of filtering: a chain of latent optimal weights, each with an arrow to the observed output of its step, which also has an arrow from its observed input."}}
figure = schematics.filtering_model()
figure

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Two printed variances are not those of the model. Left: the step of a weight's optimum lacks a division by the squared curvature. Right: the variance without data has the wrong exponent and grows without bound.", "name": "fig-imbalance-variances"}, "image": {"alt": "Left: variance of the step of five weights' optima; simulated dots lie on the corrected formula and as much as a hundred times and more below the printed one. Right: variance of a weight without data; simulated dots and the corrected formula stay at the limit of about one while the printed one reaches a thousand after sixty steps."}}
derivation = filter_derivation.run(filter_derivation.Config())
plots.filter_assumptions(derivation.steps, derivation.idle)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Lemma 1 as corrected follows one weight of a small tanh network. It equals Bayes' rule for the linearised network and lies near Bayes' rule for the network itself. With the target as printed it follows something else.", "name": "fig-imbalance-lemma"}, "image": {"alt": "Posterior mean of one weight over 25 observations. Lemma 1's line and band coincide with numerical integration of the linearised network, pass close to that of the network itself and follow the true weight; the line with y as printed runs far below."}}
plots.lemma_1(derivation.lemma)

# %% [markdown]
# ## What agrees, what does not, why
#
# **One weight at rest: the claim is exact.** The weight ends at $(n_1 A + n_2 B) / (n_1 + n_2)$ for $n_1$ and $n_2$
# points with targets $A$ and $B$. All points have the same gradient here; a point counts by the square of its gradient.
# A weight that drifts discounts older points, so the number of new points counts and not their share.
#
# **Two weights: imbalance alone does not forget.** Weights that the tasks read out along different directions can
# satisfy both tasks, and with their full covariance they do. By Lemma 1, with its target corrected (M3), each weight is
# updated alone, the other one held at its mean. At 60° the error on task 1 is then 0.44 at equal sizes and 0.53 with a
# tenfold task 2. If both are updated together and only their correlation is dropped after each point, it is 0.27 and
# 0.32. So most of the error is there at equal sizes, and imbalance adds 0.05 to 0.09.
#
# These numbers depend on the axes of the weights. Task 1 is read out 20° from the axis of the first weight. Along that
# axis itself both errors would be below 0.01, and at 45° from it a tenfold task 2 would lower them.
#
# **Networks: fewer updates forget less, in SGD.** With equal passes SGD forgets more at equal sizes than at a tenth,
# and the interval of the change excludes 0. With equal updates the interval contains 0. The interval of the difference
# of the two changes excludes 0 for SGD, barely, and not for VCL.
#
# **Networks: no harm of a larger task 2 is shown.** From equal sizes to a tenfold task 2 no rise of SGD's or VCL's
# forgetting is shown in any design, and SGD with equal updates forgets less ({glue:text}`change_sgd:+.1f` points).
# Shrinking task 1 hardly moves SGD's forgetting, as nothing in SGD knows the size of task 1. As task 1 shrinks a rise
# of VCL's is shown only in pairs of ratios that begin at 0.3, its lowest: of the ten pairs, those from 0.3 to 1, to 3
# and to 10. Over the whole range the change is {glue:text}`whole_mean:+.1f` ({glue:text}`whole_lower:+.1f` to
# {glue:text}`whole_upper:+.1f`) points. A rise is what a prior that stands for fewer points should bring. The pairs
# were looked at after the runs, and such a search finds something by chance too: two of SGD's ten pairs exclude 0, a
# fall from 1 to 3 and a rise from 3 to 10, a seventh as large as VCL's.
#
# **Balance does not help.** At equal sizes SGD loses {glue:text}`equal_sgd:.0f` and VCL {glue:text}`equal_vcl:.0f`
# points of accuracy on task 1. {term}`Joint training <joint training>` on both tasks at once loses at most
# {glue:text}`joint_most:.1f` points, in any design at any ratio. So forgetting comes here from learning in sequence,
# and mostly not from imbalance. Joint training forgets a little more as task 2 outweighs task 1
# ({glue:text}`joint_rise_least:+.1f` to {glue:text}`joint_rise_most:+.1f` points from equal sizes to tenfold, and the
# intervals exclude 0).
#
# **Not tested.** Five seeds, each with its own points, differ widely where task 2 is small. So a moderate effect of
# data alone at small ratios is not excluded. VCL takes one Monte Carlo sample a step, and its divergence from the prior
# still falls when training ends.
#
# ## Try it
#
# 1. Set `degrees = 30`. How well do independent weights hold both tasks?
#
# :::{dropdown} Answer
# Badly: at equal sizes the error is 0.50, as for one weight, and 0.64 by Lemma 1. With full covariance it stays below
# 0.001.
# :::
#
# 2. Set `eta_var = 0.1`. What does a weight that drifts faster remember?
#
# :::{dropdown} Answer
# Almost nothing: after as many points of task 2 as of task 1 its error is 0.95 to 0.99. Every step adds uncertainty, so
# each new point counts more.
# :::
#
# 3. Set `scenario = "class_incremental"`. Why does everything forget more?
#
# :::{dropdown} Answer
# Each class now has an output of its own. Task 2 never shows the classes of task 1, so training on task 2 also teaches
# that they do not occur. That is a cause of forgetting besides imbalance.
# :::
