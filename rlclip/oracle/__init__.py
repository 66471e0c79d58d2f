"""Exact enumeration of small policies, and what it certifies.

  toy           softmax policies small enough to list all their sequences
  distances     their divergences, by token and of whole sequences
  gradients     the exact gradient of an objective, and the gradients of a
                loss for everything that the sampler can draw
  report        measure(toy, spec, ...): expected, exact, bias and variance
  examples      a rule that shows each value of each axis
  certificates  named identities between them, each an error that is ~0

All of it in float64.
"""
from rlclip.oracle import certificates
from rlclip.oracle.distances import sequence_divergence, token_divergence
from rlclip.oracle.gradients import (exact_gradient, expected_gradient,
                                     objective, sample_gradients,
                                     token_penalty_gradient)
from rlclip.oracle.report import measure, Report
from rlclip.oracle.toy import enumerate_sequences, Toy

__all__ = ('Report', 'Toy', 'certificates', 'enumerate_sequences',
           'exact_gradient', 'expected_gradient', 'measure', 'objective',
           'sample_gradients', 'sequence_divergence', 'token_divergence',
           'token_penalty_gradient')
