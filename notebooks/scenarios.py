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
# :::{admonition} Answer
# :class: tip
# **The paper:** each posterior is the next prior, and the network needs no {term}`head` of its own for each task.\
# **Here:** five tasks in sequence equal all data at once, to nine decimals. Of three layouts, one head with a unit a class can serve all three scenarios.\
# **Verdict:** holds exactly wherever the posterior is exact.
# :::
#
# **Question.** What is a learner of many {term}`tasks <task>` asked, and which networks can answer? And does a learner
# lose anything if it sees the tasks one after another? Appendix A of {cite:p}`kessler2023sequential` follows
# {cite:t}`vandeven2019three` on the first of these questions; Section 2.2 answers the second with Bayes' rule,
#
# $$p(\theta \,|\, \mathcal{D}_{1:t}) = \frac{p(\mathcal{D}_t \,|\, \theta)\; p(\theta \,|\, \mathcal{D}_{1:t-1})}{p(\mathcal{D}_t \,|\, \mathcal{D}_{1:t-1})}.$$
#
# Here $\theta$ are the parameters, $\mathcal{D}_t$ the data of task $t$ and $\mathcal{D}_{1:t}$ those of the first $t$
# tasks. The denominator is the evidence of task $t$ given the tasks before it.

# %% tags=["hide-input"]
from IPython.display import Markdown

from paper_lib import plots, schematics
from paper_lib.analysis import scenarios
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
dataset: str = "auto"  # images to show; auto: CIFAR-10, or digits where its files are not there
num_examples: int = 3  # images of each class, 1 to 10
num_tasks: int = 5  # tasks of the regression
num_points: int = 10  # points of each of its tasks
noise_precision: float = 4.0  # one over the variance of its noise
seed: int = 0  # of its data

# %% [markdown]
# ## Bayes' rule, task by task
#
# A line is learned from tasks that each show another stretch of inputs. Its posterior is Gaussian, so the rule can be
# followed without any approximation.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "A line learned task by task. Left: the posterior of intercept and slope shrinks from task to task, and the last ellipse lies on the dots of the posterior from all data at once, enlarged in the corner. Right: the log evidences of the tasks add up to that of all data.", "name": "fig-scenarios-recursion"}, "image": {"alt": "Left: ellipses of the belief about intercept and slope shrink from the prior through the tasks, and the last coincides with the dots of the belief from all data at once. Right: bars of log evidence, one a task, each starting where the one before ended, reach the dashed line of all data at once after the last task."}}
config = from_notebook(scenarios.Config, globals())
result = scenarios.run(config)
plots.recursive_bayes(result.recursion)

# %% tags=["hide-input"]
Markdown(scenarios.findings(result.recursion))

# %% [markdown]
# ## The same images, three questions
#
# The paper's Figure A1. Only the class-incremental question tells all four classes apart
# ({term}`class-incremental learning`). Only the task-incremental question is helped by the name of the task
# ({term}`task-incremental learning`). In the domain-incremental question all tasks share
# their labels, and the task is hidden, $t = ?$ ({term}`domain-incremental learning`).

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Two tasks of two classes each, and the label that task-, domain- and class-incremental learning ask for. The images are the same; the question is not.", "name": "fig-scenarios-questions"}, "image": {"alt": "Table of images: two tasks, two classes each, with the label to predict in three scenarios. Task-incremental: y is 0 or 1 and the task is named. Domain-incremental: y is 0 or 1 and the task is hidden. Class-incremental: y is 0, 1, 2 or 3 and the task is hidden."}}
figure = schematics.scenarios(*result.examples)
figure

# %% [markdown]
# Output units that compete with one another form a {term}`head`. For five tasks of two classes, as in Split-MNIST, the
# usual layouts are these:

# %% tags=["hide-input"]
Table(result.heads)

# %% [markdown]
# A layout of heads can serve a scenario if it needs no name that is withheld and if classes that must be told apart
# have units of their own:

# %% tags=["hide-input"]
Table(result.layouts)

# %% [markdown]
# ## Where the posterior is not exact
#
# For neural networks neither the posterior nor the evidence has a closed form. The paper's Figure 2 shows its
# substitute: draw samples from the posterior, fit a density to them and take that density as the prior of the next
# task.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Three tasks, a row each. Hamiltonian Monte Carlo (HMC) draws from the posterior on the right; a mixture of Gaussians fitted to the draws is the prior of the next row.", "name": "fig-scenarios-propagation"}, "image": {"alt": "Three rows of two panels, a row a task. On the left a prior as a shaded density, on the right samples of the posterior. An arrow labelled HMC leads from left to right, and an arrow labelled fit a density leads from the samples to the prior of the next row."}}
figure = schematics.hmc_propagation()
figure

# %% [markdown]
# ## What agrees, what does not, why
#
# **Sequence loses nothing.** The means, covariances and evidences in {numref}`fig-scenarios-recursion` agree with the
# batch computation to rounding error. The tests compare them with least squares and with the joint density of all
# targets.
#
# **Heads are not part of Bayes' rule.** A network with a head for each task cannot answer without the task's name,
# unless a rule chooses the head, as {term}`HIBNN` does by entropy. Without such a rule these heads serve the first
# scenario alone. A head with a unit a class can also answer the two easier questions; the reverse does not hold.
#
# **What can be lost in practice.** Where the density in {numref}`fig-scenarios-propagation` leaves out what the
# posterior holds, later tasks start from a wrong prior, and the earlier data are no longer there to correct it. The
# figure draws its samples on a grid, so it shows the idea and not the errors of {term}`HMC`.
#
# ## Try it
#
# 1. Set `noise_precision = 100`. How much narrower is the last ellipse?
#
# :::{dropdown} Answer
# The standard deviations of intercept and slope fall from 0.071 and 0.060 to 0.014 and 0.012. The noise has a fifth of
# its standard deviation, and 50 points leave little to the prior. Sequence and batch still agree.
# :::
#
# 2. Set `num_tasks = 50` and `num_points = 1`. Does the last posterior change?
#
# :::{dropdown} Answer
# No. The points and their noise are the same 50 values, dealt to 50 tasks instead of five. Intercept, slope and total
# log evidence (-36.78 nats) are the same.
# :::
#
# 3. Set `num_tasks = 1`. What do the bars show?
#
# :::{dropdown} Answer
# One bar from zero to the dashed line: the evidence of the only task is the evidence of all data.
# :::
