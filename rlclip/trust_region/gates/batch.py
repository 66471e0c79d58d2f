"""Gates that pick tokens by their covariance over the whole batch."""
import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from rlclip.trust_region.gates import gate
from rlclip.trust_region.gates.gate import (Array, GateInputs, GateOutput,
                                            REGISTRY)

# 5,000 tokens times 2e-4 are one token, also where float32 has 0.9999999.
_ROUNDING = 1e-4


@REGISTRY.register('covariance_clip', 'clip_cov')
@dataclasses.dataclass(frozen=True)
class CovarianceClip(gate.Gate):
  """Clip-Cov: PPO's gate, and a few tokens of high covariance lose theirs.

  cov_t = (A - mean A) (log p - mean log p), means over the batch's tokens.
  Of the tokens with cov_low < cov < cov_high that PPO does not block, at most
  max(1, cov_share * tokens) get m = 0 and a loss of 0; g = w for the others.
  The published choice among them is random. Here it goes by a hash of the bits
  of the token's float32 log p, so that it needs no key and is the same for the
  same numbers, wherever the token stands in the batch.
  blocked: removed, by either. This one acts at w = 1 too; there the token
  counts as high where A > 0 and as low where A < 0.

  Attributes:
    cov_share: share of all tokens, in (0, 1].
    cov_low: smallest covariance of a token that may be picked.
    cov_high: largest one.

  Source: arXiv 2505.22617, and verl's clip_cov as read in its code, which
  takes the means over a micro-batch; the hash is ours.
  """
  cov_share: float = 2e-4
  cov_low: float = 1.0
  cov_high: float = 5.0
  only_tokens: ClassVar[bool] = True
  whole_batch: ClassVar[bool] = True
  blocks_at_one: ClassVar[bool] = True

  def __post_init__(self):
    _check_share(self.cov_share)
    if not self.cov_low < self.cov_high:
      raise ValueError(
          f'CovarianceClip needs cov_low < cov_high, got {self.cov_low} and '
          f'{self.cov_high}.')

  def __call__(self, x: GateInputs) -> GateOutput:
    low, high = gate.leaving(x, x.advantages)
    covariance = _covariance(x)
    eligible = (x.mask & (covariance > self.cov_low)
                & (covariance < self.cov_high) & ~(low | high))
    picked = _largest(
        jnp.where(eligible, _hash(x.logps), -1), x.mask, self.cov_share)
    picked &= eligible
    loss = jnp.where(
        picked, 0.0, gate.clipped(x, low | high, gate.end(x, low)))
    still = x.log_ratio == 0
    good, bad = x.advantages > 0, x.advantages < 0
    down, up = gate.sides(x, picked & (good | bad))
    return GateOutput(loss, low | down | (picked & still & bad),
                      high | up | (picked & still & good))


@REGISTRY.register('covariance_penalty', 'kl_cov')
@dataclasses.dataclass(frozen=True)
class CovariancePenalty(gate.Gate):
  """KL-Cov: the tokens of the highest covariance are pulled to w = 1.

  loss = -w A, plus cov_coefficient |log w| for the max(1, cov_share * tokens)
  tokens with the largest cov (see CovarianceClip); m = 1, g = w, and a picked
  token's gradient has cov_coefficient sign(log w) besides, without a factor A.
  blocked: picked and w != 1, also where A = 0: changed.

  Attributes:
    cov_share: share of all tokens, in (0, 1].
    cov_coefficient: weight of |log w|, > 0.

  Source: arXiv 2505.22617, and verl's kl_cov as read in its code, which takes
  the means over a micro-batch.
  """
  cov_share: float = 2e-4
  cov_coefficient: float = 1.0
  uses_bounds: ClassVar[bool] = False
  only_tokens: ClassVar[bool] = True
  whole_batch: ClassVar[bool] = True

  def __post_init__(self):
    _check_share(self.cov_share)
    gate.check_positive(
        'CovariancePenalty', cov_coefficient=self.cov_coefficient)

  def __call__(self, x: GateInputs) -> GateOutput:
    picked = x.mask & _largest(
        jnp.where(x.mask, _covariance(x), -jnp.inf), x.mask, self.cov_share)
    # As |log w|, whose gradient at 0 would be 1 and not 0.
    pull = gate.hold(jnp.sign(x.log_ratio)) * x.log_ratio
    loss = -jnp.exp(x.log_ratio) * x.advantages + jnp.where(
        picked, self.cov_coefficient * pull, 0.0)
    return GateOutput(loss, *gate.sides(x, picked))


def _covariance(x: GateInputs) -> Array:
  """[N, C], each token's part of the covariance of A and log p, held."""
  count = jnp.maximum(jnp.sum(x.mask), 1)
  mean = lambda v: jnp.sum(jnp.where(x.mask, v, 0.0)) / count
  logps = gate.hold(x.logps)
  return (x.advantages - mean(x.advantages)) * (logps - mean(logps))


def _largest(keys: Array, mask: Array, share: float) -> Array:
  """bool[N, C], the largest keys: `share` of the mask's tokens, at least one.

  Of equal keys the first ones are taken.
  """
  most = max(int(share * mask.size + _ROUNDING), 1)
  number = jnp.maximum(jnp.floor(share * jnp.sum(mask) + _ROUNDING), 1)
  _, places = jax.lax.top_k(keys.ravel(), most)
  taken = jnp.arange(most) < number
  return jnp.zeros(mask.size, bool).at[places].set(taken).reshape(mask.shape)


def _hash(logps: Array) -> Array:
  """int32 >= 0, the bits of a float32 well mixed (the end of MurmurHash3)."""
  bits = jax.lax.bitcast_convert_type(
      gate.hold(logps).astype(jnp.float32), jnp.uint32)
  bits = (bits ^ (bits >> 16)) * jnp.uint32(0x85EBCA6B)
  bits = (bits ^ (bits >> 13)) * jnp.uint32(0xC2B2AE35)
  return ((bits ^ (bits >> 16)) >> 1).astype(jnp.int32)


def _check_share(share):
  if not 0 < share <= 1:
    raise ValueError(
        f'cov_share is a share of all tokens, in (0, 1], got {share}.')
