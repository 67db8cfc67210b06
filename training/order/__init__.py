"""The order of training: which records each step holds, for each rank. Pure functions of numpy arrays.

This docstring is the specification. Tests pin its values: they never change between versions.

**Terms.** The records of a split are numbered by (shard in the manifest's order, row in the shard's index).
This number is the record's *ordinal*. N is the number of records. Every epoch has N *positions*, whatever the
balance rule, and the order says which ordinal each position holds. B is the global batch size. Step s of an
epoch covers the positions [sB, (s+1)B). All permutations are keyed: the same key gives the same permutation
(see ``permutation``), and different purposes have different keys (see ``streams``).

**Ranks.** Rank r of R takes the positions [floor(rB/R), floor((r+1)B/R)) of each step. So any number of ranks
walks the same order. Any (epoch, step) is computed in constant time, without the steps before it.

**Shares** (``shares``). Ranks of unequal speed have whole numbers s_r as shares. Let S_r = s_0 + ... +
s_{r-1}, and let S be the sum of all shares. Rank r takes [floor(B S_r / S), floor(B S_{r+1} / S)): slices of
different sizes that stay the same in every step. ``shares_of_speed`` computes shares from measured seconds
per example. It gives each row in turn to the rank that would then be done first.

**By record, natural balance** (``epochs``). Position p of epoch e holds record P(p). P is the permutation of
range(N) keyed by (seed, e). Each record comes once.

**By record, other balance rules** (``balance``). A rule fixes the number of draws m_c of each class c in an
epoch. The draws of all classes add up to N. n_c is the number of records of class c.

1. *Segments.* The epoch is divided into K = max_c ceil(m_c / n_c) segments. The draws, listed class by class,
   are dealt to the segments in turn: slot x goes to segment x mod K. So every segment has N/K draws, of which
   m_c/K are of class c; both numbers are exact within one. A permutation keyed by (seed, e, segment) spreads
   the draws of a segment over its positions.
2. *Passes.* The draws of a class, counted along the segments, are numbered j = 0 … m_c - 1 and divided into
   passes of n_c draws each. A permutation keyed by (seed, e, c, pass) orders the draws of a pass.
3. *Rotation.* The records of a class stand in one circle, in an order keyed by (seed, c). Epoch e draws the
   m_c places of the circle that begin at place e·m_c.

It follows that within an epoch each record of class c comes floor(m_c/n_c) or ceil(m_c/n_c) times, and at
most once in a pass. Passes follow each other in time, so repeats are spread over the epoch. Over several
epochs the counts of two records of a class differ by at most one: large classes rotate through all their
records.

*Several labels a record* (``balance.several_labels``). Only repeat factors draw them. The class of a record
is then its rarest label, if this label has a factor above 1; all other records are one more class.

One bias remains. Which records of a large class share an epoch depends on the circle, which stays the same
for the whole run; their order within the epoch does not. A record may come twice at short distance where one
pass ends and the next begins.

**By block** (``blocks``), for storage with slow random reads. Each record comes once. The settings are b, the
records of a block, and W, the blocks of a window.

1. *Blocks.* A shard of n records is divided into k = ceil(n/b) blocks of neighbouring records. Block i begins
   at row floor(i n/k). A block never reaches into another shard. M is the number of all blocks.
2. *Sequence.* A permutation of range(M) keyed by (seed, e) says which block stands at which place.
3. *Windows.* The sequence is divided into V = ceil(M/W) windows. Window v begins at place floor(v M/V). A
   permutation keyed by (seed, e, v) mixes the records of the window's blocks.

A step is found by a table of the epoch's block ends, which is computed once an epoch. The bias: the records
of a block always share a window, so an epoch mixes W b records at a time and not N. If neighbouring records
are of one class, the class counts of a batch vary more than in a full permutation (docs/training-order.md has
figures). A balance rule would spread repeats, and with them reads, over the epoch; so only natural balance
works with blocks. Class weights work with every order.

**Weights** (``balance``). The weight of a real example is w_i / sum w, where w is the weight of its class, or
1. The sum runs over the global batch, whatever the ranks. Padding has weight 0.

**Folds** (``folding``). With ``data.left_out_fold`` a run trains on the M records of the other
folds, which are numbered 0 to M - 1 in the order of their ordinals. All of the above holds with M for N.

**Several data sets** (``mixtures``). Without shares their records are numbered one data set after the other,
and all of the above holds for them together. With ``data.mixture_weights`` or ``mixture_temperature`` they
are dealt. Set k of K has n_k records and the weight w_k. With a temperature T it is (n_k / n)^(1/T), where n
is the largest n_k, rounded to 12 decimal places and at least 1e-12; with T = 1 it is n_k.

1. *Shares.* Set k has a_k of Q positions, in the ratios of the weights as they are written in decimal
   digits, for the smallest such Q. If that is more than 65,536, Q is 65,536. Then each set has one position,
   and the other Q - K are divided in the ratios of max(Q w_k / w - 1, 0), w the sum of the weights: rounded
   down, and the rest one each to the largest remainders (to six decimal places), of equal ones the first.
2. *Deal.* The positions of the run are numbered over all epochs: position p of epoch e is eE + p, where E
   is the number of positions of an epoch. Tijdeman's rule (1980) says which set has which of Q positions,
   again and again. Let d be 1 / (2K - 2). From position p on, draw j of set k may come if (p + 1) a_k / Q
   is at least j + d. Of the draws that may, that of the least (j + 1 - d) / a_k comes, of equal ones that
   of the first set. In the first g positions set k comes g a_k / Q times, within 1 - 1 / (2K - 2). So in
   any window its number is within 1 example of its share for two sets, and within 2 - 1 / (K - 1) for
   more. No order of three or more sets keeps within 1 in every window for all shares.
3. *Own orders.* The j-th draw of set k, from 0 on, is position j mod n_k of epoch floor(j / n_k) of its
   own order by record, with a seed keyed by (seed, k). So each record comes once in an epoch of its set,
   and a balance rule holds within each set.
4. *Epochs.* An epoch has whole steps, without padding: the fewest with n_k draws of one set from the
   start of the run (``data.mixture_end`` "first"), or of every set ("last"), or as many as are set.
5. *Class weights* are those of the records of all sets, by the draws of each class at these shares.

MixUp and CutMix mix neighbours. With equal shares of two sets these are never of one set.

**Last step.** If B does not divide N, the last step is dropped (``drop``) or filled with the records of the
epoch's first positions at weight zero (``pad``). So the shape of a batch stays fixed, and batch normalisation
sees real images.
"""

from __future__ import annotations

from shardmill.training.order.blocks import BlockSizes
from shardmill.training.order.epochs import TrainingOrder
from shardmill.training.order.folds import FoldedRecords, SubsetOrder, fold_numbers
from shardmill.training.order.from_settings import order_from_settings
from shardmill.training.order.mixtures import MixedOrder
from shardmill.training.order.passes import Passes
from shardmill.training.order.shares import Shares, rank_slice, shares_of_speed
from shardmill.training.order.steps import LastBatch, Order, SequentialOrder, StepPlan

__all__ = [
    "BlockSizes",
    "FoldedRecords",
    "LastBatch",
    "MixedOrder",
    "Order",
    "Passes",
    "SequentialOrder",
    "Shares",
    "StepPlan",
    "SubsetOrder",
    "TrainingOrder",
    "fold_numbers",
    "order_from_settings",
    "rank_slice",
    "shares_of_speed",
]
