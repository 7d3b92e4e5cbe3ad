"""Runs a plan's pieces: paper-lib sweep NAME, or snakemake --profile profiles/local --config plan=quick

Settings: plan=NAME of plans/, or the path of a file; or pieces=FILE, the list that paper-lib sweep has written, which
jobs on other nodes read too. Every piece is one `paper-lib run`, whose output is in the log beside its stamp.
"""

import json
import sys
from pathlib import Path

from paper_lib import plan

if "pieces" in config:
    PIECES = json.loads(Path(config["pieces"]).read_text())
else:
    PIECES = plan.listed(plan.load(config.get("plan", "quick")).pieces())
FOLDER = plan.folder()


rule all:
    input:
        [FOLDER / f"{name}.done" for name in PIECES],
    localrule: True


rule piece:
    output:
        FOLDER / "{name}.done",
    log:
        FOLDER / "{name}.log",
    params:
        # The name holds the key of all that determines the numbers, so what was changed is another target.
        command=lambda wildcards: PIECES[wildcards.name]["command"].removeprefix("paper-lib "),
        takes=lambda wildcards: PIECES[wildcards.name]["takes"],
        on=lambda wildcards, resources: "scripts/free_gpu.py" if resources.get("gpu") else "",
        device=lambda wildcards, resources: "cuda:0" if resources.get("gpu") else "cpu",
    resources:
        mem_mb=lambda wildcards, attempt: 4000 * attempt,
        runtime=90,
    message:
        "paper-lib {params.command} device={params.device} ({params.takes})"
    shell:
        "OMP_WAIT_POLICY=passive {sys.executable:q} {params.on}"
        " -m paper_lib.cli {params.command} device={params.device} > {log:q} 2>&1 && touch {output:q}"
