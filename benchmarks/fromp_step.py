"""What a step of functional regularisation costs beside a step of plain training, in one run.

    python benchmarks/fromp_step.py [--device cuda:0] [--seeds 1 10] [--task 5] [--network cifarnet]

Both train a 784-256-256-10 network, or CifarNet, at batch 128 on random pixels through their methods' own ``learn``;
the time of an epoch counts order and copies as well as the step. At task 5 there are 800 memorable points, all of which
go through the network in every step: products alone make the ratio about 7, and 40 inverse kernels of 200 x 200 are
read.
"""

from __future__ import annotations

from sfsvi_step import compare

from paper_lib.methods.fromp import FROMP

if __name__ == "__main__":
    compare("FROMP", FROMP, __doc__)
