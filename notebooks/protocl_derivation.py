# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The derivation of ProtoCL, step by step
#
# :::{admonition} Answer
# :class: tip
# **The paper:** class probability, updates and objective in closed form (App. F).\
# **Here:** the steps match simulation. For {glue:text}`num_shared` points of one class the printed objective is {glue:text}`product:.1f` nats a point; the exact integral is {glue:text}`exact:.1f`.\
# **Verdict:** the steps hold, but for two misprinted densities (M7); the objective is exact for a single labelled point only.
# :::
#
# **Question.** Are the formulas of the derivation of {term}`ProtoCL` right, and does its objective follow from them?
# Each step stands beside a computation that does not use its formula. The model of {cite:p}`kessler2023sequential` is
#
# $$p \sim \mathrm{Dir}(\alpha), \quad \bar z_y \sim \mathcal{N}(\mu_y, \Lambda_y^{-1}),$$
#
# $$z \,|\, y \sim \mathcal{N}(\bar z_y, \Sigma_\epsilon).$$
#
# A label $y$ has a probability $p_y$ with Dirichlet parameters $\alpha$. A class has a {term}`prototype` $\bar z_y$,
# with mean $\mu_y$ and precision $\Lambda_y$. The embedding $z$ of an input lies about the prototype of its class, with
# variance $\Sigma_\epsilon$.

# %% tags=["hide-input"]
from IPython.display import Markdown
from myst_nb import glue

from paper_lib import interactive, plots, schematics
from paper_lib.analysis import protocl_derivation
from paper_lib.notebook import from_notebook

# %% tags=["parameters"]
num_classes: int = 5  # colours of the urn, classes of the prototypes, 1 to 100
concentration: float = 0.78  # initial Dirichlet parameter of every class, as in Appendix F
noise_var: float = 0.05  # variance of an embedding about its prototype
precision: float = 1.0  # initial precision of a prototype
embedding_dim: int = 16  # dimension of the embeddings
shared: list[int] = [1, 2, 4, 8, 16, 32, 64]  # numbers of points that share a prototype
seed: int = 0  # of every random number

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Log predictive of points that share a prototype. The exact integral gains from every point that the prototype has already explained; the printed product starts from the prior each time. For one point the two are equal.", "name": "fig-derivation-swap"}, "image": {"alt": "Log predictive a point against the number of points of one class: equal for one point, then the exact integral rises steeply while the printed product of one-point integrals stays flat."}}
config = from_notebook(protocl_derivation.Config, globals())
result = protocl_derivation.run(config)
plots.prototype_swap(result.swap)

# %% tags=["hide-input"]
for name, value in protocl_derivation.numbers(result).items():
    glue(name, value, display=False)
Markdown(protocl_derivation.findings(result))

# %% [markdown]
# ## The model
#
# Dirichlet and Gaussian beliefs stay Dirichlet and Gaussian when a labelled point comes in.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The paper's Figure 6, redrawn. Above: the generative model. Below: beliefs in the embedding space, sharper for classes with more points.", "name": "fig-derivation-model"}, "image": {"alt": "Above, the graphical model: fixed alpha gives class probabilities p, which give a label y; fixed mean and precision give a prototype for each class; label, prototype and noise give the embedding z, which the encoder computes from the input x. Below, an embedding space with three classes of points, each with the mean of its prototype, a ring for the uncertainty of that mean, wider for fewer points, and a shade for the spread of points; dashed lines join a test point to the three means."}}
figure = schematics.protocl_model()
figure

# %% [markdown]
# Add points to two prototypes. Each point of a class adds $1/\sigma^2$ to the precision of its prototype, here with
# $\sigma^2 = 0.3$, and pulls the mean towards itself {eq}`eq:protocl_updates`.

# %% tags=["hide-input"]
interactive.prototypes()

# %% [markdown]
# ## The probability of a class
#
# Integrating class probabilities under their {term}`Dirichlet posterior` leaves $p(y) = \alpha_y / \sum_j \alpha_j$.
# The same law is that of Pólya's urn: draw a ball, and put it back with another of its colour. The simulation keeps the
# urns whose first three balls share a colour, here named the last class, and counts the colours of their fourth ball.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Probability of the next label after three labels of the last class. Below: how far the simulated urns lie from the closed form, in standard errors.", "name": "fig-derivation-urn"}, "image": {"alt": "Probability of the next label for five classes after three labels of the last class: simulated urns lie on the closed form, and the differences below stay within two standard errors."}}
urn = result.urn
plots.monte_carlo_check(
    urn.label, urn.closed_form, urn.monte_carlo, urn.se, x_label="class", y_label="probability\nof the next label"
)

# %% [markdown]
# ## The integral of a product of Gaussians
#
# $$\begin{aligned}&\int \mathcal{N}(x; a, A)\, \mathcal{N}(x; b, B)\, dx\\ &\qquad = \mathcal{N}(a; b, A + B)\end{aligned}$$
#
# turns the integral over a prototype into the predictive density {eq}`eq:protocl_predictive`. The estimate averages the
# second density over draws from the first.

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Log of the integral in 1 to 16 dimensions, by the formula and by Monte Carlo.", "name": "fig-derivation-integral"}, "image": {"alt": "Log of the integral of a product of two Gaussians in dimensions 1 to 16: Monte Carlo lies on the closed form, and the differences below stay within two standard errors."}}
integral = result.integral
plots.monte_carlo_check(
    integral.dim,
    integral.closed_form,
    integral.monte_carlo,
    integral.se,
    x_label="dimension",
    y_label="log of the integral\n(nats)",
)

# %% [markdown]
# ## What agrees, what does not, why
#
# **The steps hold.** The class probability and the integral agree with simulation. The updates {eq}`eq:protocl_updates`
# add counts and sums, so batches of any size and in any order end where one pass over all points ends.
#
# **The objective is not the evidence.** The paper writes the integral of a product over points as a product of one
# integral a point. Points of a class share their prototype, so the product over embeddings is exact for at most one
# point of each class ({numref}`fig-derivation-swap`). All labels share the class probabilities, so the product over
# labels is exact for a single label. Otherwise the objective is a product of one-point predictives. The figure shows
# the gap before any point is counted. Once thousands are, a prototype is nearly known and the gap is near zero.
# Maximised alone, the objective may put all classes on one point; {doc}`/notebooks/release_audit` has what it then ends
# with.
#
# **Slips in the appendix.** It writes a precision where a covariance is meant in the posterior of a prototype, and the
# updated mean where the earlier one is meant in its prior: M7 in {doc}`/notebooks/errata`.
#
# ## Try it
#
# 1. Set `concentration = 100`. What is the probability of a fourth label of the last class?
#
# :::{dropdown} Answer
# 0.205, hardly more than 1/5: the prior counts as 500 labels. With 0.78 the probability is 0.548.
# :::
#
# 2. Set `noise_var = 1`. Does the gap of {numref}`fig-derivation-swap` close?
#
# :::{dropdown} Answer
# It shrinks: for 64 points from 20 nats a point to 3. Points tell less about their prototype, so treating them apart
# costs less.
# :::
#
# 3. Set `precision = 100`. When does the product equal the exact integral?
#
# :::{dropdown} Answer
# For one point alone, but the gap shrinks from 20 to 0.5 nats a point. If the prototype is almost known beforehand,
# points say little about one another.
# :::
