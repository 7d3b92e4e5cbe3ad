r"""Gaussians under linear maps: the two steps of every recursion in this package.

Exact sequential inference with Gaussians needs only two operations on a belief :math:`\mathcal N(w; m, P)`:

- ``predict`` pushes it through a linear map with noise, :math:`w' = F w + \epsilon`,
  :math:`\mathcal N(F m,\; F P F^\top + Q)`;
- ``condition_on`` multiplies it by a linear observation, :math:`y = H w + \epsilon`,
  :math:`P'^{-1} = P^{-1} + H^\top R^{-1} H` and :math:`m' = P' (P^{-1} m + H^\top R^{-1} y)`.

Regression (``regression.py``) is ``condition_on``; a Kalman filter alternates the two; ProtoCL's prototypes are
``condition_on`` with :math:`H = I` and isotropic covariances, for which the second half of this module has a form of a
few additions in natural parameters.

``condition_on`` never forms an inverse nor a difference of covariances. With :math:`P = L L^\top`, :math:`w = m + L u`
and the whitened observation :math:`r = W u + \text{unit noise}`, one QR factorisation

.. math:: \begin{pmatrix} I & 0 \\ W & r \end{pmatrix} = Q \begin{pmatrix} T & c \\ 0 & \rho \end{pmatrix}

gives all: :math:`m' = m + L T^{-1} c`, :math:`P' = (L T^{-1}) (L T^{-1})^\top`, which cannot lose definiteness, and the
log evidence from :math:`\rho^2 = r^\top (I + W W^\top)^{-1} r` and :math:`\det(I + W W^\top) = \det T^2`. The cost is
linear in the number of observations.

Leading axes are batch axes and broadcast. The functions of full Gaussians check what they are given (and so wait for a
GPU); those of prototypes check nothing and can be captured in a CUDA graph.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

LOG_2PI = math.log(2 * math.pi)


class Gaussian(NamedTuple):
    """A multivariate normal distribution.

    Attributes:
        mean: ``(..., dim)``.
        cov: ``(..., dim, dim)``, symmetric positive definite.
    """

    mean: Tensor
    cov: Tensor


def predict(prior: Gaussian, matrix: Tensor, noise_cov: Tensor) -> Gaussian:
    """The distribution of ``matrix @ w + noise`` for ``w`` from the prior.

    Source: Kessler et al. 2023, App. G, the prior step; Bishop 2006, eq. 2.115.

    Args:
        prior: mean ``(..., dim)``, covariance ``(..., dim, dim)``.
        matrix: ``(..., dim_out, dim)``.
        noise_cov: ``(..., dim_out, dim_out)``, positive semi-definite (zeros for a map without noise).

    Returns:
        Mean ``(..., dim_out)`` and covariance ``(..., dim_out, dim_out)``.

    Raises:
        ValueError: for shapes that do not fit or a covariance that is not symmetric.
    """
    _check_gaussian("prior", prior)
    _check_map(prior, matrix, noise_cov)
    mean = (matrix @ prior.mean[..., None])[..., 0]
    return Gaussian(mean, symmetrise(matrix @ prior.cov @ matrix.mT) + noise_cov)


def condition_on(
    prior: Gaussian, y: Tensor, matrix: Tensor, noise_cov: Tensor | None = None
) -> tuple[Gaussian, Tensor]:
    """The posterior of ``w`` given ``y = matrix @ w + noise``, and how likely ``y`` was.

    Source: Kessler et al. 2023, Sec. 4, the posterior of linear regression; Bishop 2006, eq. 2.116.

    Args:
        prior: mean ``(..., dim)``, covariance ``(..., dim, dim)``.
        y: ``(..., num_y)``.
        matrix: ``(..., num_y, dim)``.
        noise_cov: ``(..., num_y, num_y)``, positive definite; without it the noise has unit covariance.

    Returns:
        The posterior, of the prior's shape, and the log density of ``y`` under the prior ``(...)``.

    Raises:
        ValueError: for shapes that do not fit, no observation, or a covariance that is singular or not symmetric.
    """
    _check_gaussian("prior", prior)
    _check_map(prior, matrix, noise_cov)
    if y.shape[-1:] != matrix.shape[-2:-1]:
        raise ValueError(f"y of shape {tuple(y.shape)} does not fit matrix of shape {tuple(matrix.shape)}")
    if y.shape[-1] == 0:
        raise ValueError("y is empty: there is no observation to condition on")

    scale = cholesky("prior.cov", prior.cov)
    residual = y[..., None] - matrix @ prior.mean[..., None]
    design = matrix @ scale
    log_det = residual.new_zeros(())
    if noise_cov is not None:
        noise_scale = cholesky("noise_cov", noise_cov)
        residual = torch.linalg.solve_triangular(noise_scale, residual, upper=False)
        design = torch.linalg.solve_triangular(noise_scale, design, upper=False)
        log_det = _log_diagonal(noise_scale)

    dim = prior.mean.shape[-1]
    batch = torch.broadcast_shapes(design.shape[:-2], residual.shape[:-2])
    rows = torch.cat([design.expand(*batch, *design.shape[-2:]), residual.expand(*batch, *residual.shape[-2:])], -1)
    unit = torch.eye(dim, dim + 1, dtype=rows.dtype, device=rows.device).expand(*batch, dim, dim + 1)
    factor = torch.linalg.qr(torch.cat([unit, rows], -2)).R  # autograd needs the other factor too
    root, shift, rho = factor[..., :dim, :dim], factor[..., :dim, dim:], factor[..., dim, dim]

    post_scale = torch.linalg.solve_triangular(root, scale.expand(*batch, dim, dim), upper=True, left=False)
    posterior = Gaussian(prior.mean + (post_scale @ shift)[..., 0], symmetrise(post_scale @ post_scale.mT))
    log_likelihood = -0.5 * (rho.square() + y.shape[-1] * LOG_2PI) - _log_diagonal(root) - log_det
    return posterior, log_likelihood


def product(left: Gaussian, right: Gaussian) -> tuple[Gaussian, Tensor]:
    """The product of two densities in the same variable, ``left * right = exp(log_normaliser) * Gaussian``.

    Source: Kessler et al. 2023, eq:matrix_cook_book; Petersen and Pedersen 2008, 8.1.8.

    Returns:
        The normalised product and ``log_normaliser`` ``(...)``, the log of the integral of the product.
    """
    _check_gaussian("right", right)
    unit = torch.eye(right.mean.shape[-1], dtype=right.mean.dtype, device=right.mean.device)
    return condition_on(left, right.mean, unit, right.cov)


def log_density(gaussian: Gaussian, x: Tensor) -> Tensor:
    """The log density ``(...)`` at ``x`` ``(..., dim)``."""
    _check_gaussian("gaussian", gaussian)
    scale = cholesky("gaussian.cov", gaussian.cov)
    white = torch.linalg.solve_triangular(scale, (x - gaussian.mean)[..., None], upper=False)[..., 0]
    return -0.5 * (white.square().sum(-1) + x.shape[-1] * LOG_2PI) - _log_diagonal(scale)


def sample(gaussian: Gaussian, num_draws: int, generator: torch.Generator | None = None) -> Tensor:
    """Independent draws ``(draw, ..., dim)``."""
    _check_gaussian("gaussian", gaussian)
    mean = gaussian.mean.expand(torch.broadcast_shapes(gaussian.mean.shape, gaussian.cov.shape[:-1]))
    noise = torch.randn(num_draws, *mean.shape, generator=generator, dtype=mean.dtype, device=mean.device)
    return mean + (cholesky("gaussian.cov", gaussian.cov) @ noise[..., None])[..., 0]


def symmetrise(matrix: Tensor) -> Tensor:
    """The symmetric part of square matrices ``(..., dim, dim)``, equal to its transpose to the last bit."""
    return 0.5 * (matrix + matrix.mT)


def cholesky(name: str, cov: Tensor) -> Tensor:
    """The lower Cholesky factor of ``cov`` ``(..., dim, dim)``.

    A covariance counts as singular where some coordinate's variance, given the coordinates before it, is rounding error
    beside its variance alone. This does not depend on the units of the coordinates.

    Raises:
        ValueError: for a covariance that is singular or indefinite to working precision; the message has ``name``.
    """
    scale, info = torch.linalg.cholesky_ex(cov)
    left = scale.diagonal(dim1=-2, dim2=-1).square() / cov.diagonal(dim1=-2, dim2=-1)
    if bool(info.any()) or not bool((left > cov.shape[-1] * torch.finfo(cov.dtype).eps).all()):
        eigenvalues = torch.linalg.eigvalsh(cov)
        raise ValueError(
            f"{name} of shape {tuple(cov.shape)} is not positive definite to {cov.dtype} precision: "
            f"eigenvalues from {float(eigenvalues.min()):.3g} to {float(eigenvalues.max()):.3g}"
        )
    return scale


def _log_diagonal(triangle: Tensor) -> Tensor:
    """Log absolute determinant of triangular matrices ``(..., dim, dim)``."""
    return triangle.diagonal(dim1=-2, dim2=-1).abs().log().sum(-1)


def _check_gaussian(name: str, gaussian: Gaussian) -> None:
    mean, cov = gaussian
    if mean.ndim == 0 or mean.shape[-1] == 0:
        raise ValueError(f"{name}.mean has shape {tuple(mean.shape)}; expected (..., dim) with dim >= 1")
    if cov.shape[-2:] != (mean.shape[-1], mean.shape[-1]):
        dim = mean.shape[-1]
        raise ValueError(
            f"{name}.cov has shape {tuple(cov.shape)}; {name}.mean of shape {tuple(mean.shape)} needs "
            f"(..., {dim}, {dim})"
        )
    if not bool(mean.isfinite().all()):
        raise ValueError(f"{name}.mean has entries that are not finite")
    _check_symmetric(f"{name}.cov", cov)


def _check_map(prior: Gaussian, matrix: Tensor, noise_cov: Tensor | None) -> None:
    dim = prior.mean.shape[-1]
    if matrix.ndim < 2 or matrix.shape[-1] != dim:
        raise ValueError(f"matrix has shape {tuple(matrix.shape)}; expected (..., dim_out, {dim})")
    if noise_cov is not None:
        dim_out = matrix.shape[-2]
        if noise_cov.shape[-2:] != (dim_out, dim_out):
            raise ValueError(f"noise_cov has shape {tuple(noise_cov.shape)}; expected (..., {dim_out}, {dim_out})")
        _check_symmetric("noise_cov", noise_cov)


def _check_symmetric(name: str, cov: Tensor) -> None:
    if cov.numel() == 0:
        return
    if not bool(cov.isfinite().all()):
        raise ValueError(f"{name} has entries that are not finite")
    asymmetry, largest = float((cov - cov.mT).abs().max()), float(cov.abs().max())
    if asymmetry > 1e3 * torch.finfo(cov.dtype).eps * largest:
        raise ValueError(
            f"{name} of shape {tuple(cov.shape)} is not symmetric: it differs from its transpose by "
            f"{asymmetry:.3g}, its largest entry is {largest:.3g}"
        )


class Prototypes(NamedTuple):
    r"""Beliefs about class means, :math:`\mathcal N(Q_c / \lambda_c, \lambda_c^{-1} I)`, in natural parameters.

    Attributes:
        precision: :math:`\lambda`, ``(..., class)``, positive.
        precision_mean: :math:`Q = \lambda \mu`, ``(..., class, dim)``.
    """

    precision: Tensor
    precision_mean: Tensor


def class_sums(z: Tensor, one_hot: Tensor) -> tuple[Tensor, Tensor]:
    """Sufficient statistics of labelled embeddings.

    Args:
        z: embeddings ``(..., n, dim)``.
        one_hot: labels ``(..., n, class)``, of the dtype of ``z``; a row of zeros (or of a weight) leaves its point out
            (or counts it so many times).

    Returns:
        Counts ``(..., class)`` and sums of embeddings ``(..., class, dim)``.
    """
    return one_hot.sum(-2), one_hot.mT @ z


def condition_prototypes(prototypes: Prototypes, counts: Tensor, sums: Tensor, noise_var: float | Tensor) -> Prototypes:
    """Posterior prototypes after labelled embeddings with isotropic noise.

    Source: Kessler et al. 2023, eq:proto_cl_norm_cov_update and eq:proto_cl_norm_mean_update.

    Args:
        prototypes: the prior.
        counts: embeddings of each class ``(..., class)``.
        sums: their sums ``(..., class, dim)``.
        noise_var: variance of an embedding about its class mean, in each dimension; a tensor broadcasts against
            ``counts``.
    """
    of_sums = noise_var[..., None] if isinstance(noise_var, Tensor) else noise_var
    return Prototypes(prototypes.precision + counts / noise_var, prototypes.precision_mean + sums / of_sums)


def prototype_log_density(prototypes: Prototypes, z: Tensor, noise_var: float | Tensor) -> Tensor:
    r"""Predictive log density of embeddings under each class, :math:`\log \mathcal N(z; \mu_c, (s^2 + 1/\lambda_c) I)`.

    Source: Kessler et al. 2023, eq:proto_cl_log_post, one factor. Distances are summed from differences: expanded into
    squares and a product, they lose 4 nats in float32 where embeddings of 250 dimensions have a norm of 1000.

    Args:
        prototypes: precision ``(..., class)``, precision times mean ``(..., class, dim)``.
        z: ``(..., n, dim)``.
        noise_var: :math:`s^2`; a tensor broadcasts against the precision.

    Returns:
        ``(..., n, class)``.
    """
    precision, precision_mean = prototypes
    inverse_var = 1 / (noise_var + 1 / precision)
    distance = torch.cdist(z, precision_mean / precision[..., None], compute_mode="donot_use_mm_for_euclid_dist")
    log_normaliser = 0.5 * z.shape[-1] * (LOG_2PI - inverse_var.log())
    return -0.5 * distance.square() * inverse_var[..., None, :] - log_normaliser[..., None, :]


def condition_dirichlet(concentration: Tensor, counts: Tensor) -> Tensor:
    """Concentration ``(..., class)`` of the Dirichlet posterior after ``counts`` ``(..., class)`` labels.

    Source: Kessler et al. 2023, eq:proto_cl_dir_updates.
    """
    return concentration + counts


def dirichlet_log_predictive(concentration: Tensor) -> Tensor:
    """Log probability ``(..., class)`` of the next label under a Dirichlet belief about class probabilities.

    Source: Kessler et al. 2023, App. F.3, the derivation of p(y).
    """
    return concentration.log() - concentration.sum(-1, keepdim=True).log()
