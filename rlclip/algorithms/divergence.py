"""Rules that hold a divergence of distributions, or correct the sampler."""
from rlclip.algorithms.table import row
from rlclip.losses import IcePop, LossSpec, TruncatedImportance
from rlclip.losses.reduce import TokenMean
from rlclip.trust_region import bounds, gates
from rlclip.trust_region.bounds import Fixed


@row('tr_ppo', trust='PDF')
def _tr_ppo():
  """PPO's gate where KL(old || new) at the position is beyond a budget.

  Source: Wang et al., PMLR 115 (Truly PPO), equations 13 to 15, delta 0.025;
  without its critic: GRPO's advantages are taken.
  """
  return LossSpec(
      bounds=bounds.ExactDivergence('forward_kl', 0.025),
      gate=gates.PessimisticMin(), reduction=TokenMean(),
      advantage='group_zscore')


@row('tr_ppo_rb', trust='PDF')
def _tr_ppo_rb():
  """TR-PPO whose slope beyond the budget leads back.

  Source: Wang et al., PMLR 115 (Truly PPO), equation 16, delta 0.03 and alpha
  0.05; without its critic: GRPO's advantages are taken.
  """
  return LossSpec(
      bounds=bounds.ExactDivergence('forward_kl', 0.03),
      gate=gates.Rollback(0.05), reduction=TokenMean(),
      advantage='group_zscore')


def _dppo(region) -> LossSpec:
  """What DPPO's variants share: its mask, the weight capped at 20."""
  return LossSpec(
      bounds=region, gate=gates.MaskedWeight(20.0), reduction=TokenMean(),
      advantage='group_mean')


@row('dppo', 'dppo_tv', trust='2ND')
def _dppo_tv():
  """PPO's mask where the token's probability moved by more than 0.15.

  Source: arXiv 2602.04879 (DPPO, Binary-TV), against the policy that sampled;
  the form with a held, capped weight is verl's. Reduction and advantage are
  not known.
  """
  return _dppo(bounds.BinaryTotalVariation(0.15))


@row('dppo_kl', trust='2ND')
def _dppo_kl():
  """PPO's mask where the binary KL of the token is beyond 0.05.

  Source: arXiv 2602.04879 (DPPO, Binary-KL); see dppo.
  """
  return _dppo(bounds.BinaryKL(0.05, 'forward'))


@row('dppo_top_k', trust='2ND')
def _dppo_top_k():
  """PPO's mask where the KL over the likeliest tokens is beyond 0.05.

  Source: arXiv 2602.04879 (DPPO, Top-K); K and delta are not known, see the
  bounds.
  """
  return _dppo(bounds.TopKDivergence())


@row('kpop', trust='2ND')
def _kpop():
  """No gradient where either direction of the binary KL is beyond 0.1.

  Source: prime-rl's pull request 3283 (KPop), second-hand. That the sign of
  the advantage plays no part is a guess.
  """
  return LossSpec(
      bounds=bounds.Intersection(bounds.BinaryKL(0.1, 'forward'),
                                 bounds.BinaryKL(0.1, 'reverse')),
      gate=gates.Unconditional(), reduction=TokenMean(),
      advantage='group_mean')


@row('grpo_tis', trust='CODE')
def _grpo_tis():
  """PPO's clip against the learner's own log-probs, times min(k, 2).

  k = old / behavior corrects a sampler that computes otherwise.

  Source: TRL, verl and OpenRLHF (truncated importance sampling), C = 2.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(), anchor='old',
      mismatch=TruncatedImportance(2.0), reduction=TokenMean(),
      advantage='group_zscore')


@row('icepop', trust='2ND')
def _icepop():
  """PPO's clip against the learner's own log-probs, times k within [.5, 5].

  Source: arXiv 2510.18855 (IcePop). Reduction and advantage are not known.
  """
  return LossSpec(
      bounds=Fixed(0.2, 0.2), gate=gates.PessimisticMin(), anchor='old',
      mismatch=IcePop(0.5, 5.0), reduction=TokenMean(),
      advantage='group_zscore')
