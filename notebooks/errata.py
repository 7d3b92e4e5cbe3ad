# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Errata
#
# :::{admonition} Answer
# :class: tip
# **The paper:** nine formulas or statements do not hold as printed (M1 to M9).\
# **Here:** every corrected number matches a third route; no printed one does.\
# **Verdict:** the argument stands, several numbers change.
# :::
#
# **Question.** Which printed formulas of {cite:p}`kessler2023sequential` do not hold, and what holds instead? Every check
# computes one quantity three times: by the printed formula, by the corrected one, and by a route that uses neither. Every
# other chapter of this book uses the corrected formula.
#
# The point with the largest effect is M1. A weight drifts between observations, and its variance from step to step is
#
# $$\sigma^2_{\text{prior}} = \eta^2 + (1-h)^{2}\, \sigma^2_{\text{post}},$$
#
# where the paper prints the exponent $-2$. Here $\sigma^2_{\text{post}}$ is the variance after the last observation, $h$ the speed at which the weight returns to zero
# and $\eta^2$ the variance of its step.

# %% tags=["hide-input"]
from paper_lib import plots
from paper_lib.analysis import errata
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
num_steps: int = 20  # Ornstein-Uhlenbeck steps without data
reversion: float = 0.2  # their speed h, above 0 and below 1
num_draws: int = 100000  # simulated paths, weights or class probabilities, at least 2
seed: int = 0  # of every random number

# %% tags=["hide-input"] mystnb={"figure": {"caption": "M1, step by step. Under the printed exponent the variance grows without bound between tasks, so that any new point would override everything known. Under the corrected exponent it settles, and the simulated paths settle with it.", "name": "fig-errata-drift"}, "image": {"alt": "Variance of a weight on a logarithmic axis against steps without data. The printed exponent gives a straight rise over several powers of ten; the corrected one levels off, on the crosses of the simulated paths."}}
config = from_notebook(errata.Config, globals())
result = errata.run(config)
plots.drift_variance(result.drift)

# %% [markdown]
# ## Checks
#
# A row a check: the point, the quantity and, in brackets, the independent route.

# %% tags=["hide-input"]
Table(errata.shown(result.checks))

# %% [markdown]
# ## What is printed, and what holds
#
# **M1** (App. G)
# : Printed: $\sigma^2_{\text{prior}} = \eta^2 + (1-h)^{-2} \sigma^2_{\text{post}}$.
# : Holds: $\eta^2 + (1-h)^{2} \sigma^2_{\text{post}}$.
#
# **M2** (Sec. 5, App. G)
# : Printed: $\eta^2 = \eta^2_{-i} H_{-ii}^\top H_{-ii}$.
# : Holds: $\eta^2 = \eta^2_{-i} H_{-ii}^\top H_{-ii} / H_{ii}^2$.
#
# **M3** (Lemma 1, App. G)
# : Printed: the data term $(y - g\, \theta^*)^2$.
# : Holds: $(\tilde y - g\, \theta^*)^2$ with $\tilde y = y - f(x; \theta_0) + g\, \theta_0$. The lemma's variance holds with
#   all other weights fixed.
#
# **M4** (Sec. 6, App. F)
# : Printed: $\int \prod_i \mathcal{N}(z_i; \bar z, \Sigma_\epsilon)\, p(\bar z)\, d\bar z$ is
#   $\prod_i \mathcal{N}(z_i; \mu, \Sigma_\epsilon + \Lambda^{-1})$, and $\prod_i p(y_i) = p(y)$.
# : Holds: both are equal for one point of a class only. See {doc}`/notebooks/protocl_derivation`.
#
# **M5** (Sec. 4)
# : Printed: $P_2 = p_{2,2} + p_{2,1}$.
# : Holds: $P_2 = (p_{2,2} + p_{2,1}) / 2$, as in App. B.
#
# **M6** (Sec. 2.3)
# : Printed: maximise $\mathrm{KL}[q_t \,\Vert\, q_{t-1}] - \mathbb{E}_{q_t}[\log p(\mathcal{D}_t \,\vert\, \theta)]$.
# : Holds: minimise it {eq}`eq:vcl`.
#
# **M7** (App. F)
# : Printed: $\mathcal{N}(\mu_{t+1}, \Lambda_{t+1})$ and $\mathcal{N}(\bar z; \mu_{y_{t+1}}, \Lambda^{-1}_{y_t})$.
# : Holds: $\mathcal{N}(\mu_{t+1}, \Lambda_{t+1}^{-1})$ and $\mathcal{N}(\bar z; \mu_{y_t}, \Lambda^{-1}_{y_t})$. The symbol
#   $\bar z$ names both a prototype and a batch's mean.
#
# **M8** (Sec. 3)
# : Printed: the multi-task posterior's performance is an upper bound to that of sequential inference.
# : Holds: the multi-task posterior is what exact sequential inference in the same model ends at. It does not bound a learner
#   with another model, and App. B itself adds that a learner "can outperform the multi-task solution".
#
# **M9** (Sec. 6)
# : Printed: embeddings with isotropic variance, prototypes with a diagonal covariance, "the Gaussians with a diagonal
#   covariance".
# : Holds: either may, but the two differ, as a diagonal prior never becomes isotropic. This book takes one precision a
#   class, as the authors' code does.

# %% [markdown]
# ## What is reported
#
# **R1** (Table 1)
# : Printed: "standard errors over 10 seeds" of 18.56, 16.96 and 20.21.
# : No standard error of ten accuracies can exceed 16.67, see {doc}`/notebooks/metrics`.
#
# **R2** (Table 2)
# : Printed: 1425 ± 28 s for FROMP on CIFAR-10 and for ProtoCL on CIFAR-100.
# : Likely a copying error; this book does not compare these times.
#
# **R3** (Table 1)
# : Printed: FROMP with ± 0.00.
# : Not the spread of different seeds: likely one run, or one seed repeated.
#
# **R4** (Table 1, App. B)
# : Printed: "mean accuracies across all tasks" and $P_5$ as "the main metric".
# : 33.01, 32.77 and 33.25 fit triangle means under complete forgetting, see {doc}`/notebooks/metrics`. No script tells
#   which score the other rows are, so this book shows both.
#
# **R5** (HIBNN)
# : Printed: a head is chosen by predictive entropy.
# : The authors' public code takes the entropy of a whole task's test set and not of a point. That is an easier question
#   than class-incremental learning.
#
# **R6** (Table 1)
# : Printed: ProtoCL and S-FSVI both in bold.
# : 93.73 ± 1.05 and 92.94 ± 0.17 overlap. Where this book ran both, differences are paired over seeds.
#
# **R7** (Table 1)
# : Printed: 84.40 for FROMP, class-incremental.
# : The log of the port by S-FSVI's authors ends at 33.44; the score depends on how memory is shared out.
#
# **R8** (Sec. 3)
# : Printed: HMC beside multi-head VCL.
# : VCL is told the task; HMC is not.
#
# **R9** (Table 1)
# : Printed: baselines "under a similar protocol".
# : Inputs, training-set sizes and which layers are Bayesian differ between the public codes; this book's settings stand in
#   {doc}`/notebooks/class_incremental`.
#
# **R10** (Figure 1, Table 1)
# : Printed: two layers of 200 units and 200 points a task.
# : No other setting is given; this book's stand in each chapter.
#
# **R11** (Sec. 6, App. F)
# : Printed: Dirichlet parameters start at 0.7 and at 0.78.
# : The authors' code starts at $e^{0.78}$. Thousands of counts outweigh either; this book takes 0.7.

# %% [markdown]
# ## What agrees, what does not, why
#
# **At the default settings** every corrected number lies within 1 % of the independent one, but for M8, where the learner has
# seen few points and lies 11 % above the noise. M3 differs a little because the lemma linearises the network.
# Every printed number is off by more than a quarter.
#
# **Not tested:** R2 and R3 are conjectures about how numbers came about, and R5 and R7 rest on other authors' public code and
# logs.
#
# ## Try it
#
# 1. Set `reversion = 0.01`. Is M1 still a large error?
#
# :::{dropdown} Answer
# A smaller one: after 20 steps the printed variance is 3.9 and the corrected one 2.3. The two exponents differ by a factor of
# $(1-h)^{-4}$ a step, which is 1.04 here and 2.44 at $h = 0.2$.
# :::
#
# 2. Set `num_steps = 1`. Which of the numbers of M1 is nearer to the simulation?
#
# :::{dropdown} Answer
# The corrected one, 0.74. The printed one is 1.66: a single step already moves the variance in the wrong direction.
# :::
#
# 3. Set `num_draws = 100`. Can the simulations still tell printed from corrected?
#
# :::{dropdown} Answer
# Yes, though they scatter. M2 gives 2.71 by simulation, for 2.13 corrected and 4.44 printed.
# :::
