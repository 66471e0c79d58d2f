"""Rules that weigh A log p, and rules whose gradient fades or turns."""
from rlclip.algorithms.table import row
from rlclip.losses import LossSpec
from rlclip.losses.reduce import SequenceMean, SequenceSum, TokenMean
from rlclip.trust_region import gates
from rlclip.trust_region.bounds import Fixed, FromDivergence


@row('reinforce', 'gpg', trust='TEXTBOOK')
def _reinforce():
  """The policy gradient as it stands, with no ratio and no trust region.

  Source: Williams, 1992; verl's `gpg`.
  """
  return LossSpec(bounds=None, gate=gates.Unweighted(), reduction=TokenMean(),
                  advantage='group_mean')


@row('cispo', trust='CODE')
def _cispo():
  """REINFORCE whose weight is the ratio, capped above and held fixed.

  eps_high is the distance of the cap from 1 (TRL's epsilon_high is the cap).

  Source: MiniMax, arXiv 2506.13585, upper bound only; 0.2 is that of verl's
  example script.
  """
  return LossSpec(
      bounds=Fixed(1.0, 0.2), gate=gates.ClippedWeight(),
      reduction=TokenMean(), advantage='group_zscore')


@row('topr', trust='2ND')
def _topr():
  """REINFORCE on good answers, bad ones weighed by their capped ratio.

  Source: arXiv 2503.14286 (TOPR), the ratio of the sequence within [0, 1].
  """
  return LossSpec(
      bounds=None, gate=gates.TaperedWeight(), level='sequence_product',
      reduction=SequenceMean(), advantage='group_mean')


@row('aspo', trust='CODE')
def _aspo():
  """Good tokens weigh 1 / w instead of w, with a soft dual clip at 3.

  Source: arXiv 2510.06062 (ASPO), Archer2.0's code; its wider bounds for
  tokens of high entropy are left out.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.FlippedWeight(3.0, 3.0),
      reduction=TokenMean(), advantage='group_zscore')


@row('vespo', trust='2ND')
def _vespo():
  """A weight W^k exp(lambda (1 - W)) of the sequence's ratio W.

  Source: arXiv 2602.10693 (VESPO), k and lambda (2, 3) and (3, 2) by the sign
  of A; as in TRL. Its mean over tokens is not known.
  """
  return LossSpec(
      bounds=None, gate=gates.GammaWeight(), level='sequence_product_token',
      reduction=SequenceSum(), advantage='group_zscore')


@row('sapo', trust='CODE')
def _sapo():
  """A sigmoid in place of the clip; bad tokens fade a little faster.

  Source: SAPO, arXiv 2511.20347, temperatures 1.0 and 1.05; TRL, verl.
  """
  return LossSpec(
      bounds=None, gate=gates.SoftSigmoid(), reduction=SequenceMean(),
      advantage='group_zscore')


@row('spo', trust='2ND')
def _spo():
  """A parabola in place of the clip: w A - |A| (w - 1)^2 / (2 eps).

  Source: arXiv 2401.16025 (SPO); without its critic: GRPO's advantages are
  taken.
  """
  return LossSpec(
      bounds=None, gate=gates.Quadratic(0.2), reduction=TokenMean(),
      advantage='group_zscore')


@row('drpo', trust='GUESS')
def _drpo():
  """A parabola in the probability: w A - |A| mu (w - 1)^2 / (2 delta).

  Source: arXiv 2606.09821 (DRPO), second-hand; its delta is not known.
  """
  return LossSpec(
      bounds=None, gate=gates.ShiftQuadratic(), reduction=TokenMean(),
      advantage='group_zscore')


@row('pspo', trust='GUESS')
def _pspo():
  """The policy mixed with the sampler before the ratio: ((1 - a) w + a) A.

  Source: TRL's pull request 4548 (PSPO), second-hand; a = 0.1 is a guess.
  """
  return LossSpec(
      bounds=None, gate=gates.Smoothed(0.1), reduction=SequenceMean(),
      advantage='group_zscore')


@row('dro', trust='2ND')
def _dro():
  """No ratio in the weight, and a spring in log w.

  Source: Richemond et al., arXiv 2405.19107 (DRO), on the sequence's log-ratio
  there and on tokens here, as verl is said to have it.
  """
  return LossSpec(
      bounds=None, gate=gates.SquaredLog(), reduction=TokenMean(),
      advantage='group_mean')


@row('kl_mask', trust='GUESS')
def _kl_mask():
  """Tokens with log^2(w) / 2 beyond a threshold have no gradient.

  Source: TorchRL's KL-Mask, second-hand; the threshold, as wide as eps = 0.2
  to second order, is ours.
  """
  return LossSpec(
      bounds=FromDivergence('squared_log_ratio', 0.02),
      gate=gates.Unconditional(), reduction=TokenMean(),
      advantage='group_zscore')


@row('kl_cov', trust='CODE')
def _kl_cov():
  """No clip; the tokens of the highest covariance are pulled to w = 1.

  Source: arXiv 2505.22617, and verl's `kl_cov`: a share of 2e-4, weight 1.
  """
  return LossSpec(
      bounds=None, gate=gates.CovariancePenalty(), reduction=TokenMean(),
      advantage='group_zscore')
