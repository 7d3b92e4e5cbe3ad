# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # ProtoCL: Bayes over class prototypes
#
# :::{admonition} Answer
# :class: tip
# **The paper:** ProtoCL reaches 93.73 ± 1.05 % on Split-MNIST, 82.73 ± 1.70 % on Split-FMNIST, and 33.25 ± 0.15 % without memory (Table 1, Sec. 7).\
# **Here:** ProtoCL as published has triangle means of {glue:text}`triangle_protocl_as_published:.1f` and {glue:text}`triangle_protocl_as_published_fmnist:.1f` %, final accuracies of {glue:text}`final_protocl_as_published:.1f` and {glue:text}`final_protocl_as_published_fmnist:.1f` %; with the paper's epochs and no memory the triangle mean is {glue:text}`triangle_protocl_no_memory_paper_epochs:.1f` %; calibrated ProtoCL ends at {glue:text}`final_protocl_calibrated:.1f` and {glue:text}`final_protocl_calibrated_fmnist:.1f` % (10 seeds).\
# **Verdict:** {glue:text}`verdict_split_mnist`, as triangle means and not as the final accuracies that the paper defines. Plain replay of the same memory ends at {glue:text}`final_replay:.1f` and {glue:text}`final_replay_fmnist:.1f` %.
# :::
#
# **Question.** Does a learner remember if it is Bayesian about how data come about, class by class, rather than about
# its network's weights? Section 7 of {cite:p}`kessler2023sequential` embeds an input $x$ as $z$ with a network and
# gives every class $y$ a Gaussian {term}`prototype`:
#
# $$p(y \,|\, z) = \frac{\alpha_y\, \mathcal{N}(z;\, \mu_y,\, \Sigma_\epsilon + \Lambda_y^{-1})}{\sum_j \alpha_j\, \mathcal{N}(z;\, \mu_j,\, \Sigma_\epsilon + \Lambda_j^{-1})}.$$
#
# Here $\mu_y$ and $\Lambda_y$ are the mean and precision of the prototype, $\Sigma_\epsilon$ the noise of an embedding,
# and $\alpha_y$ the counts of the classes. Prototypes and counts are updated exactly {eq}`eq:protocl_updates`, except
# in the tuned row of Split-MNIST and in the calibrated rows: these multiply earlier evidence by 0.999 in every step.
# The network is trained by gradient descent on $-\log p(y \,|\, z)$, on the current {term}`task` together with a memory
# of 200 points a task ({term}`coreset`). The paper's text has the joint predictive {eq}`eq:protocl_predictive` instead,
# in which nothing keeps classes apart; the released code divides by the sum over classes, as here.

# %% tags=["hide-input"]
from myst_nb import glue

from paper_lib import paper, plots, sweep, tables
from paper_lib.experiments import protocl, protocl_tuning
from paper_lib.notebook import Table, from_notebook

# %% tags=["parameters"]
dataset: str = "split_digits"  # split_{digits,mnist,fmnist,cifar10,cifar100,cifar10_100}
scenario: str = "class_incremental"  # class_incremental, domain_incremental or task_incremental
preset: str = "quick"  # quick, or paper for the size of the paper
split: str = "test"  # test, or validation, a tenth of the training data
seeds: list[int] = None  # a list, one number, "0,1,2" or "0:10", if not the preset's
device: str = "cpu"  # cpu or cuda:0
rows: list[str] = ["protocl", "replay", "joint", "sgd"]  # and protocl_{paper_epochs,calibrated,as_published,no_memory}
epochs: int = None  # passes over each task, if not the preset's
batch_size: int = None  # points a step, if not the preset's
learning_rate: float = None  # of Adam, if not the preset's
weight_decay: float = None  # L2 term, if not the preset's
dropout: float = None  # rate, if not the preset's
memory_per_task: int = None  # points kept of each task, if not the preset's
evidence_mode: str = None  # cumulative, recompute_final or recompute_each_epoch, if not the preset's
class_prior: str = None  # counts or uniform, if not the preset's
forget: float = None  # factor on earlier evidence in every step, if not the preset's
label_smoothing: float = None  # share of the label that all seen classes get, if not the preset's
replay_weight: float = None  # weight of a memory point's loss, if not the preset's

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The quick run on digits with a memory of 50 points a task. ProtoCL and replay of the same memory remember most of what joint training does. SGD, without memory, ends with its last task.", "name": "fig-protocl-live"}, "image": {"alt": "Final accuracy and triangle mean of four learners on digits as dots. Joint training is near 97 percent, replay and ProtoCL near 92, SGD at 18."}}
selection = from_notebook(protocl.LIVE, globals())
table = sweep.run(selection)
plots.scores({sweep.title(selection): tables.comparison(table, (), selection.rows)})

# %% [markdown]
# ## At the paper's scale
#
# Split-MNIST first, then Split-FMNIST; the paper's networks and memory. Settings of ProtoCL and {term}`replay` were
# chosen on validation data, the number of epochs among them. "The paper's epochs" has the best settings with 50; they
# predict with equal class probabilities, where the paper has counts, and on Split-FMNIST find prototypes anew after
# each task. "Calibrated" rows were chosen later, for accuracy and likelihood together. "As published" is the
# configuration of the release, the authors' code
# ([skezle/bayes_cl_posterior](https://github.com/skezle/bayes_cl_posterior)). Replay has the same memory and no
# prototypes.

# %% tags=["hide-input"]
mnist = protocl.comparison("split_mnist")
shown, more = tables.side_by_side(mnist, paper.label)
Table(shown.rename_axis(index="on Split-MNIST"), more=more, source=tables.source(protocl.stored("split_mnist")))

# %% tags=["hide-input"]
fmnist = protocl.comparison("split_fmnist")
shown, more = tables.side_by_side(fmnist, paper.label)
Table(shown.rename_axis(index="on Split-FMNIST"), more=more, source=tables.source(protocl.stored("split_fmnist")))

# %% tags=["hide-input"] mystnb={"figure": {"caption": "The rows with memory. Grey is the printed number with its ±. The triangle means of ProtoCL (open dots) lie within it; those of calibrated ProtoCL, a row without a printed number, lie above it. Final accuracies (filled dots) of ProtoCL lie below it or, calibrated, near its lower end.", "name": "fig-protocl-stored"}, "image": {"alt": "Two panels, Split-MNIST and Split-FMNIST. Open dots of three ProtoCL rows lie within the grey bars of the printed numbers, filled dots three to four points below the open ones. Calibrated ProtoCL ends beside the two rows of replay, joint training furthest right."}}
plots.scores({"Split-MNIST": mnist[mnist.final > 50], "Split-FMNIST": fmnist[fmnist.final > 50]})

# %% [markdown]
# What this chapter says about the stored runs, each with its verdict. Folded away: what ProtoCL should reach, written
# down before the runs.

# %% tags=["hide-input"]
for name, value in protocl.numbers().items():
    glue(name, value, display=False)
Table(tables.verdicts(protocl.CLAIMS), more=protocl.shown_targets(), summary="targets set beforehand")

# %% [markdown]
# ## What agrees, what does not, why
#
# **As triangle means the printed numbers are met, within their ±.** ProtoCL as published has
# {glue:text}`triangle_protocl_as_published:.1f` % on Split-MNIST and
# {glue:text}`triangle_protocl_as_published_fmnist:.1f` % on Split-FMNIST. The caption calls the ± a standard error.
# Read so, within twice the ± lie the triangle means as published, tuned and with the paper's epochs, and none of their
# final accuracies. Calibrated ProtoCL, which the paper lacks, is within it by both metrics: final accuracies below the
# printed numbers, triangle means above. Three other printed ± cannot be standard errors, so this book also reads them
# more strictly, as a standard deviation over ten seeds. By that reading the gap is more than chance for ProtoCL as
# published on both sets (z {glue:text}`z_protocl_as_published:+.1f` and
# {glue:text}`z_protocl_as_published_fmnist:+.1f`), for the tuned ProtoCL on Split-MNIST ({glue:text}`z_protocl:+.1f`)
# and for the paper's epochs on Split-FMNIST ({glue:text}`z_protocl_paper_epochs_fmnist:+.1f`).
#
# **As final accuracies they are not met.** ProtoCL as published ends at {glue:text}`final_protocl_as_published:.1f` and
# {glue:text}`final_protocl_as_published_fmnist:.1f` %. That the paper prints triangle means is inferred from its number
# without memory, 33.25: with the paper's epochs the triangle mean here is
# {glue:text}`triangle_protocl_no_memory_paper_epochs:.2f` % and the final accuracy
# {glue:text}`final_protocl_no_memory_paper_epochs:.1f` %.
#
# **The memory prevents forgetting, as the paper says, and the prototypes are not needed for it.** The paper's own
# sentence, that the main mechanism is the memory and not the sequential inference over prototypes:
# {glue:text}`verdict_memory`. Both
# tuned for accuracy, ProtoCL ends {glue:text}`protocl_beside_replay` replay of the same memory on Split-MNIST and
# {glue:text}`protocl_beside_replay_fmnist` on Split-FMNIST. Validation data chose 6 epochs for ProtoCL and 25 for
# replay.
#
# **Tuned for accuracy, ProtoCL is over-confident.** Its {term}`NLL` after the last task is {glue:text}`nll_protocl:.2f`
# nats on Split-MNIST, where replay has {glue:text}`nll_replay:.2f`. On Split-FMNIST it is
# {glue:text}`nll_protocl_fmnist:.2f` against {glue:text}`nll_replay_fmnist:.2f`. Its calibration error ({term}`ECE`, a
# mean over tasks) is {glue:text}`ece_protocl:.2f` against {glue:text}`ece_replay:.2f`, and
# {glue:text}`ece_protocl_fmnist:.2f` against {glue:text}`ece_replay_fmnist:.2f`.
#
# **Calibration mends the likelihood and adds accuracy.** With {term}`label smoothing` of 0.1 and a memory that weighs
# four times as much (on Split-FMNIST earlier evidence is also forgotten a little and weights decay), the NLL falls to
# {glue:text}`nll_protocl_calibrated:.2f` and {glue:text}`nll_protocl_calibrated_fmnist:.2f`, and the final accuracy
# rises to {glue:text}`final_protocl_calibrated:.1f` and {glue:text}`final_protocl_calibrated_fmnist:.1f` %. The ECE
# falls on Split-FMNIST, to {glue:text}`ece_protocl_calibrated_fmnist:.2f`, and rises to
# {glue:text}`ece_protocl_calibrated:.2f` on Split-MNIST, probably because smoothed labels make ProtoCL less sure than
# it is right. A smoothed label says that an embedding is drawn from its class in nine cases of ten, and from any class
# seen so far in the tenth. So embeddings need not fly ever farther apart.
#
# **Beside replay it depends on how replay was tuned.** Replay chosen by the same score from the same trials ends at
# {glue:text}`final_replay_calibrated:.1f` and {glue:text}`final_replay_calibrated_fmnist:.1f` %, below calibrated
# ProtoCL. Replay tuned for accuracy has 25 epochs, more than any of these trials. By the same score, on the test set,
# it leads calibrated ProtoCL on Split-MNIST by less than half a point, and is behind it on Split-FMNIST. In final
# accuracy calibrated ProtoCL ends, beside it, {glue:text}`calibrated_beside_replay` on Split-MNIST and
# {glue:text}`calibrated_beside_replay_fmnist` on Split-FMNIST. {term}`Joint training <joint training>`, the best of
# eight trials by the same score, ends at {glue:text}`final_joint_calibrated:.1f` and
# {glue:text}`final_joint_calibrated_fmnist:.1f` %.
#
# **"As published" is not the release to the letter.** Like the release, it keeps a posterior for each place in a batch,
# leaves dropout on in evaluation, has one hidden layer of 256 units and shares 1,000 points of memory among the tasks.
# It differs in five ways. Evaluation labels update nothing. The test set is scored, where the release's commands score
# a validation split. Partial batches of the test set are scored too. The points left out of training are not those of
# the release's fixed split. And the release's seeding for each task is not repeated.
#
# **Not tested.** Which change of calibration matters; whether replay's lead by score on Split-MNIST is chance.
#
# **Elsewhere.** Another kind of processor moves a seed's final accuracy by up to half a point. CIFAR streams stand in
# {doc}`/notebooks/class_incremental`, other sizes of the memory in {doc}`/notebooks/protocl_memory`.
#
# ## How the settings were chosen
#
# Trials learn from nine tenths of the training data and are scored on the last tenth, by the mean of final accuracy and
# triangle mean. Each data set has 60 trials of ProtoCL and 48 of replay. Twelve trials of ProtoCL have the paper's 50
# epochs. Each method has 24 trials of 3 to 25 epochs, and 24 more near the best of those. The best trials ran on two
# more seeds, and the winners there are the rows above. The grid covers learning rate, dropout, weight decay, the weight
# and repetition of replayed points, and for ProtoCL how evidence is forgotten and what predicts.
#
# An earlier, smaller grid came first. Its winners were scored on the test set before the grid was extended to this one.
# So the test set was seen before these settings were final.
#
# The calibrated rows come from a second search. Both methods take the same 21 trials, each with as many steps for one
# as for the other. The best three ran on two more seeds. Its score takes five points off for every nat of NLL. One of
# the trials was set by hand: ProtoCL's own tuned settings, with labels smoothed and a heavier memory, which both
# methods took. Its settings had been scored on the test set in an earlier check (three seeds, about 92 and 81 %),
# before the grid was written, so the test set was seen a second time. This trial won for ProtoCL on both data sets;
# without it the winner would be a drawn trial that is {glue:text}`drawn_behind:.1f` and
# {glue:text}`drawn_behind_fmnist:.1f` points of score behind it on validation data. The baselines had as many trials of
# settings of their own ({doc}`/notebooks/class_incremental`).

# %% tags=["hide-input"] mystnb={"figure": {"caption": "Each dot is a trial: the mean of final accuracy and triangle mean on validation data. The best trials of both methods are within a few points of one another from 3 to 50 epochs. The best of each method is ringed: that of replay lies above that of ProtoCL on both sets. Arrows at the edge are trials more than ten points below the best.", "name": "fig-protocl-tuning"}, "image": {"alt": "Validation score against epochs a task on both data sets, a dot a trial. The best settings of either method are within a few points of one another from 3 to 50 epochs; some of ProtoCL fail. On both sets the best dots of replay lie above the best of ProtoCL."}}
plots.scores_by_epochs(protocl_tuning.by_title())

# %% [markdown]
# ## Try it
#
# 1. Set `memory_per_task = 0`. What do the exact updates of the prototypes save?
#
# :::{dropdown} Answer
# Almost nothing: ProtoCL ends at 20 %, SGD at 18 %. The prototypes of earlier classes stay exactly where they were, but
# the network moves, and with it the embeddings of those classes.
# :::
#
# 2. Set `memory_per_task = 5`. Do prototypes help where the memory is small?
#
# :::{dropdown} Answer
# No. ProtoCL ends at 68 % and replay of the same 5 points a task at 74 %. With 50 points they end at 92 and 91 %.
# :::
#
# 3. Set `scenario = "task_incremental"`. How much is forgotten if the task is told?
#
# :::{dropdown} Answer
# Told the task, SGD ends at 95 %, where it had 18 %, and ProtoCL at 99 %, as replay does. But telling the task changes
# training too: outputs of other tasks are no longer pushed down. The two were not separated.
# :::
