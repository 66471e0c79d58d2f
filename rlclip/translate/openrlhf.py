"""OpenRLHF's arguments of train_ppo_ray as a point of the space of rules.

Read from OpenRLHF 0.11.2: cli/train_ppo_ray.py, models/loss.py, models/utils.py
and trainer/ppo_utils/*.py. The flat names, as eps_clip_low_high, are those of
0.8.11 and 0.9.10, whose mean over tokens was one of a micro-batch.
"""
from typing import Any, Mapping

from rlclip.losses import mismatch, Penalty, reduce
from rlclip.translate import point
from rlclip.translate.point import Part
from rlclip.translate.reading import count, flag, number, Option, pair, text

VERSION = 'OpenRLHF 0.11.2, train_ppo_ray'
_IS = 'algo.advantage.is_correction_'
OPTIONS = {
    'actor.policy_loss_type': Option('ppo', text),
    'actor.loss_agg_mode': Option('token-mean', text),
    'actor.eps_clip': Option(0.2, number),
    'actor.eps_clip_low_high': Option(None, pair),
    'actor.dual_clip': Option(None, number),
    'actor.entropy_coef': Option(None, number),
    'algo.advantage.estimator': Option('gae', text),
    'algo.advantage.no_std_norm': Option(False, flag),
    f'{_IS}level': Option('off', text),
    f'{_IS}mode': Option('mask', text),
    f'{_IS}gating': Option('ratio', text),
    f'{_IS}threshold': Option((0.5, 5.0), pair),
    'algo.kl.use_loss': Option(False, flag),
    'algo.kl.init_coef': Option(0.01, number),
    'algo.kl.estimator': Option('k1', text),
    'algo.kl.unbiased_gradient': Option(False, flag),
    'algo.kl.target': Option(None, number),
    'algo.kl.horizon': Option(10000, number),
    'algo.dynamic_filtering_enable': Option(False, flag),
    'algo.dynamic_filtering_range': Option((0.0, 1.0), pair),
    'reward.clip_range': Option((-10.0, 10.0), pair),
    'reward.overlong_buffer_len': Option(None, count),
    'reward.overlong_penalty_factor': Option(1.0, number),
    'reward.stop_properly_penalty_coef': Option(None, number),
    'rollout.n_samples_per_prompt': Option(1, count),
    'rollout.batch_size': Option(1024, count),
    'rollout.max_new_tokens': Option(None, count),
    'rollout.temperature': Option(1.0, number),
    'rollout.top_p': Option(1.0, number),
    'train.batch_size': Option(128, count),
    'train.micro_batch_size': Option(1, count),
    'train.max_epochs': Option(1, count),
    'train.async_enable': Option(False, flag),
    'train.partial_rollout_enable': Option(False, flag),
    'data.max_len': Option(2048, count),
    'prompt_max_len': Option(None, count),
}
RENAMED = {
    'policy_loss_type': 'actor.policy_loss_type',
    'eps_clip': 'actor.eps_clip',
    'eps_clip_low_high': 'actor.eps_clip_low_high',
    'dual_clip': 'actor.dual_clip',
    'entropy_loss_coef': 'actor.entropy_coef',
    'advantage_estimator': 'algo.advantage.estimator',
    'no_advantage_std_norm': 'algo.advantage.no_std_norm',
    'use_kl_loss': 'algo.kl.use_loss',
    'init_kl_coef': 'algo.kl.init_coef',
    'kl_estimator': 'algo.kl.estimator',
    'kl_target': 'algo.kl.target',
    'kl_horizon': 'algo.kl.horizon',
    'vllm_is_truncated_threshold': f'{_IS}threshold',
    'dynamic_filtering': 'algo.dynamic_filtering_enable',
    'dynamic_filtering_reward_range': 'algo.dynamic_filtering_range',
    'reward_clip_range': 'reward.clip_range',
    'overlong_buffer_len': 'reward.overlong_buffer_len',
    'overlong_penalty_factor': 'reward.overlong_penalty_factor',
    'stop_properly_penalty_coef': 'reward.stop_properly_penalty_coef',
    'n_samples_per_prompt': 'rollout.n_samples_per_prompt',
    'rollout_batch_size': 'rollout.batch_size',
    'generate_max_len': 'rollout.max_new_tokens',
    'max_new_tokens': 'rollout.max_new_tokens',
    'temperature': 'rollout.temperature',
    'top_p': 'rollout.top_p',
    'train_batch_size': 'train.batch_size',
    'micro_train_batch_size': 'train.micro_batch_size',
    'max_epochs': 'train.max_epochs',
    'async_train': 'train.async_enable',
    'partial_rollout': 'train.partial_rollout_enable',
    'max_len': 'data.max_len',
}
# The type of correction that enable_vllm_is_correction turned on.
_TYPES = {'tis': ('token', 'clip'), 'icepop': ('token', 'mask'),
          'seq-mask-tis': ('seq', 'mask')}
_WHITENED = (
    'mean and variance are over tokens, so long completions weigh more; here '
    'over completions')
_ADVANTAGES = {
    'group_norm': ('group_zscore(epsilon=1e-09)', ''),
    'dr_grpo': ('group_mean', (
        'is the advantage only: the loss is still a mean over tokens, without '
        'Dr.GRPO\'s constant')),
    'rloo': ('leave_one_out', ''),
    'reinforce_baseline': ('reinforce_pp_baseline', _WHITENED),
    'reinforce': ('batch', _WHITENED),
    'flash_reinforce': ('batch', (
        'is the reward minus the batch\'s mean; here it is also divided by the '
        'std')),
    'gae': ('group_zscore', (
        'needs a value function, which is not here; group z-scores stand in')),
}


def prepare(flat: Mapping[str, Any]) -> dict[str, Any]:
  """The keys of a file under the names of 0.11.2."""
  keys = {RENAMED.get(k, k): v for k, v in flat.items()}
  enabled = keys.pop('enable_vllm_is_correction', None)
  kind = str(keys.pop('vllm_is_correction_type', 'tis'))
  if kind not in _TYPES:
    raise ValueError(
        f'vllm_is_correction_type must be one of {", ".join(_TYPES)}, got '
        f'{kind!r}.')
  if enabled and flag(enabled):
    keys[f'{_IS}level'], keys[f'{_IS}mode'] = _TYPES[kind]
  return keys


def parts(v: Mapping[str, Any]) -> list[Part]:
  """The parts of the point that the options stand for.

  Raises:
    ValueError: for a policy_loss_type, an estimator or a mode that OpenRLHF
      does not have.
  """
  return [*_gate(v), _reduction(v), *_mismatch(v), _penalty(v), *_advantage(v),
          Part({'entropy_bonus': v['actor.entropy_coef'] or 0.0}),
          *_shaping(v), *_sampling(v)]


def _gate(v):
  kind = v['actor.policy_loss_type']
  if kind not in ('ppo', 'gspo'):
    raise ValueError(
        f'actor.policy_loss_type must be ppo or gspo, got {kind!r}.')
  low, high = (*(v['actor.eps_clip_low_high'] or (v['actor.eps_clip'],)) * 2,
               )[:2]
  yield point.fixed(low, high, 'actor.eps_clip')
  yield point.dual_clip(v['actor.dual_clip'])
  if kind == 'gspo':
    yield Part({'level': 'sequence'})
    yield point.note(low >= 0.01, 'actor.eps_clip', (
        'GSPO is published with widths of 3e-4 and 4e-4, which '
        'policy_loss_type does not set'))


def _reduction(v):
  mode, gspo = v['actor.loss_agg_mode'], v['actor.policy_loss_type'] == 'gspo'
  rows = {'token-mean': reduce.TokenMean(),
          'seq-mean-token-mean': reduce.SequenceMean()}
  if mode not in rows:
    raise ValueError(
        f'actor.loss_agg_mode must be one of {", ".join(rows)}, got {mode!r}.')
  if gspo:
    return Part({'reduction': reduce.SequenceMean()})
  return Part({'reduction': rows[mode]}, point.note(
      mode == 'token-mean', 'actor.loss_agg_mode', (
          'is over the mini-batch in 0.11.2, as here; up to 0.9.10 it was '
          'taken in each micro-batch')).notes)


def _mismatch(v):
  level, mode = v[f'{_IS}level'], v[f'{_IS}mode']
  gating, option = v[f'{_IS}gating'], f'{_IS}level'
  yield Part({'anchor': 'old'})
  if level == 'off':
    return
  if v['actor.policy_loss_type'] == 'gspo':
    yield Part({'anchor': 'behavior'})
    yield point.note(True, option, (
        'with gspo it takes the ratio to the sampler, and weighs nothing'))
    return
  low, high = ((0.0, *v[f'{_IS}threshold']))[-2:]
  if gating != 'ratio':
    yield point.note(True, f'{_IS}gating', (
        f'the gate reads {gating} of old and sampler with a limit of {high:g}: '
        f'no mismatch correction does so, lost'))
  elif mode == 'clip':
    yield Part({'mismatch': mismatch.TruncatedImportance(high)})
    yield point.note(low, f'{_IS}threshold', (
        f'weights under {low:g} are raised to it; here they stay'))
  elif level == 'token':
    yield point.masked(low, high, option)
  else:
    yield point.masked(low, high, option, 'sequence')
    yield point.note(True, option, (
        'the sequence\'s geometric mean decides and each token\'s own k '
        'weighs there; here the mean does both'))


def _penalty(v):
  beta, estimator = v['algo.kl.init_coef'], v['algo.kl.estimator']
  if beta <= 0:
    return Part()
  axes, notes = {}, ()
  if v['algo.kl.target']:
    rows = v['rollout.batch_size'] * v['rollout.n_samples_per_prompt']
    axes, notes, _ = point.steered(
        v['algo.kl.target'], rows, v['algo.kl.horizon'],
        max(rows // v['train.batch_size'], 1), 'algo.kl.target')
  if estimator not in ('k1', 'k2', 'k3'):
    raise ValueError(
        f'algo.kl.estimator must be k1, k2 or k3, got {estimator!r}.')
  if not v['algo.kl.use_loss']:
    part = point.penalty_in_reward(
        beta, 'algo.kl.init_coef', 'from each token\'s reward, after the '
        'group\'s baseline, and summed from the token on')
    notes += point.note(estimator != 'k1', 'algo.kl.estimator', (
        'another estimator than k1 in the reward is lost')).notes
    return Part(part.axes | axes, part.notes + notes)
  if v['algo.kl.unbiased_gradient']:
    notes += point.note(True, 'algo.kl.unbiased_gradient', (
        'the weight is capped at 10 there, and not here')).notes
    return Part(axes | {'penalty': Penalty(
        'reverse_kl', beta, estimator='score')}, notes)
  lost = {
      'k1': 'k1 as a loss has on policy a gradient of mean zero: noise, that '
            'knows nothing of the reference',
      'k2': 'values are clamped to at most 10, where there is no gradient; '
            'nothing is clamped here',
      'k3': 'k3 without the ratio has on policy the gradient of KL(reference '
            '|| policy); values are clamped to at most 10, where there is no '
            'gradient: nothing is clamped here'}[estimator]
  return Part(axes | {'penalty': Penalty(
      'reverse_kl', beta, estimator=f'unweighted_{estimator}')},
      notes + (point.Note('algo.kl.estimator', lost),))


def _advantage(v):
  kind, option = v['algo.advantage.estimator'], 'algo.advantage.estimator'
  if kind not in _ADVANTAGES:
    raise ValueError(
        f'{option} must be one of {", ".join(_ADVANTAGES)}, got {kind!r}.')
  name, lost = _ADVANTAGES[kind]
  if v['algo.advantage.no_std_norm'] and kind in (
      'reinforce', 'reinforce_baseline'):
    name = 'group_mean'
    yield point.note(True, 'algo.advantage.no_std_norm', (
        'rewards minus their group\'s mean stand in; there a mean over all '
        'tokens of the batch is subtracted as well'))
  yield Part({'advantage': name}, point.note(lost, option, lost).notes)
  yield point.note(v['reward.clip_range'] != (-10.0, 10.0),
                   'reward.clip_range', (
      'clips what the baseline has left of the reward, that is the advantage: '
      'lost'))


def _shaping(v):
  low, high = v['algo.dynamic_filtering_range']
  if v['algo.dynamic_filtering_enable']:
    yield point.dynamic_sampling('algo.dynamic_filtering_enable')
    yield point.note(True, 'algo.dynamic_filtering_range', (
        f'groups stay whose mean reward is strictly between {low:g} and '
        f'{high:g}, and others are replaced; here those go whose rewards are '
        f'all equal'))
  if v['reward.overlong_buffer_len'] is not None:
    yield point.overlong(v, 'reward.overlong_buffer_len',
                         'reward.overlong_penalty_factor')
  yield point.note(
      v['reward.stop_properly_penalty_coef'] is not None,
      'reward.stop_properly_penalty_coef', (
          'rewards of truncated completions are scaled or replaced: lost; '
          'drop_truncated leaves them out of the loss'))


def _sampling(v):
  n, prompts = v['rollout.n_samples_per_prompt'], v['rollout.batch_size']
  yield point.settings(
      ('rollout.group_size', n, 'rollout.n_samples_per_prompt'),
      ('rollout.num_prompts', prompts, 'rollout.batch_size'),
      ('rollout.prompt_length', v['prompt_max_len'], 'prompt_max_len'),
      ('rollout.completion_length', v['rollout.max_new_tokens'],
       'rollout.max_new_tokens'),
      ('rollout.temperature', v['rollout.temperature'], 'rollout.temperature'),
      ('learner.num_epochs', v['train.max_epochs'], 'train.max_epochs'),
      ('learner.num_mini_batches', max(prompts * n // v['train.batch_size'], 1),
       'train.batch_size'))
  yield point.note(True, 'train.micro_batch_size', (
      f'is for one device: learner.num_micro_batches is '
      f'{v["train.batch_size"]} / ({v["train.micro_batch_size"]} x devices)'))
  yield point.note(n < 2, 'rollout.n_samples_per_prompt', (
      'a group of one has no baseline; group advantages need 2 or more'))
  yield point.note(v['rollout.max_new_tokens'] is None, 'data.max_len', (
      'holds prompt and completion together; here each has its own limit'))
  for name in ('train.async_enable', 'train.partial_rollout_enable'):
    yield point.note(v[name], name, (
        'rollouts may be older than the weights they update; here they are of '
        'the same step'))
  yield point.unfiltered(v, {'rollout.top_p': (1,)})
