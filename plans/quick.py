"""The whole paper in its quick version, on data that every installation has: ten minutes on two processors."""

from paper_lib.experiments import protocl_memory
from paper_lib.plan import apart, live, shown, together
from paper_lib.rows import ROWS, TOYS

LIVE = live()
CHAPTERS = {"task_imbalance": LIVE.pop("task_imbalance")}

DATASETS = {exhibit: ("split_digits", *TOYS) for row in ROWS.values() for exhibit in row.exhibits}
DATASETS |= {"task_imbalance": ()}  # the chapter's

MEMORY = protocl_memory.selections(LIVE["protocl_memory"], protocl_memory.Sizes().totals)
SELECTIONS = together(apart([*LIVE.values(), *shown("quick", (0, 1, 2), DATASETS), *MEMORY]), rows_a_piece=4)
