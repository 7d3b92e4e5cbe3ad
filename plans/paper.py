"""Every number of the book at the paper's scale: the rows of all tables and figures, and the stages of tuning.

A row, a data set and a setting come from ``paper_lib/rows.py`` and the experiments, so what is new there is planned.
"""

from dataclasses import replace

from paper_lib.experiments import (
    calibration,
    hmc_sequential,
    protocl_memory,
    protocl_tuning,
    release_audit,
    task_imbalance,
    vcl_toy_tuning,
    why_hmc_forgets,
)
from paper_lib.experiments.class_incremental import DROPPING, FEW_PASSES
from paper_lib.experiments.hmc_diagnostics import FLOWS, FOLDS, flow_selection
from paper_lib.paper import REDUCED, SEEDS, paper_scale
from paper_lib.plan import apart, shown
from paper_lib.rows import CIFARS, MNISTS, ROWS, TOYS

DATASETS = {
    **{exhibit: (*MNISTS, *CIFARS, *TOYS) for row in ROWS.values() for exhibit in row.exhibits},
    "tables": (*MNISTS, *CIFARS),
    "figure_1": ("split_mnist", *TOYS),
    "task_imbalance": (),  # the chapter's
}
"""Where each exhibit's rows are shown."""

BESIDE = [paper_scale(dataset, "sgd_single_head", scenario="class_incremental") for dataset in MNISTS]
"""SGD with pixels in [0, 1] and VCL's network, beside VCL in Table 1."""

SELECTIONS = [
    *apart([*shown("paper", range(SEEDS), DATASETS), *protocl_memory.selections()]),
    *BESIDE,
    *REDUCED,
    *DROPPING,
    *FEW_PASSES,
    replace(hmc_sequential.selection("toy_gaussians"), rows=hmc_sequential.BESIDE),
    *why_hmc_forgets.selections(),
    *map(flow_selection, FLOWS),
    FOLDS,
    *release_audit.selections(),
    *(vcl_toy_tuning.selection(d, trial) for d in TOYS for trial in range(len(vcl_toy_tuning.TRIALS))),
    *(one for d in MNISTS for method in protocl_tuning.METHODS for one in protocl_tuning.known(method, d)),
    *(one for method in calibration.METHODS for d in MNISTS for one in calibration.known(method, d)),
]
CHAPTERS = {"task_imbalance": task_imbalance.PAPER}

SEEDS_A_PIECE = {
    **dict.fromkeys(MNISTS, 2),
    **dict.fromkeys(TOYS, 3),
    **dict.fromkeys((*CIFARS, "hibnn", "hibnn_as_published"), 1),
}
"""S-FSVI took 28 minutes a seed on Split-MNIST, HIBNN 45, HMC as published 16 on the circle: a piece ends within the
hour."""
