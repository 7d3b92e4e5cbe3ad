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
# Appendix F of {cite:p}`kessler2023sequential` derives the updates and the objective of the prototype model
# {eq}`eq:protocl_model` in closed form. Here each step stands beside a computation that does not use its formula.

# %%
from paper_lib import plots, schematics
from paper_lib.analysis import protocl_derivation
from paper_lib.notebook import from_notebook

# %% tags=["parameters"]
num_classes = 5  # colours of the urn, classes of the prototypes
concentration = 0.78  # initial Dirichlet parameter of every class, as in Appendix F
noise_var = 0.05  # variance of an embedding about its prototype
precision = 1.0  # initial precision of a prototype
embedding_dim = 16  # dimension of the embeddings
seed = 0  # of every random number

# %%
config = from_notebook(protocl_derivation.Config, globals())
result = protocl_derivation.run(config)

# %% [markdown]
# ## The model
#
# Figure 6 of the paper. A label has a probability $p_y$, a class has a prototype $\bar z_y$, and an input's embedding
# lies about the prototype of its class; Dirichlet and Gaussian beliefs about them stay Dirichlet and Gaussian.

# %% mystnb={"image": {"alt": "Left, the graphical model: fixed alpha gives class probabilities p, which give a label y; fixed mean and precision give a prototype for each class; label, prototype and noise give the embedding z, which the encoder computes from the input x. Right, an embedding space with three classes of points, each with the mean of its prototype, a ring for the uncertainty of that mean, wider for fewer points, and a shade for the spread of points; dashed lines join a test point to the three means."}}
figure = schematics.protocl_model()
figure

# %% [markdown]
# ## The probability of a class
#
# Integrating class probabilities under their Dirichlet posterior leaves $p(y) = \alpha_y / \sum_j \alpha_j$. The same
# law is that of Pólya's urn: draw a ball, put it back with another of its colour. Of many urns we keep those that
# gave the last colour three times, and count the colours of their fourth ball.

# %% mystnb={"image": {"alt": "Probability of the next label for five classes after three labels of the last class: simulated urns lie on the closed form, and the differences below stay within two standard errors."}}
urn = result.urn
plots.monte_carlo_check(
    urn.label, urn.closed_form, urn.monte_carlo, urn.se, x_label="class", y_label="probability of the next label"
)

# %% [markdown]
# ## The integral of a product of Gaussians
#
# $\int \mathcal{N}(x; a, A)\, \mathcal{N}(x; b, B)\, dx = \mathcal{N}(a; b, A + B)$, which turns the integral over a
# prototype into the predictive density {eq}`eq:protocl_predictive`. The estimate averages the second density over
# draws of the first.

# %% mystnb={"image": {"alt": "Log of the integral of a product of two Gaussians in dimensions 1 to 16: Monte Carlo lies on the closed form, and the differences below stay within two standard errors."}}
integral = result.integral
plots.monte_carlo_check(
    integral.dim,
    integral.closed_form,
    integral.monte_carlo,
    integral.se,
    x_label="dimension",
    y_label="log of the integral (nats)",
)

# %% [markdown]
# ## Updates in sequence
#
# The updates {eq}`eq:protocl_updates` add counts and sums, so batches of any size and in any order end where one pass
# over all points ends.

# %%
assert (abs(urn.monte_carlo - urn.closed_form) < 4 * urn.se).all()
assert (abs(integral.monte_carlo - integral.closed_form) < 4 * integral.se).all()
assert (result.updates.difference < 1e-12).all()

# %% [markdown]
# ## The swap of product and integral
#
# The objective integrates a product over points, and the paper writes it as a product of one integral a point. Points
# of a class share their prototype, so the two are equal for one point a class alone. The exact integral, by
# conditioning on one point after another, gains from every point that the prototype has already explained; the
# product starts from the prior each time.

# %% mystnb={"image": {"alt": "Log predictive a point against the number of points of one class: equal for one point, then the exact integral rises steeply while the printed product of one-point integrals stays flat."}}
assert abs(result.swap.exact[0] - result.swap["product"][0]) < 1e-9
assert (result.swap.exact > result.swap["product"])[1:].all()
plots.prototype_swap(result.swap)

# %% [markdown]
# **What agrees.** The class probability, the integral and the updates are right as printed. **What does not.** The
# objective is exact for one point of a class and otherwise a product of one-point predictives, a composite objective.
# It is not the evidence of the batch, and maximised alone it may put all classes on one point: see {doc}`protocl`.
# The appendix also writes a precision where a covariance is meant in the posterior of a prototype.
