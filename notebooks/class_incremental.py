# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Class-incremental learning: Tables 1 and 2
#
# Which learner still knows all classes after the last task? Tables 1 and 2 of {cite:p}`kessler2023sequential` compare
# VCL, HIBNN, FROMP and S-FSVI (see {doc}`/prototypes`) with ProtoCL, class-incrementally: new classes come with every
# task, and a test point comes without its task. This page sets all rows side by side; the chapters on each method say
# how its settings were chosen.
#
# Below, digits with quick settings: two classes a task, and a memory or coreset of 50 points a task where a row has
# one. `sgd` keeps nothing, `joint` trains on all tasks so far.

# %%
from IPython.display import display
from myst_nb import glue

from paper_lib import metrics, plots
from paper_lib.experiments import class_incremental, vcl_split_mnist
from paper_lib.notebook import from_notebook, shown

# %% tags=["parameters"]
dataset = "split_digits"  # or split_mnist, split_fmnist; without VCL's rows also split_cifar10, split_cifar100
scenario = "class_incremental"  # the only one here
preset = "quick"  # quick, or paper for the paper's or the reference's epochs
seeds = [0, 1, 2]  # a list, one number, "0,1,2" or "0:10"
device = "cpu"  # cpu or cuda:0
methods = ["sgd", "vcl_single_head", "vcl_coreset", "replay", "protocl", "joint"]  # also vcl_coreset_k_centre

# %%
config = from_notebook(class_incremental.Config, globals())
matrices = class_incremental.matrices(class_incremental.run(config))

# %% mystnb={"image": {"alt": "Average accuracy over the tasks so far against the number of tasks learned, on digits. Joint training stays at the top, ProtoCL and replay fall a little, VCL with a coreset more, and VCL without one falls with SGD to one over the number of tasks."}}
final = {row: metrics.final_accuracy(a).mean() for row, a in matrices.items()}
if config == class_incremental.Config(device=config.device):
    assert final["vcl_single_head"] < 0.25 < final["vcl_coreset"] < final["joint"]
    assert min(final["protocl"], final["replay"]) > final["vcl_coreset"]
plots.accuracy_over_tasks({row: metrics.average_accuracy(a) for row, a in matrices.items()})

# %% [markdown]
# ## What the tables print
#
# The paper defines its metric as the final accuracy $P_5$ {eq}`eq:metrics`. Yet a learner that knows its last task
# alone, with accuracy $a$, has $P_5 = a/5$, at most 20 %, while of the fifteen accuracies on and below the diagonal of
# its matrix five are $a$, so their mean is $5a/15$, at most 33.3 %. The rows without memory print 33.01, 32.77 and
# 33.25. If nothing else is remembered, they would as $P_5$ ask for more than 100 % on the task just learned; as
# triangle means they ask for what a network reaches on two classes, and SGD, which forgets completely, measures that in
# stored runs of ten seeds:

# %%
printed = class_incremental.printed_numbers()
assert (printed["a if P_5"] > 100).all() and (printed["a if triangle"] < 100).all()
shown(printed)

# %% [markdown]
# So these printed numbers can be read as triangle means of learners that remember nothing. This is inferred: the script
# that averaged them is not released. Other rows may print other metrics: S-FSVI's 92.94 is close to the final accuracy
# that its authors report, 92.87 (README of [timrudner/S-FSVI](https://github.com/timrudner/S-FSVI), layers of 256).
#
# The margins are called standard errors over ten seeds. Of ten accuracies between 0 and 100 % the standard deviation is
# at most 52.7, so a standard error is at most 16.7, and the tables print margins of 16.96, 18.56 and 20.21.

# %%
most = metrics.summarise([0.0] * 5 + [100.0] * 5)
impossible = [key for key, (_, margin) in class_incremental.PAPER.items() if margin > most.se]
assert round(most.se, 1) == 16.7 and len(impossible) == 3
impossible

# %% [markdown]
# ## At the paper's scale
#
# Percent on the test set, `n` seeds. `pm` is the paper's margin; sd and se are ours, over seeds. The verdict is on the
# triangle mean, with $P_5$ (`P_T`) beside it: it `agrees` if the gap is at most `pm` plus two of our standard errors.
# `z` takes `pm` as a standard deviation and counts the gap in standard errors of the difference, and `P_T z` does so
# for the printed number read as a final accuracy. `reduced` rows have fewer seeds or epochs and carry no verdict, and
# `not run` rows have no runs in this book yet. Below each table stands what its rows were run with; rows from different
# public codes see different pixels, [0, 1] (`unit`) or zero mean and unit variance (`standard`).

# %%
table_1 = {name: class_incremental.comparison(name) for name in ("split_mnist", "split_fmnist")}
for name, lines in table_1.items():
    display(name, shown(lines), shown(class_incremental.settings(name), ".4g"))
    glue(f"class_incremental_{name}", shown(lines), display=False)

# %% [markdown]
# **VCL.** Without a coreset it ends knowing its last task at most, as SGD does. If the paper's runs did too, the
# printed numbers cannot be final accuracies and look like triangle means. Ours are below the printed ones, as not every
# task is learned well: on Split-MNIST the second is not; on Split-FMNIST the last is not, nor on one of three seeds the
# third. The public S-FSVI code (layers of 256, larger weights at the start, weights sampled from truncated normals in
# training) has logged one such run on Split-MNIST. It learns two of its five tasks to little more than half, and its
# triangle mean is below all of ours; what the printed number asks for, tasks learned to 99 % on average, neither
# reaches.
#
# With 200 points of each task kept aside, which a copy learns just before predictions, VCL's $P_5$ is well below that
# of plain replay of as many points, whose settings were tuned where VCL's were not; points chosen as k centres, on
# three seeds, help less than random ones. The printed numbers with a coreset have margins so wide that our rule rejects
# neither metric: by `z`, $P_5$ is nearer on Split-MNIST and the triangle mean on Split-FMNIST. The public code's run
# with a coreset is within the range of our seeds in $P_5$, but its triangle mean is below all of ours. Split-MNIST,
# ours and that code's logs:

# %% mystnb={"image": {"alt": "Accuracy matrices of VCL on Split-MNIST, after each task in rows, on each task in columns. Without a coreset everything below the diagonal is 0 and the second task is learned to about 79 percent. With a random coreset the first task stays above 70 percent, and the second and third fall to about 20; with k centres all earlier tasks end near 10 or below."}}
names = ("vcl_single_head", "vcl_coreset", "vcl_coreset_k_centre", "replay")
none, coreset, centres, replay = ([lines.loc[row] for lines in table_1.values()] for row in names)
assert all(row.P_T <= 20 and row.triangle < row.paper for row in none)
assert all(40 < row.P_T < 0.7 * other.P_T for row, other in zip(coreset, replay, strict=True))
assert all(row.P_T < other.P_T for row, other in zip(centres, coreset, strict=True))
assert all(max(abs(row.paper - row.triangle), abs(row.paper - row.P_T)) < row.pm for row in coreset)
assert [abs(row["P_T z"]) < abs(row.z) for row in coreset] == [True, False]
vcl, other = (class_incremental.matrices(class_incremental.stored(name)) for name in table_1)
assert vcl["vcl_single_head"][:, 1, 1].mean() < 0.9 and other["vcl_single_head"][:, 4, 4].mean() < 0.9
assert (other["vcl_single_head"][:, 2, 2] < 0.9).sum() == 1
logs = vcl_split_mnist.beside_public_logs(class_incremental.stored("split_mnist"))
assert all(metrics.triangle_mean(vcl[row]).min() > logs.triangle.log[row] / 100 for row in logs.index)
assert logs.learned.loc["vcl_single_head"].max() < 99
assert logs.P_T.lowest["vcl_coreset"] < logs.P_T.log["vcl_coreset"] < logs.P_T.highest["vcl_coreset"]
display(shown(logs))
plots.accuracy_matrices({row: a for row, a in vcl.items() if row.startswith("vcl")})

# %% [markdown]
# Table 2, of which nothing has been run yet:

# %%
tables = {name: shown(class_incremental.comparison(name)) for name in ("split_cifar10", "split_cifar100")}
for name, lines in tables.items():
    display(name, lines)
    glue(f"class_incremental_{name}", lines, display=False)
