# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Did the chains converge, and do the densities fit?
#
# :::{admonition} Answer
# :class: tip
# **The paper:** HMC's chains converge on both toy sets (Figures A4, A6), and draws of the fitted mixtures are as accurate on the current task as HMC's (Figures A3, A5).\
# **Here:** at the paper's step and length on Pan's set {glue:text}`toy_pan_hmc_gate` {term}`gates <gate>` (10 seeds, 5 tasks) are passed, and, with sizes chosen on whole chains by this book's rule, {glue:text}`toy_pan_hmc_counts` densities count; with the released settings {glue:text}`toy_pan_hmc_as_published_counts` count.\
# **Verdict:** convergence {glue:text}`verdict_gates`; accuracy of the densities' draws {glue:text}`verdict_draws_A5` on Pan's set and {glue:text}`verdict_draws_A3` on the circle; that a RealNVP depends on the seed, {glue:text}`verdict_flow`; trained as in this book, its held-out density hardly does.
# :::
#
# **Question.** A chain that has not converged, or a density that does not fit, would explain the forgetting in
# {doc}`/notebooks/hmc_sequential` without any fault of sequential Bayes. Appendix E of {cite:p}`kessler2023sequential`
# shows accuracy and likelihood against draws, {term}`ESS` and the number of components, but no R-hat and no threshold.
# Of ESS the paper says that it is greater than in other work (captions) or in line with it (App. E), without a number.
# This chapter asks for both:
#
# $$\begin{aligned}
# \hat R &= \sqrt{\frac{\text{variance of all draws}}{\text{variance within chains}}}, \\
# \mathrm{ESS} &= \frac{\text{number of draws}}{1 + 2 \sum_{\tau} \rho_\tau}.
# \end{aligned}$$
#
# {term}`R-hat` is 1 if chains agree; ESS says how many independent draws the correlated ones are worth, with
# $\rho_\tau$ the correlation of draws $\tau$ apart. Both are the rank-based ones of {cite:t}`vehtari2021rank`, which
# ask for $\hat R \le 1.01$ and an ESS of 400 before any estimate is trusted.
#
# Units can swap places, so the weights of two good chains may differ. The {term}`gate` therefore tests the log density
# and the predicted probabilities of twenty training points of the task just learned.

# %% tags=["hide-input"]
from myst_nb import glue

from paper_lib import paper, sweep, tables
from paper_lib import plots_sampling as plots
from paper_lib.experiments import hmc_diagnostics, hmc_draws
from paper_lib.inference.diagnostics import MAX_RHAT, MIN_ESS
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
dataset: str = "toy_pan"  # toy_pan or toy_gaussians
preset: str = "quick"  # quick, or paper for 20 chains of up to 11,000 iterations
seeds: list[int] = [0, 1]  # a list, one number, "0,1,2" or "0:10"
device: str = "cpu"  # cpu or cuda:0
rows: list[str] = ["hmc", "hmc_exact"]  # and hmc_as_published, hmc_gaussian, hmc_realnvp, hmc_joint
num_chains: int = None  # chains a seed, None for the preset's
num_draws: int = None  # kept of each chain, None for the preset's
thin: int = None  # iterations a kept draw, None for the preset's
num_leapfrog: int = None  # gradients a trajectory, None for the preset's
prior_precision: float = None  # of every weight before the first task, None for 10
toy_points: int = None  # training points a blob, None for the preset's

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The quick run, by task, with step and masses that adapt; dots are medians over seeds, whiskers their range. Upper row, the gates dashed: ESS should lie above its line and R-hat below. Lower left: accuracy on the task just learned of HMC's draws (open marks) and of the density's draws (filled). A few hundred iterations of four chains converge nowhere.", "name": "fig-diagnostics-live"}, "image": {"alt": "Four panels by task. ESS of log density lies below the dashed line at 400 and R-hat above the line at 1.01 from task 2 on. Under the fitted density HMC's draws are nearly all right on the task just learned, and the density's draws on 50 to 80 percent; those of the exact recursion fall to about 70 percent on task 4. The mixture has one component."}}
selection = from_notebook(hmc_diagnostics.LIVE, globals())
table = sweep.run(selection)
plots.diagnostics(hmc_diagnostics.reported_by_task(table), MAX_RHAT, MIN_ESS)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Accuracy and negative log-likelihood on each task just learned, predicted by more and more draws of one chain a seed, as in Figures A4 and A6. The paper takes such plots for evidence of convergence. Flat lines are none: a chain that stays in one place has flat lines too.", "name": "fig-diagnostics-traces"}, "image": {"alt": "Two columns for two rows, two panels each: accuracy above, negative log-likelihood below, against draws of one chain on a logarithmic axis, a line a seed and task. Most lines are nearly flat after some ten draws, at levels that differ between tasks; under the exact recursion task 5 still moves at the end."}}
plots.traces(hmc_draws.live_traces(selection))

# %% [markdown]
# ## At the paper's scale
#
# Both toy sets; Pan et al.'s first. R-hat and ESS are medians over seeds and tasks, of the log density and, behind the
# stroke, of the predicted probabilities. "Gate passed" counts seeds and tasks where log density and probabilities both
# pass. A {term}`fitted density counts` if its draws are within a point of HMC's on the task just learned and if it is
# no worse than one Gaussian on held-out draws. Where HMC's own draws have not learned the task (less than three
# quarters right), nothing is counted. The folded tables show medians over seeds, a line a task: later tasks pass less
# often than medians over all suggest. On Pan et al.'s set medians of the exact recursion and of joint HMC may be equal,
# as both have the same run on the first task; on the circle they have not.

# %% tags=["hide-input"]
Table(
    hmc_diagnostics.shown("toy_pan"),
    more=hmc_diagnostics.shown_by_task("toy_pan"),
    summary="by task: accuracy in percent, acceptance, divergent trajectories, convergence",
    source=tables.source(hmc_diagnostics.stored("toy_pan")),
)

# %% tags=["hide-input"]
Table(
    hmc_diagnostics.shown("toy_gaussians"),
    more=hmc_diagnostics.shown_by_task("toy_gaussians"),
    summary="by task: accuracy in percent, acceptance, divergent trajectories, convergence",
    source=tables.source(hmc_diagnostics.stored("toy_gaussians")),
)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Figure A5 from the stored runs on Pan et al.'s set, with the gates dashed. ESS is that of the log density, where the released code takes a mean over weights. Lower left: accuracy on the task just learned of HMC's draws (open marks) and of the fitted density's (filled).", "name": "fig-diagnostics-stored"}, "image": {"alt": "Four panels by task from the stored runs: ESS and R-hat of log density with their thresholds dashed, accuracy on the task just learned of HMC's draws and of the fitted density's draws, and the number of components."}}
plots.diagnostics(hmc_diagnostics.reported_by_task(hmc_diagnostics.stored("toy_pan")), MAX_RHAT, MIN_ESS)

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Figure A6 from the stored runs, one chain a seed: thin lines are seeds, thick ones their median. Lines that are flat do not show convergence; the gates above do.", "name": "fig-diagnostics-stored-traces"}, "image": {"alt": "Accuracy and negative log-likelihood against draws of one chain on a logarithmic axis, a line a seed and task and a thick median, from the stored runs with the paper's settings and, where they were run, with adaptation."}}
plots.traces(hmc_draws.stored_traces("toy_pan", ("hmc", "hmc_adapted")))

# %% [markdown]
# ## The paper's normalising flow
#
# Section 3 of the paper also tried a {term}`RealNVP`. It reports without numbers that it depends on the random seed,
# that its draws are not accurate on the current task, and that it is unstable as a prior. Here ten seeds of HMC on Pan
# et al.'s set (adapted, ten chains, two tasks) are handed to it twice:
#
# - as the release trains it, at a learning rate of 0.1, on weights as they are, for 200 epochs, with a quarter of all
#   draws held out (the couplings are zuko's, with scales bounded a little tighter than the release's);
# - as everywhere in this book, at 0.001, on standardised weights, until two chains held out from training fit no
#   better.
#
# On task 1 both are given the same chains. "Over a Gaussian's" is the mean log density of a held-out draw, less that
# under one Gaussian fitted to the same draws. Medians over seeds, with the range.

# %% tags=["hide-input"]
Table(hmc_diagnostics.shown_flows(), source=hmc_diagnostics.flow_source())

# %% tags=["hide-input"] mystnb={"figure": {"caption": "RealNVP fitted to HMC's draws of task 1, a dot a seed. Left: held-out log density less that of one Gaussian, which is dashed; the axis is logarithmic beyond 1. Right: how often draws are right on task 1, HMC's as rings.", "name": "fig-diagnostics-flows"}, "image": {"alt": "Two panels with two lines each, RealNVP as released and as trained here. Left the log density over a Gaussian's in nats, right the accuracy of the flow's draws beside that of HMC's draws."}}
plots.flows(hmc_diagnostics.flows())

# %% tags=["hide-input"]
for name, value in hmc_diagnostics.numbers().items():
    glue(name, value, display=False)
glue("verdict_gates", paper.verdict("convergence"), display=False)
for figure in ("A3", "A5"):
    for what in ("draws", "components"):
        glue(f"verdict_{what}_{figure}", paper.verdict(f"{what}, Figure {figure}"), display=False)
glue("verdict_flow", paper.verdict("RealNVP"), display=False)
Table(tables.verdicts(hmc_diagnostics.CLAIMS))

# %% [markdown]
# ## What agrees, what does not, why
#
# **Convergence.** At the paper's settings {glue:text}`toy_pan_hmc_gate` gates are passed on Pan's set, and
# {glue:text}`toy_gaussians_hmc_gate` on the circle. With step and masses adapted,
# {glue:text}`toy_pan_hmc_adapted_gate`; without any fitted density, {glue:text}`toy_pan_hmc_exact_gate` (on the circle
# {glue:text}`toy_gaussians_hmc_exact_gate`). The paper states no threshold. With $\hat R < 1.1$ alone, for log density
# and probabilities, the paper's settings would pass {glue:text}`toy_pan_hmc_loose` on Pan's set and
# {glue:text}`toy_gaussians_hmc_loose` on the circle. Their step of 0.001 with 20 gradients moves a chain by 0.02 where
# the prior is 0.3 wide.
#
# :::{margin}
# Steps of 0.02 in random directions need about $(0.3 / 0.02)^2 \approx 225$ iterations to cross the prior once. Theory
# puts the best acceptance rate of HMC in many dimensions near 0.65 {cite:p}`neal2011mcmc`.
# :::
#
# **Densities.** Those that count, on Pan's set: {glue:text}`toy_pan_counts`. On the circle:
# {glue:text}`toy_gaussians_counts`. There most adapted mixtures count, and {doc}`/notebooks/toy_gaussians` shows that
# the earlier tasks are lost even so.
#
# **Components.** The paper says that every mixture has several modes (App. E): {glue:text}`verdict_components_A5` on
# Pan's set and {glue:text}`verdict_components_A3` on the circle. At the paper's settings, with whole chains held out,
# one component fits best every time. As published, with draws of the same chains held out, several do. The two rows
# also differ in sampler and regularisation, and a component need not be a mode: modes were not counted.
#
# **RealNVP.** As the release trains it, it depends on the seed as the paper says: held-out draws have a log density of
# {glue:text}`flow_as_released_gain` over a Gaussian's, its own draws are right on {glue:text}`flow_as_released_draws`
# of the points (with {glue:text}`flow_as_released_wrong` seeds more than a point below HMC's), and with
# {glue:text}`flow_as_released_failed` seeds more than a hundredth of the trajectories under it diverge, or chains stand
# still. At a hundredth of the learning rate, on standardised weights, its held-out density hardly does:
# {glue:text}`flow_as_here_gain`. So the instability is one of training, as far as this book's adapted sampler tells: on
# task 2 {glue:text}`flow_as_released_divergent` of its trajectories diverge under the flow as released,
# {glue:text}`flow_as_here_divergent` under the flow as trained here, and {glue:text}`hmc_adapted_divergent_2` under the
# mixture. On later tasks the mixture and the Gaussian are above a hundredth too, with
# {glue:text}`hmc_adapted_divergent_5` and {glue:text}`hmc_gaussian_divergent_5` on task 5. Rate, scaling, batches and
# stopping were changed together; which of them matters was not tested.
#
# What stays is that draws are wrong: right on {glue:text}`flow_as_here_draws`, where HMC's are right on
# {glue:text}`flow_as_here_hmc`. One Gaussian fits whole chains better than this flow does. A mixture of several
# components can fit them better than one Gaussian: in adapted rows of the tables above held-out chains chose several.
# As released, more draws are right in the median, though the density is far worse; why was not tested.
#
# **How the paper counts.** The accuracy that its code logs for the mixture is a mean over ensembles of 1 to 31 draws.
# Here 1,000 draws predict together, as with HMC's draws, on the training points of the task.
#
# **Fitted before a fault was mended.** {term}`Shrinkage <shrinkage>` measures a variance on draws that did not choose
# its axis. They were meant to be whole stretches of chains, and were not. The stored rows with shrinkage ("HMC, a GMM
# handed on", "adapted", "a Gaussian handed on") are of that time. Task 1 fitted again: {glue:text}`folds`. Later tasks
# were not fitted again.
#
# **Not tested.** Other functions of the network than the log density and twenty probabilities; what the paper says of
# ESS, which has no number; the release's own step under its flow.
#
# ## Try it
#
# 1. Set `dataset = "toy_gaussians"`. Are the densities nearer to the draws where blobs do not overlap?
#
# :::{dropdown} Answer
# Hardly. HMC's draws are right on all points of the task just learned, the density's draws on 73 % of them, and most
# densities fail.
# :::
#
# 2. Set `num_chains = 2`. What becomes of the density's draws?
#
# :::{dropdown} Answer
# With one chain of two left to fit, they are right on more points of the task just learned than with three chains of
# four. Perhaps fewer arrangements of the units are averaged over; arrangements are not measured. Every density fails
# either way.
# :::
#
# 3. Set `prior_precision = 1`. Is the posterior easier to sample under a wider prior?
#
# :::{dropdown} Answer
# No. Over tasks and seeds of the first row the median R-hat of the log density rises from 1.1 to above 1.5.
# :::
