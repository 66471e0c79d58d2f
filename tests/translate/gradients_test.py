"""A translated point has the gradient of the library's own formula.

The formulas are written down again here, in each library's terms, so that a
wrong reading of an option shows as a wrong number.
"""
import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rlclip import losses, translate

_WIDTH = 6


class Batch(NamedTuple):
  p: Any  # log-probs of the policy, [N, C]
  old: Any
  sampler: Any
  ref: Any
  a: Any  # [N, 1]
  m: Any  # [N, C], 0 or 1


def _batch():
  """16 rows: enough for every bound of every case to bind somewhere."""
  key = np.random.default_rng(0)
  draw = lambda scale: scale * key.normal(size=(16, _WIDTH))
  old = -1.5 + draw(0.5)
  mask = np.arange(_WIDTH) < key.integers(1, _WIDTH + 1, (16, 1))
  mask[0] = True
  return Batch(*(jnp.asarray(v, jnp.float32) for v in (
      old + draw(0.4), old, old + draw(0.4), old + draw(0.2),
      key.normal(size=(16, 1)), mask)))


def _row_mean(x, m):
  return (x * m).sum(-1, keepdims=True) / m.sum(-1, keepdims=True)


def tokens(loss, m):
  return (loss * m).sum() / m.sum()


def rows(loss, m):
  return _row_mean(loss, m).mean()


def clip(w, a, low, high):
  return -jnp.minimum(w * a, jnp.clip(w, 1 - low, 1 + high) * a)


def k3(p, ref):
  return jnp.exp(ref - p) - (ref - p) - 1


hold = jax.lax.stop_gradient


def trl_two_sided(x):  # delta 1.1 is under 1 + epsilon_high
  w = jnp.exp(x.p - x.old)
  loss = -jnp.minimum(
      jnp.minimum(w, 1.1) * x.a, jnp.clip(w, .8, 1.6) * x.a)
  return rows(loss + .1 * w * k3(x.p, x.ref), x.m)


def trl_dapo(x):
  w = jnp.exp(x.p - x.old)
  k = jnp.exp(x.old - x.sampler)
  loss = clip(jnp.minimum(w, 1.5), x.a, .2, .2)
  return tokens(jnp.where((k < .7) | (k > 1.5), 0., k) * loss, x.m)


def trl_cispo(x):
  w = hold(jnp.minimum(jnp.exp(x.p - x.old), 1.2))
  return tokens(-w * x.a * x.p + .1 * k3(x.p, x.ref), x.m)


def trl_sapo(x):
  tau = jnp.where(x.a > 0, 1.0, 2.0)
  gate = jax.nn.sigmoid(tau * (jnp.exp(x.p - x.old) - 1)) * 4 / tau
  return rows(-gate * x.a, x.m)


def trl_luspo(x):
  s = jnp.exp(_row_mean(x.p - x.old, x.m))
  return (clip(s, x.a, .01, .2) * x.m).sum(-1).mean()


def trl_dr_grpo(x):
  loss = clip(jnp.exp(x.p - x.old), x.a, .2, .2)
  return (loss * x.m).sum() / (len(loss) * 16)


def verl_vanilla(x):
  w = jnp.exp(x.p - x.old)
  loss = clip(w, x.a, .2, .28)
  loss = jnp.where(x.a < 0, jnp.minimum(-1.5 * x.a, loss), loss)
  loss = jnp.minimum(jnp.exp(x.old - x.sampler), 1.3) * loss
  return tokens(loss, x.m)


def verl_with_kl(x):
  w = jnp.exp(x.p - x.old)
  kl = jnp.clip(k3(x.p, x.ref), -10, 10)
  loss = clip(w, x.a, .2, .2)
  loss = jnp.where(x.a < 0, jnp.minimum(-3 * x.a, loss), loss)
  return rows(loss, x.m) + .1 * rows(kl, x.m)


def verl_gspo(x):
  mean = hold(_row_mean(x.p - x.old, x.m))
  s = jnp.exp(jnp.minimum(x.p - hold(x.p) + mean, 10))
  return tokens(clip(s, x.a, .01, .02), x.m)


def verl_cispo(x):
  w = hold(jnp.clip(jnp.exp(x.p - x.old), .9, 1.2))
  return tokens(-w * x.a * x.p, x.m)


def verl_geo_mean(x):
  d, sign = x.p - x.old, jnp.sign(x.a)
  d = sign * jnp.minimum(sign * d, sign * jnp.clip(d, -.1, .2))
  return (-jnp.exp(_row_mean(d, x.m)) * x.a).mean()


def verl_bypass(x):
  w = hold(jnp.minimum(jnp.exp(x.p - x.sampler), 1.3))
  return tokens(-w * x.a * x.p, x.m)


def verl_k3_plus(x):  # k2's gradient
  square = .5 * (x.p - x.ref) ** 2
  return tokens(-x.p * x.a, x.m) + .1 * tokens(square, x.m)


def tunix_gspo_token(x):
  mean = hold(_row_mean(x.p - x.old, x.m))
  s = jnp.exp(x.p - hold(x.p) + mean)
  return rows(clip(s, x.a, .01, .2), x.m) + .08 * rows(x.p - x.ref, x.m)


def tunix_agentic(x):
  k = jnp.minimum(jnp.exp(x.old - x.sampler), 1.2)
  loss = k * clip(jnp.exp(x.p - x.old), x.a, .2, .3)
  return (loss * x.m).sum() / len(loss) / _WIDTH


def openrlhf_ppo(x):
  loss = clip(jnp.exp(x.p - x.old), x.a, .2, .28)
  return tokens(loss, x.m) + .05 * tokens((x.p - x.ref) ** 2 / 2, x.m)


def openrlhf_unbiased(x):
  w = hold(jnp.minimum(jnp.exp(x.p - x.old), 10))
  loss = clip(jnp.exp(x.p - x.old), x.a, .2, .2)
  kl = w * (x.p - x.ref) ** 2 / 2
  return rows(loss, x.m) + .05 * rows(kl, x.m)


def openrlhf_gspo(x):  # with the correction on: to the sampler, no weight
  s = jnp.exp(_row_mean(x.p - x.sampler, x.m))
  return rows(clip(s, x.a, .05, .05), x.m)


def trl_vespo(x):
  w = jnp.exp(((x.p - x.old) * x.m).sum(-1, keepdims=True))
  good = x.a >= 0
  k, decay = jnp.where(good, 2., 3.), jnp.where(good, 3., 2.5)
  weight = hold(jnp.exp(decay + k * jnp.log(w) - decay * w))
  return tokens(-weight * x.a * x.p, x.m)


def trl_sequence_mask(x):
  k = jnp.exp(((x.old - x.sampler) * x.m).sum(-1, keepdims=True))
  loss = clip(jnp.exp(x.p - x.old), x.a, .2, .2)
  return tokens(jnp.where(k > 1.5, 0., k) * loss, x.m)


def trl_sequence_truncate(x):
  k = jnp.exp(((x.old - x.sampler) * x.m).sum(-1, keepdims=True))
  loss = clip(jnp.exp(x.p - x.old), x.a, .2, .2)
  return tokens(jnp.minimum(k, 1.5) * loss, x.m)


def trl_off_policy_mask(x):
  drift = _row_mean(x.old - hold(x.p), x.m)
  kept = (x.a >= 0) | (drift <= .05)
  return tokens(kept * clip(jnp.exp(x.p - x.old), x.a, .2, .2), x.m)


def verl_dppo_tv(x):
  change = jnp.exp(x.p) - jnp.exp(x.old)
  kept = jnp.where(x.a > 0, change <= .03, change >= -.03)
  w = jnp.minimum(jnp.exp(x.p - x.old), 1.5)
  return tokens(-x.a * hold(w * kept) * x.p, x.m)


def verl_dppo_kl(x):
  p, q = jnp.exp(x.p), jnp.exp(x.old)
  kl = q * (x.old - x.p) + (1 - q) * jnp.log((1 - q) / (1 - p))
  kept = (kl <= .01) | jnp.where(x.a > 0, p <= q, p >= q)
  return tokens(-x.a * hold(jnp.exp(x.p - x.old) * kept) * x.p, x.m)


def verl_dro(x):
  return tokens(-x.p * x.a + .05 * (x.p - x.old) ** 2, x.m)


_ACTOR = 'actor_rollout_ref.actor.'
_LOSS = f'{_ACTOR}policy_loss.loss_mode'
_CORRECTION = 'algorithm.rollout_correction.'
CASES = [
    (trl_two_sided, dict(loss_type='grpo', epsilon_high=.6, delta=1.1,
                         beta=.1)),
    (trl_dapo, dict(delta=1.5, use_vllm=True,
                    vllm_importance_sampling_mode='token_mask',
                    vllm_importance_sampling_clip_min=.7,
                    vllm_importance_sampling_cap=1.5)),
    (trl_cispo, dict(loss_type='cispo', epsilon_high=1.2, beta=.1,
                     use_bias_correction_kl=False)),
    (trl_sapo, dict(loss_type='sapo', sapo_temperature_neg=2)),
    (trl_luspo, dict(loss_type='luspo', importance_sampling_level='sequence',
                     epsilon=.01, epsilon_high=.2)),
    (trl_dr_grpo, dict(loss_type='dr_grpo', max_completion_length=16)),
    (verl_vanilla, {f'{_ACTOR}clip_ratio_high': .28,
                    f'{_ACTOR}clip_ratio_c': 1.5,
                    f'{_CORRECTION}rollout_is': 'token',
                    f'{_CORRECTION}rollout_is_threshold': 1.3}),
    (verl_with_kl, {f'{_ACTOR}use_kl_loss': True, f'{_ACTOR}kl_loss_coef': .1,
                    f'{_ACTOR}loss_agg_mode': 'seq-mean-token-mean'}),
    (verl_gspo, {_LOSS: 'gspo', f'{_ACTOR}clip_ratio_low': .01,
                 f'{_ACTOR}clip_ratio_high': .02}),
    (verl_cispo, {_LOSS: 'cispo', f'{_ACTOR}clip_ratio_low': .1}),
    (verl_geo_mean, {_LOSS: 'geo_mean', f'{_ACTOR}clip_ratio_low': .1}),
    (verl_bypass, {f'{_CORRECTION}bypass_mode': True,
                   f'{_CORRECTION}loss_type': 'reinforce',
                   f'{_CORRECTION}rollout_is': 'token',
                   f'{_CORRECTION}rollout_is_threshold': 1.3}),
    (verl_k3_plus, {_LOSS: 'gpg', f'{_ACTOR}use_kl_loss': True,
                    f'{_ACTOR}kl_loss_coef': .1,
                    f'{_ACTOR}kl_loss_type': 'k3+'}),
    (tunix_gspo_token, dict(loss_algo='gspo-token', beta=.08, epsilon=.01,
                            epsilon_high=.2, algo_variant='agentic_grpo',
                            use_rollout_logps=False)),
    (tunix_agentic, dict(sampler_is='token', sampler_is_threshold=1.2, beta=0,
                         epsilon_high=.3, max_response_length=_WIDTH,
                         loss_agg_mode='sequence-mean-token-scale')),
    (openrlhf_ppo, dict(eps_clip_low_high=[.2, .28], use_kl_loss=True,
                        init_kl_coef=.05, kl_estimator='k2')),
    (openrlhf_unbiased, {
        'algo.kl.use_loss': True, 'algo.kl.init_coef': .05,
        'algo.kl.unbiased_gradient': True,
        'actor.loss_agg_mode': 'seq-mean-token-mean'}),
    (openrlhf_gspo, dict(policy_loss_type='gspo', eps_clip=.05, init_kl_coef=0,
                         enable_vllm_is_correction=True)),
    (trl_vespo, dict(loss_type='vespo', vespo_lambda_neg=2.5)),
    (trl_sequence_mask, dict(use_vllm=True,
                             vllm_importance_sampling_clip_max=1.5)),
    (trl_sequence_truncate, dict(
        use_vllm=True, vllm_importance_sampling_clip_max=1.5,
        vllm_importance_sampling_mode='sequence_truncate')),
    (trl_off_policy_mask, dict(off_policy_mask_threshold=.05)),
    (verl_dppo_tv, {_LOSS: 'dppo_tv', f'{_ACTOR}clip_ratio_c': 1.5,
                    f'{_ACTOR}clip_ratio_low': .03,
                    f'{_ACTOR}clip_ratio_high': .03}),
    (verl_dppo_kl, {_LOSS: 'dppo_kl', f'{_ACTOR}clip_ratio_c': 20,
                    f'{_ACTOR}clip_ratio_low': .01,
                    f'{_ACTOR}clip_ratio_high': .01}),
    (verl_dro, {_LOSS: 'dro', f'{_ACTOR}policy_loss.dro_beta': .1}),
]


@pytest.mark.parametrize(
    'there, config', CASES, ids=[f.__name__ for f, _ in CASES])
def test_the_point_has_the_gradient_of_the_formula(there, config, tmp_path):
  path = tmp_path / 'config.json'
  path.write_text(json.dumps(config), encoding='utf-8')
  done = translate.translate(there.__name__.partition('_')[0], str(path))
  assert not done.reading.unknown
  x = _batch()

  def here(p):
    out = losses.from_arrays(
        done.point.spec, logps=p, old_logps=x.old, behavior_logps=x.sampler,
        reference_logps=x.ref, mask=x.m.astype(bool), advantages=x.a[:, 0])
    return out.loss.total / out.loss.weight

  expected = jax.grad(lambda p: there(x._replace(p=p)))(x.p)
  assert np.abs(expected).max() > 1e-3
  np.testing.assert_allclose(
      jax.grad(here)(x.p), expected, rtol=2e-5, atol=1e-7)
