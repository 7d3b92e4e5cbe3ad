"""The whole paper in its quick version, on data that every installation has: ten minutes on two processors."""

from paper_lib.experiments import class_incremental, metrics, protocl, task_imbalance, vcl_split_mnist
from paper_lib.plan import apart, shown, together
from paper_lib.rows import ROWS, TOYS

LIVE = [chapter.LIVE for chapter in (vcl_split_mnist, class_incremental, protocl, metrics)]
"""What the chapters run when they are read."""

DATASETS = {exhibit: ("split_digits", *TOYS) for row in ROWS.values() for exhibit in row.exhibits}
DATASETS |= {"task_imbalance": ()}  # the chapter's

SELECTIONS = together(apart([*LIVE, *shown("quick", LIVE[0].seeds, DATASETS)]), rows_a_piece=4)
CHAPTERS = {"task_imbalance": task_imbalance.LIVE}
