"""Tunix's GRPOConfig, its relatives, and the YAML of its CLI as a point.

Read from google-tunix 0.1.7: tunix/rl/algorithm_config.py, algo_core.py,
common.py, rl/grpo/*.py, rl/agentic/agentic_grpo_learner.py,
rl/rollout/base_rollout.py and cli/grpo_main.py.
"""
from typing import Any, Mapping

from rlclip.losses import mismatch, Penalty, reduce
from rlclip.translate import point
from rlclip.translate.point import Part
from rlclip.translate.reading import count, flag, number, Option, text

VERSION = 'google-tunix 0.1.7'
_ROLLOUT, _TRAINING = 'rollout_config.', 'rl_training_config.'
_BUFFER = 'overlong_buffer.'
OPTIONS = {
    'algo_variant': Option('grpo', text),
    'training_mode': Option(None, text),
    'advantage_estimator': Option('grpo', text),
    'loss_agg_mode': Option('sequence-mean-token-mean', text),
    'loss_algo': Option('grpo', text),
    'num_generations': Option(2, count),
    'num_iterations': Option(1, count),
    'beta': Option(0.04, number),
    'kl_loss_mode': Option('kl', text),
    'kl_clamp_value': Option(None, number),
    'epsilon': Option(0.2, number),
    'epsilon_high': Option(None, number),
    'epsilon_c': Option(None, number),
    'dynamic_sampling': Option(False, flag),
    f'{_BUFFER}enable': Option(False, flag),
    f'{_BUFFER}overlong_buffer_length': Option(4096, count),
    f'{_BUFFER}overlong_buffer_penalty': Option(1.0, number),
    f'{_BUFFER}max_response_length': Option(20480, count),
    'use_rollout_logps': Option(True, flag),
    'sampler_is': Option(None, text),
    'sampler_is_threshold': Option(2.0, number),
    'off_policy_steps': Option(0, count),
    'degenerate_group_masking': Option(False, flag),
    'overlong_filter': Option(False, flag),
    'max_response_length': Option(None, count),
    'batch_size': Option(None, count),
    f'{_ROLLOUT}total_generation_steps': Option(64, count),
    f'{_ROLLOUT}max_prompt_length': Option(64, count),
    f'{_ROLLOUT}temperature': Option(0.9, number),
    f'{_ROLLOUT}top_p': Option(1.0, number),
    f'{_ROLLOUT}top_k': Option(None, count),
    f'{_TRAINING}mini_batch_size': Option(None, count),
    f'{_TRAINING}train_micro_batch_size': Option(None, count),
}
RENAMED: Mapping[str, str] = {}
# Defaults of GRPOConfig's relatives where they differ from its own.
_DEFAULTS = {
    'grpo': {},
    'agentic_grpo': {},
    'dapo': {'loss_agg_mode': 'token-mean', 'beta': None,
             'epsilon_high': 0.28, 'dynamic_sampling': True,
             f'{_BUFFER}enable': True},
    'drgrpo': {'advantage_estimator': 'drgrpo',
               'loss_agg_mode': 'sequence-mean-token-scale'},
}
_ONLY = {
    'dapo': ('dynamic_sampling', 'overlong_buffer'),
    'agentic_grpo': (
        'use_rollout_logps', 'sampler_is', 'sampler_is_threshold',
        'off_policy_steps', 'degenerate_group_masking', 'overlong_filter'),
}
_ADVANTAGES = {
    'grpo': ('group_zscore', ''), 'rloo': ('leave_one_out', ''),
    'drgrpo': ('group_mean', ''),
    'gae': ('group_zscore', 'needs a value function, which is not here; group '
                            'z-scores stand in')}


def prepare(flat: Mapping[str, Any]) -> dict[str, Any]:
  """A file's keys as fields of one config, with its class in algo_variant.

  The CLI's YAML holds them in the section grpo_config or agentic_grpo_config;
  a file of the fields alone is read too. The class is told by algo_variant, or
  by fields that only one has; its defaults are filled in.
  """
  sections = ('grpo_config.', 'agentic_grpo_config.')
  has = [s for s in sections if any(k.startswith(s) for k in flat)]
  agentic = has and (flat.get('training_mode') == 'agentic_grpo'
                     or has == [sections[1]])
  section = sections[1] if agentic else sections[0]
  keys = {k.removeprefix(section) if has else k: v for k, v in flat.items()}
  variant = keys.get('algo_variant') or next(
      (name for name, only in _ONLY.items() if any(
          k.startswith(only) for k in keys)), 'grpo')
  if agentic:
    variant = 'agentic_grpo'
  variant = {'gspo-token': 'grpo'}.get(variant, variant)
  if variant not in _DEFAULTS:
    raise ValueError(
        f'algo_variant must be one of {", ".join(_DEFAULTS)}, got '
        f'{variant!r}. PPO needs a value function, which is not here.')
  return keys | {'algo_variant': variant}


def defaults(flat: Mapping[str, Any]) -> Mapping[str, Any]:
  """Defaults of the config's class that differ from those in OPTIONS."""
  return _DEFAULTS[flat['algo_variant']]


def parts(v: Mapping[str, Any]) -> list[Part]:
  """The parts of the point that the options stand for.

  Raises:
    ValueError: for a loss_algo or a mode that Tunix does not have.
  """
  return [*_gate(v), *_anchor(v), _reduction(v), _penalty(v), _advantage(v),
          *_shaping(v), *_sampling(v)]


def _gate(v):
  low, high = v['epsilon'], v['epsilon_high']
  plain = v['algo_variant'] in ('grpo', 'drgrpo')
  yield point.fixed(low, low if high is None else high, 'epsilon')
  yield point.dual_clip(v['epsilon_c'])
  yield point.note(plain and high is not None, 'epsilon_high', (
      'this class has no such field and refuses it; DAPOConfig and the '
      'agentic GRPOConfig have it. Taken as it is meant'))
  yield point.note(v['epsilon_c'] is not None, 'epsilon_c', (
      'the loss reads it and no GRPO config has the field: set it on the '
      'object there'))
  if v['loss_algo'] not in ('grpo', 'gspo-token'):
    raise ValueError(
        f'loss_algo must be grpo or gspo-token, got {v["loss_algo"]!r}.')
  if v['loss_algo'] == 'gspo-token':
    yield Part({'level': 'sequence_token'})
    yield point.note(low >= 0.01, 'epsilon', (
        'GSPO is published with widths of 3e-4 and 4e-4, which loss_algo does '
        'not set'))


def _anchor(v):
  if v['algo_variant'] != 'agentic_grpo':
    yield Part({'anchor': 'old'})
    yield point.note(v['num_iterations'] == 1, 'num_iterations', (
        'with 1 the ratio is taken to the policy of the same update, so it is '
        '1 and nothing is ever clipped, even where mini-batches make several '
        'updates; here it is taken to the weights that the batch began with'))
    return
  if v['sampler_is'] == 'token':
    yield Part({'anchor': 'old', 'mismatch': mismatch.TruncatedImportance(
        v['sampler_is_threshold'])})
    return
  yield Part({'anchor': 'behavior' if v['use_rollout_logps'] else 'old'})


def _reduction(v):
  mode = v['loss_agg_mode']
  rows = {
      'token-mean': (reduce.TokenMean(), (
          'the mean is taken in each micro-batch, and the means are averaged; '
          'here it is taken over the whole mini-batch')),
      'sequence-mean-token-mean': (reduce.SequenceMean(), ''),
      'sequence-mean-token-scale': (reduce.SequenceSum(
          float(_length(v))), 'the constant is the padded width of the '
          'completions unless one is passed'),
      'seq-mean-token-sum': (reduce.SequenceSum(1.0), ''),
      'sequence-mean-token-sum-norm': (reduce.SequenceSum(1.0), (
          'divides by the number of rows unless another number is passed')),
  }
  if mode not in rows:
    raise ValueError(
        f'loss_agg_mode must be one of {", ".join(rows)}, got {mode!r}.')
  reduction, lost = rows[mode]
  return Part({'reduction': reduction},
              point.note(lost, 'loss_agg_mode', lost).notes)


def _penalty(v):
  if not v['beta']:
    return Part()
  rows = {
      'kl': ('unweighted_k1', (
          'k1 as a loss has on policy a gradient of mean zero: noise, that '
          'knows nothing of the reference. low_var_kl and mse_kl do hold the '
          'policy back')),
      'mse_kl': ('unweighted_k2', ''),
      'low_var_kl': ('unweighted_k3', (
          'k3 without the ratio has on policy the gradient of KL(reference || '
          'policy)')),
  }
  if v['kl_loss_mode'] not in rows:
    raise ValueError(
        f'kl_loss_mode must be one of {", ".join(rows)}, got '
        f'{v["kl_loss_mode"]!r}.')
  estimator, lost = rows[v['kl_loss_mode']]
  return Part(
      {'penalty': Penalty('reverse_kl', v['beta'], estimator=estimator)},
      point.note(lost, 'kl_loss_mode', lost).notes + point.note(
          v['kl_clamp_value'], 'kl_clamp_value', (
              'beyond the clamp the penalty has no gradient there; here '
              'nothing is clamped')).notes)


def _advantage(v):
  kind = v['advantage_estimator']
  if kind not in _ADVANTAGES:
    raise ValueError(
        f'advantage_estimator must be one of {", ".join(_ADVANTAGES)}, got '
        f'{kind!r}.')
  name, lost = _ADVANTAGES[kind]
  return Part({'advantage': name},
              point.note(lost, 'advantage_estimator', lost).notes)


def _shaping(v):
  yield point.note(v['dynamic_sampling'], 'dynamic_sampling', (
      'nothing reads it: groups without signal stay in the batch there'))
  if v[f'{_BUFFER}enable']:
    yield point.overlong(v, f'{_BUFFER}overlong_buffer_length',
                         f'{_BUFFER}overlong_buffer_penalty')
    yield point.note(True, f'{_BUFFER}overlong_buffer_length', (
        'lengths are taken of the text, in characters, there; in tokens here, '
        'as published. The penalty is one more reward function there'))
  yield point.note(
      v['degenerate_group_masking'], 'degenerate_group_masking',
      'groups without signal are masked and not replaced')
  yield point.note(v['overlong_filter'], 'overlong_filter', (
      'an episode that hits a limit gets no final reward; it is not left out '
      'of the loss, as drop_truncated does'))
  yield point.note(v['off_policy_steps'], 'off_policy_steps', (
      'rollouts may be older than the weights they update; here they are of '
      'the same step'))


def _length(v):
  return v['max_response_length'] or v[f'{_ROLLOUT}total_generation_steps']


def _sampling(v):
  batch, mini = v['batch_size'], v[f'{_TRAINING}mini_batch_size']
  micro = v[f'{_TRAINING}train_micro_batch_size']
  mini = mini or batch
  yield point.settings(
      ('rollout.group_size', v['num_generations'], 'num_generations'),
      ('rollout.num_prompts', batch, 'batch_size'),
      ('rollout.prompt_length', v[f'{_ROLLOUT}max_prompt_length'],
       f'{_ROLLOUT}max_prompt_length'),
      ('rollout.completion_length', _length(v),
       f'{_ROLLOUT}total_generation_steps'),
      ('rollout.temperature', v[f'{_ROLLOUT}temperature'],
       f'{_ROLLOUT}temperature'),
      ('learner.num_epochs', v['num_iterations'], 'num_iterations'),
      ('learner.num_mini_batches',
       max(batch // mini, 1) if batch and mini else None,
       f'{_TRAINING}mini_batch_size'),
      ('learner.num_micro_batches',
       max(mini // micro, 1) if mini and micro else None,
       f'{_TRAINING}train_micro_batch_size'))
  yield point.unfiltered(v, {f'{_ROLLOUT}top_p': (None, 1),
                             f'{_ROLLOUT}top_k': (None, -1, 0)})
