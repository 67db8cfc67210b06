"""The order of training: which record at which step for which rank. A pure function, numpy only.

The records of a split are numbered by (shard order in the manifest, row in the shard's index); the number
is the record's *ordinal*. An epoch has as many *positions* as the split has records, N, whatever the balance
rule. Step s of global batch size B covers positions [sB, (s+1)B); rank r of R takes
[floor(rB/R), floor((r+1)B/R)) of them. So any number of ranks walks the same order, and any (epoch, step) is
reached in constant time.

**Shares** (training.order.shares). Ranks of unequal speed have whole numbers s_r for shares. Rank r takes
[floor(B S_r / S), floor(B S_{r+1} / S)), S_r = s_0 + ... + s_{r-1} and S the sum of all: slices of unequal
but fixed size. From measured seconds per example, rows are dealt one by one to the rank that would be done
first.

**By record, natural balance.** Position p of epoch e holds record P(p), P the permutation of range(N) keyed
by (seed, e): each record once.

**By record, other balance rules** (training.order.balance) fix the draws m_c of each class c in an epoch,
sum m_c = N.

1. *Segments.* The epoch is cut into K = max_c ceil(m_c / n_c) segments, n_c the records of class c. The
   draws, lined up class by class, are dealt to the segments in turn: slot x goes to segment x mod K. So
   every segment has N/K draws and m_c/K of each class, both within one. A permutation keyed by
   (seed, e, segment) spreads the segment's draws over its positions.
2. *Passes.* The draws of a class, counted along the segments, are j = 0 … m_c - 1. They fall into passes of
   n_c draws. A permutation keyed by (seed, e, c, pass) orders the draws of a pass anew.
3. *Rotation.* The records of a class stand in one circle, in an order keyed by (seed, c). Epoch e draws the
   m_c places from e·m_c on, around the circle.

Hence within an epoch each record of class c comes floor(m_c/n_c) or ceil(m_c/n_c) times, at most once in a
pass, and the passes lie one behind the other in time: repeats are spread. Over epochs the counts of any two
records of a class differ by one at most: large classes rotate through all their records.

The bias that is left: which records of a large class share an epoch follows from the circle, which is the
same for the whole run; their order within the epoch does not. A record may come twice close together where
one pass ends and the next begins.

**By block** (training.order.blocks), for storage where random reads are dear; each record once.

1. *Blocks.* A shard of n records is cut into k = ceil(n/b) blocks of neighbours, block i from floor(i n/k)
   on. A block lies in one shard. M is the number of all blocks.
2. *Sequence.* A permutation of range(M) keyed by (seed, e) says which block stands at which place.
3. *Windows.* The sequence is cut into V = ceil(M/W) windows, window v from place floor(v M/V) on. A
   permutation keyed by (seed, e, v) mixes the records of the window's blocks.

A step is reached by the table of the epoch's block ends, which is made once an epoch. The bias: records of a
block always share a window, so an epoch mixes W b records at a time and not N. Class counts per batch vary
more than in a permutation where neighbours are of one class (docs/training-order.md has figures). A balance
rule spreads repeats over the epoch, which would spread the reads too, so only natural balance goes with
blocks; class weights go with everything.

**Weights.** The real examples of a step weigh w_i / sum w, w the weight of their class
(training.order.class_weights) or 1; padding weighs 0. The sum is over the global batch, whatever the ranks.

**Last step.** Where B does not divide N, the last step is dropped (``drop``), or filled with the records of
the epoch's first positions at weight zero (``pad``): the shape stays fixed, and batch normalisation sees real
images.

The values are pinned by tests: they never change between versions.
"""

from __future__ import annotations

from training.order.blocks import BlockSizes
from training.order.chosen import chosen_order
from training.order.epochs import TrainingOrder
from training.order.shares import Shares, rank_slice, shares_of_speed
from training.order.steps import LastBatch, Order, SequentialOrder, StepPlan

__all__ = [
    "BlockSizes",
    "LastBatch",
    "Order",
    "SequentialOrder",
    "Shares",
    "StepPlan",
    "TrainingOrder",
    "chosen_order",
    "rank_slice",
    "shares_of_speed",
]
