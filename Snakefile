"""Runs a plan's pieces: snakemake --profile profiles/local --config plan=quick

Settings: plan=NAME of plans/, or the path of a file; missing=yes for what the committed tables lack. Every piece is one
`paper-lib run`, whose output is in the log beside its stamp.
"""

import sys

from paper_lib import plan

PIECES = {
    piece.name: piece
    for piece in plan.load(config.get("plan", "quick")).pieces(missing=str(config.get("missing", "no")) == "yes")
}
FOLDER = plan.folder()


rule all:
    input:
        [plan.stamp(piece) for piece in PIECES.values()],
    localrule: True


rule piece:
    output:
        FOLDER / "{name}.done",
    log:
        FOLDER / "{name}.log",
    params:
        # The name holds the key of all that determines the numbers, so what was changed is another target.
        command=lambda wildcards: PIECES[wildcards.name].command.removeprefix("paper-lib "),
        takes=lambda wildcards: plan.in_words(PIECES[wildcards.name].seconds()),
        on=lambda wildcards, resources: "scripts/free_gpu.py" if resources.get("gpu") else "",
        device=lambda wildcards, resources: "cuda:0" if resources.get("gpu") else "cpu",
    message:
        "paper-lib {params.command} device={params.device} ({params.takes})"
    shell:
        "OMP_WAIT_POLICY=passive {sys.executable:q} {params.on}"
        " -m paper_lib.cli {params.command} device={params.device} > {log:q} 2>&1 && touch {output:q}"
