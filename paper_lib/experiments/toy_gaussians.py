"""Figure A2: as ``hmc_sequential``, on ten blobs on a circle, which a classifier can tell apart without error."""

from __future__ import annotations

from paper_lib import sweep
from paper_lib.experiments import hmc_sequential

LIVE = sweep.replace(hmc_sequential.LIVE, dataset="toy_gaussians")
CLAIMS = hmc_sequential.claims_of("toy_gaussians", "toy_gaussians", "Figure A2")
