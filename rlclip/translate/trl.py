"""TRL's GRPOConfig as a point of the space of rules.

Read from TRL 1.16.0, trl/trainer/grpo_config.py and grpo_trainer.py; the
arguments below them from transformers 5.24.0, training_args.py.
"""
from typing import Any, Mapping

from rlclip.losses import mismatch, Penalty, reduce
from rlclip.translate import point
from rlclip.translate.point import Part
from rlclip.translate.reading import anything, count, flag, number, Option, text
from rlclip.trust_region import bounds, gates

VERSION = 'TRL 1.16.0, GRPOConfig'
RENAMED = {
    'vllm_importance_sampling_cap': 'vllm_importance_sampling_clip_max'}
OPTIONS = {
    'loss_type': Option('dapo', text),
    'epsilon': Option(0.2, number),
    'epsilon_high': Option(None, number),
    'delta': Option(None, number),
    'beta': Option(0.0, number),
    'use_bias_correction_kl': Option(True, flag),
    'importance_sampling_level': Option('token', text),
    'scale_rewards': Option('group', anything),
    'multi_objective_aggregation': Option('sum_then_normalize', text),
    'mask_truncated_completions': Option(False, flag),
    'use_vllm': Option(False, flag),
    'vllm_importance_sampling_correction': Option(True, flag),
    'vllm_importance_sampling_mode': Option('sequence_mask', text),
    'vllm_importance_sampling_clip_max': Option(3.0, number),
    'vllm_importance_sampling_clip_min': Option(None, number),
    'sapo_temperature_pos': Option(1.0, number),
    'sapo_temperature_neg': Option(1.05, number),
    'vespo_k_pos': Option(2.0, number),
    'vespo_lambda_pos': Option(3.0, number),
    'vespo_k_neg': Option(3.0, number),
    'vespo_lambda_neg': Option(2.0, number),
    'off_policy_mask_threshold': Option(None, number),
    'top_entropy_quantile': Option(1.0, number),
    'entropy_coef': Option(0.0, number),
    'use_adaptive_entropy': Option(False, flag),
    'sync_ref_model': Option(False, flag),
    'num_generations': Option(8, count),
    'num_iterations': Option(1, count),
    'steps_per_generation': Option(None, count),
    'generation_batch_size': Option(None, count),
    'gradient_accumulation_steps': Option(1, count),
    'per_device_train_batch_size': Option(8, count),
    'max_completion_length': Option(512, count),
    'temperature': Option(1.0, number),
    'top_p': Option(1.0, number),
    'top_k': Option(0, count),
    'min_p': Option(None, number),
    'repetition_penalty': Option(1.0, number),
}
_CLIPPED = ('grpo', 'bnpo', 'dr_grpo', 'dapo', 'luspo')
_LOSSES = (*_CLIPPED, 'cispo', 'sapo', 'vespo')


def prepare(flat: Mapping[str, Any]) -> dict[str, Any]:
  """The keys of a file under the names in OPTIONS."""
  old = {RENAMED[k]: flat[k] for k in RENAMED if flat.get(k) is not None}
  return {k: v for k, v in flat.items() if k not in RENAMED} | old


def parts(v: Mapping[str, Any]) -> list[Part]:
  """The parts of the point that the options stand for.

  Raises:
    ValueError: for a loss_type or a mode that TRL does not have.
  """
  if v['loss_type'] not in _LOSSES:
    raise ValueError(
        f'loss_type must be one of {", ".join(_LOSSES)}, got '
        f'{v["loss_type"]!r}.')
  return [
      Part({'anchor': 'old'}), _gate(v), _level(v), _reduction(v), _penalty(v),
      _advantage(v), *_mismatch(v), *_further(v), *_sampling(v)]


def _gate(v):
  low, loss = v['epsilon'], v['loss_type']
  high = low if v['epsilon_high'] is None else v['epsilon_high']
  if loss == 'cispo':
    return _cispo(high, v['epsilon_high'] is None)
  if loss == 'sapo':
    return Part({'gate': gates.SoftSigmoid(
        v['sapo_temperature_pos'], v['sapo_temperature_neg'])})
  if loss == 'vespo':
    return Part({'gate': gates.GammaWeight(
        v['vespo_k_pos'], v['vespo_lambda_pos'],
        v['vespo_k_neg'], v['vespo_lambda_neg'])})
  axes = {'bounds': point.fixed(low, high, 'epsilon').axes['bounds'],
          'gate': gates.PessimisticMin()}
  cap = v['delta']
  if cap is None:
    return Part(axes)
  if cap > 1:
    return Part({**axes, 'gate': gates.TwoSided(cap)})
  return Part({**axes, 'bounds': bounds.Fixed(low, 0.0)}, (point.Note('delta', (
      f'a cap of {cap:g} also holds w back below 1 where A > 0: there it is '
      f'held back from 1 on here')),))


def _cispo(cap, by_default):
  """epsilon_high is the cap of the weight itself."""
  hint = ('; it is not set, so epsilon is the cap, which TRL documents as a '
          'width' if by_default else '')
  axes = {'gate': gates.ClippedWeight(),
          'bounds': bounds.Fixed(1.0, max(cap - 1, 0.0))}
  if cap < 1:
    return Part(axes, (point.Note('epsilon_high', (
        f'with loss_type cispo it is the cap itself, {cap:g}{hint}. A cap '
        f'under 1 clips tokens on policy too and scales every gradient by it: '
        f'no bounds here do so, a cap of 1 stands in. ScaleRL has 5')),))
  return Part(axes, (point.Note('epsilon_high', (
      f'with loss_type cispo it is the cap itself, so eps_high = '
      f'{cap - 1:g} here{hint}')),))


def _level(v):
  level, loss = v['importance_sampling_level'], v['loss_type']
  if level not in ('token', 'sequence'):
    raise ValueError(
        f'importance_sampling_level must be token or sequence, got {level!r}.')
  notes = point.note(
      loss == 'luspo' and level == 'token', 'importance_sampling_level',
      'luspo is meant for the level sequence; at the level token its sum over '
      'tokens is 1 / N sum_it l_it').notes
  notes += point.note(
      level == 'sequence' and loss in ('bnpo', 'dr_grpo', 'dapo', 'cispo'),
      'importance_sampling_level',
      f'with loss_type {loss} each sequence counts as often as it has tokens; '
      f'GSPO is loss_type grpo').notes
  if loss == 'vespo':
    level = 'sequence_product_token'
  return Part({'level': level}, notes)


def _reduction(v):
  loss = v['loss_type']
  masked = point.note(
      v['mask_truncated_completions'] and loss in (
          'grpo', 'sapo', 'dr_grpo', 'luspo'), 'mask_truncated_completions',
      f'with loss_type {loss} the masked rows stay in the count of rows that '
      f'the loss is divided by; here they leave it').notes
  if loss in ('grpo', 'sapo'):
    return Part({'reduction': reduce.SequenceMean()}, masked)
  if loss in ('dr_grpo', 'luspo'):
    constant = v['max_completion_length'] if loss == 'dr_grpo' else 1.0
    return Part({'reduction': reduce.SequenceSum(float(constant))}, masked)
  notes = point.note(loss == 'bnpo', 'loss_type', (
      'the mean over tokens is taken in each micro-batch, and the means are '
      'averaged; here it is taken over the whole mini-batch')).notes
  steps, accumulation = _steps(v)
  notes += point.note(
      loss != 'bnpo' and steps != accumulation, 'steps_per_generation', (
          'the divisor is the rollout batch\'s number of tokens, scaled to '
          'one update; here it is that of the update\'s own tokens')).notes
  return Part({'reduction': reduce.TokenMean()}, notes)


def _penalty(v):
  if not v['beta']:
    return Part()
  if not v['use_bias_correction_kl']:
    return Part({'penalty': Penalty(
        'reverse_kl', v['beta'], estimator='unweighted_k3')}, (point.Note(
            'use_bias_correction_kl', 'k3 without the ratio has, on policy, '
            'the gradient of KL(reference || policy)'),))
  return Part({'penalty': Penalty('reverse_kl', v['beta'])}, point.note(
      v['importance_sampling_level'] == 'sequence', 'use_bias_correction_kl',
      'the sequence\'s ratio weighs each token\'s k3; here it is the token\'s '
      'own').notes)


def _advantage(v):
  scale = {True: 'group', False: 'none', 'off': 'none'}.get(
      v['scale_rewards'], v['scale_rewards'])
  if v['multi_objective_aggregation'] == 'normalize_then_sum':
    return Part({'advantage': 'batch(epsilon=0.0001)'}, (point.Note(
        'multi_objective_aggregation', 'each reward is standardized in its '
        'group before they are added: lost, only the standardization over '
        'the batch remains'),))
  rows = {
      # ddof 1 as here.
      'group': ('group_zscore(epsilon=0.0001)', ''),
      'none': ('group_mean', ''),
      'batch': ('reinforce_pp_baseline(epsilon=0.0001)', (
          'rewards minus their group\'s mean are divided by the std of the '
          'rewards; here by their own, which is smaller where groups differ')),
  }
  if scale not in rows:
    raise ValueError(
        f'scale_rewards must be group, batch or none, got {scale!r}.')
  name, lost = rows[scale]
  return Part({'advantage': name},
              point.note(lost, 'scale_rewards', lost).notes)


def _mismatch(v):
  mode = v['vllm_importance_sampling_mode']
  if not (v['use_vllm'] and v['vllm_importance_sampling_correction']):
    return
  low = v['vllm_importance_sampling_clip_min'] or 0.0
  high = v['vllm_importance_sampling_clip_max']
  option = 'vllm_importance_sampling_mode'
  if mode not in ('token_truncate', 'token_mask', 'sequence_truncate',
                  'sequence_mask'):
    raise ValueError(f'Unknown {option} {mode!r}.')
  level = 'token' if mode.startswith('token') else 'sequence_product'
  if mode.endswith('mask'):
    yield point.masked(low, high, option, level)
  elif high is None:
    yield point.note(True, 'vllm_importance_sampling_clip_max', (
        'a weight with a lower bound alone is not available: no correction'))
  else:
    yield Part({'mismatch': mismatch.TruncatedImportance(high, level)})
    yield point.note(low, 'vllm_importance_sampling_clip_min', (
        f'weights under {low:g} are raised to it; here they stay'))
  yield point.note(
      v['loss_type'] == 'vespo', 'vllm_importance_sampling_correction', (
          'the weight goes into VESPO\'s sequence weight and not before the '
          'loss'))


def _further(v):
  yield from _off_policy_mask(v)
  yield point.note(
      v['top_entropy_quantile'] < 1, 'top_entropy_quantile', (
          'only tokens of high entropy get a gradient: no axis selects tokens '
          'by entropy, lost'))
  yield Part({'entropy_bonus': v['entropy_coef']})
  yield point.note(v['entropy_coef'], 'entropy_coef', (
      'the entropy\'s mean is over the tokens of each micro-batch, whatever '
      'loss_type; here it is reduced as the loss is'))
  yield point.note(v['use_adaptive_entropy'], 'use_adaptive_entropy',
                   'a steered entropy bonus has no place here: lost')
  yield point.note(v['sync_ref_model'], 'sync_ref_model', (
      'the reference is mixed with the policy every ref_model_sync_steps: not '
      'part of the rule, the reference stays here'))


def _off_policy_mask(v):
  threshold = v['off_policy_mask_threshold']
  if threshold is None:
    return
  name, inner = 'off_policy_mask_threshold', _gate(v).axes['gate']
  yield Part({'gate': gates.OffPolicyMask(threshold)})
  yield point.note(inner != gates.PessimisticMin(), name, (
      f'it comes on top of {inner} there, and of PPO\'s gate here'))
  yield point.note(v['use_vllm'], name, (
      'the drift is from the sampler there, and from the anchor here'))


def _steps(v):
  """Micro-batches of a rollout batch, and of one optimizer update."""
  accumulation = v['gradient_accumulation_steps']
  steps = v['steps_per_generation']
  if steps is None and v['generation_batch_size']:
    steps = v['generation_batch_size'] // v['per_device_train_batch_size']
  return steps or accumulation, accumulation


def _sampling(v):
  steps, accumulation = _steps(v)
  rows = v['generation_batch_size'] or v['per_device_train_batch_size'] * steps
  prompts, rest = divmod(rows, v['num_generations'])
  yield point.settings(
      ('rollout.group_size', v['num_generations'], 'num_generations'),
      ('rollout.num_prompts', prompts or None, 'per_device_train_batch_size'),
      ('rollout.completion_length', v['max_completion_length'],
       'max_completion_length'),
      ('rollout.temperature', v['temperature'], 'temperature'),
      ('learner.num_epochs', v['num_iterations'], 'num_iterations'),
      ('learner.num_mini_batches', max(steps // accumulation, 1),
       'steps_per_generation'),
      ('learner.num_micro_batches', accumulation,
       'gradient_accumulation_steps'),
      ('learner.drop_truncated', v['mask_truncated_completions'],
       'mask_truncated_completions'))
  yield point.note(True, 'per_device_train_batch_size', (
      'is for one process: rollout.num_prompts is that times the number of '
      'processes'))
  yield point.note(rest, 'num_generations', (
      f'{rows} rows on a process do not hold whole groups of '
      f'{v["num_generations"]}'))
  yield point.unfiltered(v, {
      'top_p': (1,), 'top_k': (0, -1), 'min_p': (None, 0),
      'repetition_penalty': (1,)})
