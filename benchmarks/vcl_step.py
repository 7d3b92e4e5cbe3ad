"""What a step of variational continual learning costs beside a step of plain training, in one run.

    python benchmarks/vcl_step.py [--device cuda:0] [--seeds 1 10] [--task 1]

Both train a 784-256-256-10 network at batch 128 on random pixels through their methods' own ``learn``; the time of an
epoch counts noise, order and copies as well as the step. Products alone make the ratio about 7 with 10 draws: the
mean and the variance of the first layer once, of the others once a draw, and as many again, twice, backward.
"""

from __future__ import annotations

from functools import partial

from sfsvi_step import compare

from paper_lib.methods.vcl import VCL

if __name__ == "__main__":
    compare("VCL", partial(VCL, num_samples=10, likelihood_start=False), __doc__, networks=("mlp",))
