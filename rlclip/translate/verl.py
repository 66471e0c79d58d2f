"""verl's nested PPO trainer config as a point of the space of rules.

Read from verl 0.9.1: verl/trainer/ppo/core_algos.py, rollout_corr_helper.py,
verl/workers/config/actor.py, verl/workers/utils/losses.py and
verl/trainer/config/*.yaml; that the mean over tokens was one of a micro-batch
up to 0.6.1, and is one of the mini-batch from 0.7.0 on, from those versions.
"""
import math
from typing import Any, Mapping

from rlclip.losses import mismatch, Penalty, reduce
from rlclip.translate import point
from rlclip.translate.point import Part
from rlclip.translate.verl_options import (ACTOR, BUFFER, CORRECTION, LOSS,
                                           OPTIONS, RENAMED, ROLLOUT, THRESHOLD)
from rlclip.trust_region import bounds, gates

VERSION = 'verl 0.9.1'
_ESTIMATORS = {
    'kl': 'unweighted_k1', 'k1': 'unweighted_k1',
    'mse': 'unweighted_k2', 'k2': 'unweighted_k2',
    'low_var_kl': 'unweighted_k3', 'k3': 'unweighted_k3'}
# '+' keeps the value and takes the gradient of k2.
_ESTIMATORS |= {f'{kind}+': 'unweighted_k2' for kind in _ESTIMATORS}
_WHITENED = (
    'mean and variance are over tokens, so long completions weigh more, and '
    '1e-8 is added to the variance; here over completions, 1e-6 to the std')
_ADVANTAGES = {
    'grpo': ('group_zscore', ''),
    'grpo_vectorized': ('group_zscore', ''),
    'rloo': ('leave_one_out', ''),
    'rloo_vectorized': ('leave_one_out', ''),
    'reinforce_plus_plus_baseline': ('reinforce_pp_baseline', _WHITENED),
    'reinforce_plus_plus': ('batch', _WHITENED),
    'gpg': ('group_mean', (
        'all advantages are multiplied by batch size / number of rewards that '
        'are not 0: lost')),
    'gae': ('group_zscore', (
        'needs a value function, which is not here; group z-scores stand in')),
}


def prepare(flat: Mapping[str, Any]) -> dict[str, Any]:
  """The keys of a file under the names in OPTIONS."""
  return {RENAMED.get(k, k): v for k, v in flat.items()}


def parts(v: Mapping[str, Any]) -> list[Part]:
  """The parts of the point that the options stand for.

  Raises:
    ValueError: for a loss mode or an aggregation that verl does not have.
  """
  return [
      *_rule(v), _clip_ratio(v), _reduction(v), _penalty(v), _advantage(v),
      *_mismatch(v),
      Part({'entropy_bonus': v[f'{ACTOR}entropy_coeff']}),
      *_data(v)]


def _clip_ratio(v):
  name = f'{ACTOR}clip_ratio'
  return point.note(
      None not in (v[f'{name}_low'], v[f'{name}_high'])
      and v[name] != OPTIONS[name].default, name, (
          'is read only where clip_ratio_low or clip_ratio_high is null, and '
          'both are 0.2 by default: no effect'))


def _widths(v):
  both = v[f'{ACTOR}clip_ratio']
  low, high = v[f'{ACTOR}clip_ratio_low'], v[f'{ACTOR}clip_ratio_high']
  return both if low is None else low, both if high is None else high


def _rule(v):
  mode = v[f'{LOSS}loss_mode']
  bypass = v[f'{CORRECTION}bypass_mode'] or mode == 'bypass_mode'
  yield Part({'anchor': 'behavior' if bypass else 'old'})
  if bypass:
    yield point.note(
        mode not in ('vanilla', 'bypass_mode'), f'{LOSS}loss_mode',
        'bypass_mode replaces it: no effect')
    mode = v[f'{CORRECTION}loss_type']
  rules = {
      'vanilla': _vanilla, 'ppo_clip': _vanilla, 'gspo': _gspo, 'sapo': _sapo,
      'gpg': lambda v: [Part({'gate': gates.Unweighted()})], 'cispo': _cispo,
      'geo_mean': _geo_mean, 'dppo_tv': _dppo, 'dppo_kl': _dppo, 'dro': _dro,
      'clip_cov': _cov, 'kl_cov': _cov, 'reinforce': _reinforce}
  if mode not in rules:
    raise ValueError(
        f'{LOSS}loss_mode must be one of {", ".join(rules)}, got {mode!r}.')
  yield from rules[mode](v)


def _vanilla(v):
  yield point.fixed(*_widths(v), f'{ACTOR}clip_ratio_low')
  yield point.dual_clip(v[f'{ACTOR}clip_ratio_c'])


def _gspo(v):
  yield point.fixed(*_widths(v), f'{ACTOR}clip_ratio_low')
  yield point.dual_clip(None)
  yield Part({'level': 'sequence_token'})
  yield point.note(
      v[f'{ACTOR}loss_agg_mode'] != 'seq-mean-token-mean',
      f'{ACTOR}loss_agg_mode', 'GSPO is published with seq-mean-token-mean, '
      'which loss_mode does not set')


def _sapo(v):
  yield Part({'gate': gates.SoftSigmoid(
      v[f'{ACTOR}tau_pos'], v[f'{ACTOR}tau_neg'])})


def _cispo(v):
  low, high = _widths(v)
  yield point.fixed(low, high, f'{ACTOR}clip_ratio_low')
  yield Part({'gate': gates.ClippedWeight()})
  yield point.note(low < 1, f'{ACTOR}clip_ratio_low', (
      'the weight is clipped below too, at '
      f'{1 - low:g}; the paper clips above only (clip_ratio_low of 1 or more)'))


def _geo_mean(v):
  low, high = _widths(v)
  yield Part({'gate': gates.GeometricMean()})
  if low == high:
    yield Part({'bounds': bounds.FromDivergence('absolute_log_ratio', low)})
  else:
    widths = -math.expm1(-low), math.expm1(high)
    yield Part({'bounds': bounds.Fixed(*widths)})
  yield point.note(True, f'{ACTOR}clip_ratio_low', (
      f'bounds log w, so w lies in [{math.exp(-low):.4g}, '
      f'{math.exp(high):.4g}]; the paper has 0.4'))


def _dppo(v):
  low, high = _widths(v)
  kind, paper = {
      'dppo_tv': (bounds.BinaryTotalVariation, 0.15),
      'dppo_kl': (bounds.BinaryKL, 0.05)}[v[f'{LOSS}loss_mode']]
  cap = v[f'{ACTOR}clip_ratio_c']
  yield Part({'bounds': kind(high), 'gate': gates.MaskedWeight(cap)})
  yield point.note(True, f'{ACTOR}clip_ratio_high', (
      f'is a divergence budget with this loss_mode, {high:g} (the paper: '
      f'{paper:g}), and clip_ratio_c the cap of the weight, {cap:g} (the '
      f'paper: 20 or more)'))
  yield point.note(low != high, f'{ACTOR}clip_ratio_low', (
      f'another budget downward, {low:g}: lost'))


def _dro(v):
  strength = v[f'{LOSS}dro_beta']
  if strength is None:
    raise ValueError(f'loss_mode dro needs {LOSS}dro_beta.')
  yield Part({'gate': gates.SquaredLog(strength)})


def _cov(v):
  yield point.fixed(*_widths(v), f'{ACTOR}clip_ratio_low')
  if v[f'{LOSS}loss_mode'] == 'clip_cov':
    gate = gates.CovarianceClip(
        v[f'{LOSS}clip_cov_ratio'], v[f'{LOSS}clip_cov_lb'],
        v[f'{LOSS}clip_cov_ub'])
  else:
    gate = gates.CovariancePenalty(
        v[f'{LOSS}kl_cov_ratio'], v[f'{LOSS}ppo_kl_coef'])
  yield Part({'gate': gate})
  yield point.note(True, f'{LOSS}loss_mode', (
      'the covariance, and the share of tokens, are those of a micro-batch; '
      'here of the mini-batch, which may not be cut into micro-batches'))


def _reinforce(v):
  level = v[f'{CORRECTION}rollout_is']
  low, high = v[THRESHOLD]
  option = f'{CORRECTION}rollout_is'
  if level is None:
    yield Part({'gate': gates.Unweighted()})
    return
  yield Part({'gate': gates.ClippedWeight(),
              'bounds': bounds.Fixed(1.0, max(high - 1, 0.0))})
  yield point.note(low, THRESHOLD, (
      'weights outside are set to 0; here they are cut off at the upper end'))
  yield point.note(level == 'sequence', option, (
      'the weight is the product over the sequence; here each token has its '
      'own'))


def _reduction(v):
  mode, loss = v[f'{ACTOR}loss_agg_mode'], v[f'{LOSS}loss_mode']
  constant = v[f'{ACTOR}loss_scale_factor']
  name = f'{ACTOR}loss_agg_mode'
  if loss in ('sapo', 'geo_mean'):
    return Part({'reduction': reduce.SequenceMean()}, point.note(
        mode != 'seq-mean-token-mean', name,
        f'has no effect with loss_mode {loss}, which takes the mean over '
        f'sequences').notes)
  rows = {
      'token-mean': (reduce.TokenMean(), (
          'is over the mini-batch since verl 0.7.0, as here; up to 0.6.1 it '
          'was taken in each micro-batch')),
      'token-sum': (reduce.TokenMean(), (
          'no reduction is a sum over tokens: the gradient is as many times '
          'larger there as the mini-batch has tokens')),
      'seq-mean-token-sum': (reduce.SequenceSum(1.0), ''),
      'seq-mean-token-mean': (reduce.SequenceMean(), ''),
      'seq-mean-token-sum-norm': (reduce.SequenceSum(
          constant or float(v['data.max_response_length'])), (
              '' if constant else 'divides by the padded width of the '
              'responses unless loss_scale_factor is set; '
              'data.max_response_length is taken')),
  }
  if mode not in rows:
    raise ValueError(f'{name} must be one of {", ".join(rows)}, got {mode!r}.')
  reduction, lost = rows[mode]
  return Part({'reduction': reduction}, point.note(lost, name, lost).notes)


def _penalty(v):
  kind, beta = v[f'{ACTOR}kl_loss_type'], v[f'{ACTOR}kl_loss_coef']
  in_reward = v['algorithm.use_kl_in_reward']
  if not (v[f'{ACTOR}use_kl_loss'] and beta):
    if not in_reward:
      return Part()
    part = point.penalty_in_reward(
        v['algorithm.kl_ctrl.kl_coef'], 'algorithm.use_kl_in_reward',
        'from each token\'s reward, before the advantage is taken over the '
        'sequence\'s sum')
    notes = point.note(
        v['algorithm.kl_penalty'] not in ('kl', 'k1'), 'algorithm.kl_penalty',
        'another estimator than k1 in the reward is lost').notes
    if v['algorithm.kl_ctrl.type'] == 'fixed' or not part.axes:
      return Part(part.axes, part.notes + notes)
    rows, mini = v['data.train_batch_size'], v[f'{ACTOR}ppo_mini_batch_size']
    dial = point.steered(
        v['algorithm.kl_ctrl.target_kl'], rows * v[f'{ROLLOUT}n'],
        v['algorithm.kl_ctrl.horizon'], max(rows // mini, 1),
        'algorithm.kl_ctrl.type')
    return Part(part.axes | dial.axes, part.notes + notes + dial.notes)
  name = f'{ACTOR}kl_loss_type'
  notes = point.note(in_reward, 'algorithm.use_kl_in_reward', (
      'a second penalty, in the reward, is lost')).notes
  if kind not in _ESTIMATORS:
    return Part({'penalty': Penalty(
        'reverse_kl', beta, estimator='unweighted_k2')}, notes + (point.Note(
            name, f'{kind} is not available; k2 stands in'),))
  estimator = _ESTIMATORS[kind]
  lost = {
      'unweighted_k1': 'k1 as a loss has on policy a gradient of mean zero: '
                       'noise, that knows nothing of the reference',
      'unweighted_k2': '',
      'unweighted_k3': 'k3 without the ratio has on policy the gradient of '
                       'KL(reference || policy); values are clamped to at '
                       'most 10, so there is no gradient where log(reference '
                       '/ policy) is over 2.6 or so: not here'}[estimator]
  return Part({'penalty': Penalty('reverse_kl', beta, estimator=estimator)},
              notes + point.note(lost, name, lost).notes)


def _advantage(v):
  kind = v['algorithm.adv_estimator']
  name, lost = _ADVANTAGES.get(kind, ('group_mean', (
      f'{kind} is not available; rewards minus their group\'s mean stand in')))
  if kind.startswith('grpo') and kind in _ADVANTAGES and (
      not v['algorithm.norm_adv_by_std_in_grpo']):
    name = 'group_mean'
  return Part({'advantage': name}, point.note(
      lost, 'algorithm.adv_estimator', lost).notes)


def _mismatch(v):
  level, option = v[f'{CORRECTION}rollout_is'], f'{CORRECTION}rollout_is'
  if v[f'{CORRECTION}bypass_mode'] or level is None:
    yield _rejection(v)
    return
  yield point.note(v[f'{CORRECTION}rollout_rs'], f'{CORRECTION}rollout_rs', (
      'there is one mismatch correction here; dropping comes on top: lost'))
  low, high = v[THRESHOLD]
  yield point.note(not low and high < 1, THRESHOLD, (
      'cuts off the weight of tokens that agree, too. An interval needs '
      'quotes: YAML reads 0.5_5 as 0.55'))
  level = 'sequence_product' if level == 'sequence' else 'token'
  yield (point.masked(low, high, option, level) if low else
         Part({'mismatch': mismatch.TruncatedImportance(high, level)}))
  yield point.note(
      v[f'{CORRECTION}rollout_is_batch_normalize'],
      f'{CORRECTION}rollout_is_batch_normalize',
      'weights are divided by their mean over the batch: lost')


def _rejection(v):
  """Sequences dropped for their distance to the sampler, without weights."""
  name, option = v[f'{CORRECTION}rollout_rs'], f'{CORRECTION}rollout_rs'
  kept = {'seq_mean_k3': 'mean', 'seq_max_k3': 'max'}
  if name in kept and not v[f'{CORRECTION}bypass_mode']:
    threshold = v[f'{CORRECTION}rollout_rs_threshold']
    if threshold is None or '_' in threshold:
      raise ValueError(
          f'{option} {name} needs {option}_threshold to be one number, got '
          f'{threshold!r}.')
    return Part({'mismatch': mismatch.SequenceMask(
        float(threshold), 'k3', kept[name])}, (
            point.Note(option, (
                'what is dropped leaves the mean as well; here it counts '
                'with a loss of 0')),))
  return point.note(name, option, (
      f'{name} drops what is too far from the sampler: no correction does so '
      f'by this statistic, or without old log-probs; lost'))


def _data(v):
  n, prompts = v[f'{ROLLOUT}n'], v['data.train_batch_size']
  mini, micro = (v[f'{ACTOR}ppo_mini_batch_size'],
                 v[f'{ACTOR}ppo_micro_batch_size_per_gpu'])
  devices = v['trainer.n_gpus_per_node'] * v['trainer.nnodes']
  dynamic = v[f'{ACTOR}use_dynamic_bsz']
  parts_a_batch = None if micro is None or dynamic else max(
      mini * n // (micro * devices), 1)
  yield point.settings(
      ('rollout.group_size', n, f'{ROLLOUT}n'),
      ('rollout.num_prompts', prompts, 'data.train_batch_size'),
      ('rollout.prompt_length', v['data.max_prompt_length'],
       'data.max_prompt_length'),
      ('rollout.completion_length', v['data.max_response_length'],
       'data.max_response_length'),
      ('rollout.temperature', v[f'{ROLLOUT}temperature'],
       f'{ROLLOUT}temperature'),
      ('learner.num_epochs', v[f'{ACTOR}ppo_epochs'], f'{ACTOR}ppo_epochs'),
      ('learner.num_mini_batches', max(prompts // mini, 1),
       f'{ACTOR}ppo_mini_batch_size'),
      ('learner.num_micro_batches', parts_a_batch,
       f'{ACTOR}ppo_micro_batch_size_per_gpu'))
  yield point.note(n < 2, f'{ROLLOUT}n', (
      'a group of one has no baseline; group advantages need 2 or more'))
  yield point.note(dynamic, f'{ACTOR}use_dynamic_bsz', (
      'micro-batches are cut by tokens; here by rows, with the same gradient'))
  if v['algorithm.filter_groups.enable']:
    yield point.dynamic_sampling('algorithm.filter_groups.enable')
  if v[f'{BUFFER}enable']:
    yield point.overlong(v, f'{BUFFER}len', f'{BUFFER}penalty_factor')
  yield point.note(v['algorithm.use_pf_ppo'], 'algorithm.use_pf_ppo', (
      'samples are redrawn by reward: lost'))
  yield point.unfiltered(v, {f'{ROLLOUT}top_p': (1,),
                             f'{ROLLOUT}top_k': (-1, 0)})
