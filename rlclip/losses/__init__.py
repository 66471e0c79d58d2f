"""Losses: a LossSpec names one point of the space, `make` turns it to a loss.

  spec      LossSpec, one field an axis, checked when it is built
  loss      make(spec) for batches, from_arrays(spec, ...) for bare arrays
  rule      the per-token loss that all rules share
  penalty   a divergence to the reference or the sampler, beside or inside A
  dials     numbers that move in the course of a run
  mismatch  correction where sampler and learner disagree
  reduce    from tokens to a Mean
"""
from rlclip.losses.loss import from_arrays, make
from rlclip.losses.mismatch import IcePop, SequenceMask, TruncatedImportance
from rlclip.losses.penalty import Penalty
from rlclip.losses.reduce import SequenceMean, SequenceSum, TokenMean
from rlclip.losses.spec import LossSpec

__all__ = ('IcePop', 'LossSpec', 'Penalty', 'SequenceMask', 'SequenceMean',
           'SequenceSum', 'TokenMean', 'TruncatedImportance', 'from_arrays',
           'make')
