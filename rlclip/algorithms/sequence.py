"""Rules whose ratio belongs to the whole sequence."""
from rlclip.algorithms.table import row
from rlclip.losses import LossSpec
from rlclip.losses.reduce import SequenceMean, SequenceSum
from rlclip.trust_region import gates
from rlclip.trust_region.bounds import Fixed, FromDivergence, GroupAdaptive


@row('gspo', trust='CODE')
def _gspo():
  """PPO's clip on the geometric mean of a sequence's ratios.

  Source: Zheng et al., arXiv 2507.18071, widths 3e-4 and 4e-4; as in TRL and
  verl.
  """
  return LossSpec(
      bounds=Fixed(3e-4, 4e-4), gate=gates.PessimisticMin(), level='sequence',
      reduction=SequenceMean(), advantage='group_zscore')


@row('gspo_token', trust='CODE')
def _gspo_token():
  """GSPO with each token's own gradient, so that advantages may differ.

  With one advantage a sequence its gradient is GSPO's.

  Source: Zheng et al., arXiv 2507.18071, section 4.3; as in TRL and verl.
  """
  return LossSpec(
      bounds=Fixed(3e-4, 4e-4), gate=gates.PessimisticMin(),
      level='sequence_token', reduction=SequenceMean(),
      advantage='group_zscore')


@row('luspo', trust='CODE')
def _luspo():
  """GSPO times the sequence's length.

  Source: arXiv 2602.05261 (LUSPO), widths 2e-3 and 2.5e-3; as in TRL.
  """
  return LossSpec(
      bounds=Fixed(2e-3, 2.5e-3), gate=gates.PessimisticMin(),
      level='sequence', reduction=SequenceSum(1.0), advantage='group_zscore')


@row('gapo', trust='2ND')
def _gapo():
  """GSPO with an upper bound that widens as success gets rarer in the group.

  Source: Jia et al., arXiv 2609.00444, equation 11, widths 3e-3 and 5e-3,
  advantages without std.
  """
  return LossSpec(
      bounds=GroupAdaptive(3e-3, 5e-3), gate=gates.PessimisticMin(),
      level='sequence', reduction=SequenceMean(), advantage='group_mean')


@row('f_gspo', trust='2ND')
def _f_gspo():
  """GSPO whose advantages shrink where success is common.

  Source: the baseline F-GSPO of arXiv 2609.00444 (GAPO), widths 3e-3 on both
  sides as its GSPO has them; its gamma is not known.
  """
  return LossSpec(
      bounds=Fixed(3e-3, 3e-3), gate=gates.PessimisticMin(), level='sequence',
      reduction=SequenceMean(), advantage='f_grpo')


@row('gmpo', trust='CODE')
def _gmpo():
  """Tokens are clipped in log w by 0.4, and their geometric mean weighs A.

  The bounds exp(-0.4) and exp(0.4) are those of |log w| <= 0.4.

  Source: GMPO, arXiv 2507.20673; verl's `geo_mean`.
  """
  return LossSpec(
      bounds=FromDivergence('absolute_log_ratio', 0.4),
      gate=gates.GeometricMean(), reduction=SequenceMean(),
      advantage='group_zscore')
