"""Rewrites the tables of the old form, one an experiment, into tables a data set, and checks that no value is lost.

The experiment leaves the key, trials become a row with changed settings, and a method that was wrapped to take its own
number of epochs for each task is that method.  Nothing is run.
"""

import json
from collections import defaultdict
from pathlib import Path

import pandas as pd

from paper_lib import runs

RESULTS = runs.RESULTS
OLD = ("protocl", "protocl_tuning", "vcl_split_mnist", "vcl_toy_tuning", "task_imbalance")


def method(stored):
    name, version, settings = stored
    if name != "EpochsByTask":
        return stored
    (inner, inner_version), own = settings["of"], settings["method"]
    return [inner, inner_version, own | {"epochs": settings["epochs"]}]


def names(experiment, line, identity):
    row, changes, settings = line["method"], {}, identity["method"][2]
    if experiment == "vcl_split_mnist" and row == "joint":
        row = "joint_unit"
    if experiment == "task_imbalance":
        row = "imbalance_" + row.split("-")[0]
        changes = {"epochs": settings["epochs"], "train_sizes": identity["stream"]["train_sizes"]}
    if experiment == "protocl_tuning":
        row = row.split("-")[0]
    if experiment == "vcl_toy_tuning":
        row = row.split("-")[0]
    return row, changes


def main():
    from paper_lib.rows import ROWS

    tables, sources, before, after = defaultdict(list), defaultdict(dict), [], []
    for experiment in OLD:
        frame = pd.read_csv(RESULTS / f"{experiment}.csv", dtype=str, keep_default_na=False)
        provenance = json.loads((RESULTS / f"{experiment}.json").read_text())
        for key, part in frame.groupby("key"):
            old = provenance[key]["identity"]
            stream = runs._told(old["stream"])
            identity = {"method": method(old["method"]), "stream": stream, "data": old["data"]}
            new = runs.key_of(json.loads(json.dumps(identity)))
            for preset, line in part.groupby("preset"):
                row, changes = names(experiment, line.iloc[0], identity)
                split = stream.get("eval_split", "test")
                if split == "validation":
                    base, _ = ROWS[row].build(stream["dataset"], "paper", {})
                    plain = json.loads(json.dumps(vars(base)))
                    mine = identity["method"][2]
                    changes = {n: v for n, v in mine.items() if plain[n] != v}
                moved = line.assign(
                    **{"row": row, "split": split, "preset": "paper", "changes": runs.written(changes), "key": new}
                )
                # A trial of one round that went on to another has one identity: the same seeds stand once.
                tables[runs._table(stream)].append(moved[runs.COLUMNS])
                before += list(
                    line[["dataset", "scenario", "seed", "task_trained", "task_tested", "metric", "value"]].itertuples(
                        index=False, name=None
                    )
                )
            entry = sources[runs._table(stream)].setdefault(new, {"identity": identity, "runs": []})
            entry["runs"] += [r for r in provenance[key]["runs"] if r not in entry["runs"]]
        for suffix in ("csv", "json"):
            (RESULTS / f"{experiment}.{suffix}").unlink()
    for name, parts in tables.items():
        table = pd.concat(parts).drop_duplicates()
        for column in ("seed", "task_trained", "task_tested"):
            table[column] = table[column].astype(int)
        table = table.sort_values([*runs.NAMES, "metric", "seed", "task_trained", "task_tested"])
        assert not table.duplicated([*runs.NAMES, "key", "seed", "task_trained", "task_tested", "metric"]).any(), name
        after += list(
            table[["dataset", "scenario", "seed", "task_trained", "task_tested", "metric", "value"]]
            .astype(str)
            .itertuples(index=False, name=None)
        )
        runs.write_whole(RESULTS / f"{name}.csv", table.to_csv(index=False))
        ordered = {key: sources[name][key] for key in sorted(sources[name])}
        runs.write_whole(RESULTS / f"{name}.json", json.dumps(ordered, indent=1, sort_keys=True) + "\n")
        print(name, len(table), "values,", table.key.nunique(), "keys,", table.groupby(runs.NAMES).ngroups, "rows")
    print(
        f"{len(before)} values before, {len(after)} after; lost: {len(set(before) - set(after))}, new: {len(set(after) - set(before))}, once instead of twice: {len(before) - len(after)}"
    )


if __name__ == "__main__":
    Path("results").exists()
    main()
