"""Exact enumeration of small policies, and what it certifies.

  toy           softmax policies small enough to list all their sequences
  gradients     the exact gradient of an objective, and the expected gradient
                of a loss under the policy that samples
  certificates  named identities between the two, each an error that is ~0

All of it in float64.
"""
from rlclip.oracle import certificates
from rlclip.oracle.gradients import (exact_gradient, expected_gradient,
                                     token_penalty_gradient)
from rlclip.oracle.toy import enumerate_sequences, Toy

__all__ = ('Toy', 'certificates', 'enumerate_sequences', 'exact_gradient',
           'expected_gradient', 'token_penalty_gradient')
