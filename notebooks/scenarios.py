# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Three scenarios, and Bayes' rule from task to task
#
# What is a learner of many tasks asked, and which networks can answer? Appendix A of {cite:p}`kessler2023sequential`
# follows {cite:t}`vandeven2019three`: scenarios differ in what is predicted and in whether the task is named. Section
# 2.1 then says how a Bayesian should learn: the posterior after one task is the prior of the next {eq}`eq:bayes_cl`.

# %%
from paper_lib import plots, schematics
from paper_lib.analysis import scenarios
from paper_lib.notebook import from_notebook

# %% tags=["parameters"]
dataset = "auto"  # images to show; auto: CIFAR-10, or digits where its files are not there
num_examples = 3  # images of each class
num_tasks = 5  # tasks of the regression
num_points = 10  # points of each of its tasks
noise_precision = 4.0  # one over the variance of its noise
seed = 0  # of its data

# %%
config = from_notebook(scenarios.Config, globals())
result = scenarios.run(config)

# %% [markdown]
# ## The same images, three questions
#
# Figure A1 of the paper, with the first two tasks of two classes each. Only the last question tells all four classes
# apart; only the first is helped by the name of the task.

# %% mystnb={"image": {"alt": "Table of images: two tasks, two classes each, with the label to predict in three scenarios. Task-incremental: y is 0 or 1 and the task is named. Domain-incremental: y is 0 or 1 and the task is hidden. Class-incremental: y is 0, 1, 2 or 3 and the task is hidden."}}
figure = schematics.scenarios(*result.examples)
figure

# %% [markdown]
# ## Output units
#
# For five tasks of two classes, as in Split-MNIST: how many units the output layer has, which of them the first two
# tasks use, and how many of them compete for a test point. Units that compete with one another form a head; those of
# different heads never do.

# %%
result.heads

# %% [markdown]
# ## What a layout of heads can serve
#
# A head a task (multi-head) needs the task to know which head to read, so it serves the first scenario alone. One head
# serves the others. Bayes' rule knows one set of parameters and one likelihood: it asks for no heads.

# %%
result.layouts

# %% [markdown]
# ## Bayes' rule, task by task
#
# Where the posterior is exact, sequence loses nothing. A line is learned from tasks that each show another stretch
# of $x$. After the last task the belief is that of all data at once, and the evidences
# $p(\mathcal{D}_t \,|\, \mathcal{D}_{1:t-1})$, the denominators of {eq}`eq:bayes_cl`, multiply to that of all data.

# %% mystnb={"image": {"alt": "Left: ellipses of the belief about intercept and slope shrink from the prior through five tasks, and the last coincides with the dots of the belief from all data at once. Right: bars of log evidence, one a task, each starting where the one before ended, reach the dashed line of all data at once after the last task."}}
plots.recursive_bayes(result.recursion)

# %%
recursion = result.recursion
assert abs(recursion.sequential.mean[-1] - recursion.batch.mean).max() < 1e-10
assert abs(recursion.sequential.cov[-1] - recursion.batch.cov).max() < 1e-10
assert abs(recursion.log_evidence.sum() - recursion.batch_log_evidence) < 1e-8

# %% [markdown]
# **What agrees.** The rule is exact when the posterior is, and the appendix's match of heads and scenarios follows from
# what a decision can know. **What to note.** A head with a unit a class can also answer the easier questions, so a
# class-incremental learner may be tested in every scenario; the reverse does not hold. For neural networks no posterior
# is exact, and the chapters that follow ask what is left of the rule.
#
# ## What is done where the posterior is not exact
#
# The paper's Figure 2: sample the posterior of a task, fit a density to the samples, and use that density as the prior
# of the next task. What the fit loses, no later task can bring back.

# %% mystnb={"image": {"alt": "Two rows of panels, one column a task. The upper row shows priors as shaded densities, the lower row samples of the posterior. An arrow leads from the samples of each task to the prior of the next, which is a mixture of Gaussians fitted to them."}}
figure = schematics.hmc_propagation()
figure
