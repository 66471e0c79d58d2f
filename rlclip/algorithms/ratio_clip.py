"""PPO's family: an interval for the token's ratio, and a gate around it."""
from rlclip.algorithms.table import row
from rlclip.losses import LossSpec, Penalty
from rlclip.losses.reduce import SequenceMean, SequenceSum, TokenMean
from rlclip.trust_region import bounds, gates
from rlclip.trust_region.bounds import Fixed, FromDivergence, GroupAdaptive


@row('grpo', trust='2ND')
def _grpo():
  """PPO's clip with group z-scores and the unweighted k3 to a reference.

  On policy that penalty has the gradient of KL(reference || policy), not of
  the KL(policy || reference) which its value estimates.

  Source: Shao et al., arXiv 2402.03300; eps 0.2 as in PPO. beta = 0.04 is the
  value usually quoted for the paper and was not checked against its text;
  the GRPO baseline of RPG's scripts has 0.001.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(),
      penalty=Penalty('reverse_kl', 0.04, estimator='unweighted_k3'),
      reduction=SequenceMean(), advantage='group_zscore')


@row('dr_grpo', trust='2ND')
def _dr_grpo():
  """GRPO without the std in the advantage and without the length in the mean.

  Source: Liu et al., arXiv 2503.20783; sums over the token budget.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(),
      reduction=SequenceSum(), advantage='group_mean')


@row('dapo', trust='2ND')
def _dapo():
  """GRPO with a wider upper bound, token mean and no reference.

  Its dynamic sampling and overlong shaping belong to the data, not here.

  Source: Yu et al., arXiv 2503.14476, eps 0.2 and 0.28.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.28), gate=gates.PessimisticMin(),
      reduction=TokenMean(), advantage='group_zscore')


@row('atr_grpo', trust='2ND')
def _atr_grpo():
  """GRPO whose interval holds KL3 = w - 1 - log w within a budget.

  Source: Wu et al., arXiv 2602.05494. Its delta and its mean over tokens are
  not known; delta = 0.02 (as wide as eps = 0.2 to second order) is ours.
  """
  return LossSpec(
      bounds=FromDivergence('forward_kl', 0.02), gate=gates.PessimisticMin(),
      reduction=SequenceMean(), advantage='group_zscore')


@row('gapo_token', trust='2ND')
def _gapo_token():
  """GAPO on token ratios.

  Source: Jia et al., arXiv 2609.00444, token variant, widths 0.2 and 0.28.
  Its mean over tokens is not known; GRPO's is taken.
  """
  return LossSpec(
      bounds=GroupAdaptive(0.2, 0.28), gate=gates.PessimisticMin(),
      reduction=SequenceMean(), advantage='group_mean')


@row('f_grpo', trust='2ND')
def _f_grpo():
  """GRPO whose advantages shrink where success is common.

  Source: the baseline F-GRPO of arXiv 2609.00444 (GAPO), (1 - c/k)^gamma A
  without the std; its gamma is not known.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(),
      reduction=SequenceMean(), advantage='f_grpo')


@row('abc_grpo', trust='PDF')
def _abc_grpo():
  """GRPO with four bounds and without the min: outside there is no gradient.

  Source: Liu and Chen, arXiv 2601.03895, equation 5, all four widths 0.2.
  """
  return LossSpec(
      bounds=bounds.FixedBySign(), gate=gates.Unconditional(),
      reduction=SequenceMean(), advantage='group_mean')


@row('dual_clip_ppo', trust='CODE')
def _dual_clip_ppo():
  """PPO with a cap at w = 3 on how hard bad tokens are pushed down.

  Source: Ye et al., arXiv 1912.09729; verl's default loss.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.DualClip(3.0),
      reduction=TokenMean(), advantage='group_zscore')


@row('intellect_2', trust='CODE')
def _intellect_2():
  """Two-sided clip: GRPO with a cap at w = 4 where A < 0.

  Source: arXiv 2505.07291; TRL's `delta`.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.TwoSided(4.0),
      reduction=TokenMean(), advantage='group_zscore')


@row('dcpo', trust='2ND')
def _dcpo():
  """GRPO whose interval is wider for tokens that were unlikely.

  The paper's advantages, smoothed over steps, are not part of it here.

  Source: arXiv 2509.02333 (DCPO) and its repository, widths 0.16 and 0.2,
  upper bound at most 10. Its mean over tokens is not known.
  """
  return LossSpec(
      bounds=bounds.ProbabilityAdaptive(), gate=gates.PessimisticMin(),
      reduction=SequenceMean(), advantage='group_zscore')


@row('bapo', trust='2ND')
def _bapo():
  """PPO's clip with bounds searched anew in every batch.

  They widen until good tokens carry their share of the loss.

  Source: arXiv 2510.18927 (BAPO); notes and repository disagree, see the
  bounds. Reduction and advantage are not known; DAPO's are taken.
  """
  return LossSpec(
      bounds=bounds.BatchBalanced(), gate=gates.PessimisticMin(),
      reduction=TokenMean(), advantage='group_zscore')


@row('ppo_rb', trust='PDF')
def _ppo_rb():
  """PPO whose slope beyond a bound leads back.

  Source: Wang et al., PMLR 115 (Truly PPO), equation 11, alpha 0.3; without
  its critic: GRPO's advantages are taken.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.Rollback(0.3),
      reduction=TokenMean(), advantage='group_zscore')


@row('gppo', trust='2ND')
def _gppo():
  """PPO's clip whose clipped tokens keep the gradient of their bound.

  Source: arXiv 2508.07629 (GPPO). Widths 0.2 are PPO's.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.GradientPreserving(1.0, 1.0),
      reduction=TokenMean(), advantage='group_zscore')


@row('ce_gppo', trust='CODE')
def _ce_gppo():
  """GPPO with less of the gradient kept below than above.

  Source: arXiv 2509.20712 (CE-GPPO): beta1 0.75, beta2 1 and the dual clip at
  3 as its repository has them. Widths 0.2 are PPO's.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.GradientPreserving(0.75, 1.0, 3.0),
      reduction=TokenMean(), advantage='group_zscore')


@row('clip_cov', trust='CODE')
def _clip_cov():
  """PPO's clip, and a few tokens of high covariance lose their gradient.

  Source: arXiv 2505.22617, and verl's `clip_cov`: a share of 2e-4 of the
  tokens with a covariance between 1 and 5.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.CovarianceClip(),
      reduction=TokenMean(), advantage='group_zscore')


@row('opsm', trust='2ND')
def _opsm():
  """GRPO that leaves out bad answers which became too unlikely.

  Source: DeepSeek-V3.2, arXiv 2512.02556 (off-policy sequence masking); 0.5
  nats a token is that of TRL's example.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.OffPolicyMask(0.5),
      reduction=SequenceMean(), advantage='group_zscore')
