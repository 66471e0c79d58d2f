"""verl's nested PPO trainer config as a point of the space of rules.

Read from verl 0.9.1: verl/trainer/ppo/core_algos.py, rollout_corr_helper.py,
verl/workers/config/actor.py, verl/workers/utils/losses.py and
verl/trainer/config/*.yaml; that the mean over tokens was one of a micro-batch
up to 0.6.1, and is one of the mini-batch from 0.7.0 on, from those versions.
"""
import math
from typing import Any, Mapping

from rlclip.losses import Penalty, reduce
from rlclip.translate import point
from rlclip.translate.point import Part
from rlclip.translate.reading import count, flag, interval, number, Option, text
from rlclip.trust_region import bounds, gates

VERSION = 'verl 0.9.1'
_ACTOR = 'actor_rollout_ref.actor.'
_ROLLOUT = 'actor_rollout_ref.rollout.'
_LOSS = f'{_ACTOR}policy_loss.'
_CORRECTION = 'algorithm.rollout_correction.'
_THRESHOLD = f'{_CORRECTION}rollout_is_threshold'
_BUFFER = 'reward.reward_kwargs.overlong_buffer_cfg.'
RENAMED = {
    f'reward_model.reward_kwargs.overlong_buffer_cfg.{name}':
        f'{_BUFFER}{name}' for name in ('enable', 'len', 'penalty_factor')}
OPTIONS = {
    f'{_ACTOR}clip_ratio': Option(0.2, number),
    f'{_ACTOR}clip_ratio_low': Option(0.2, number),
    f'{_ACTOR}clip_ratio_high': Option(0.2, number),
    f'{_ACTOR}clip_ratio_c': Option(3.0, number),
    f'{_ACTOR}loss_agg_mode': Option('token-mean', text),
    f'{_ACTOR}loss_scale_factor': Option(None, number),
    f'{_ACTOR}entropy_coeff': Option(0.0, number),
    f'{_ACTOR}tau_pos': Option(1.0, number),
    f'{_ACTOR}tau_neg': Option(1.05, number),
    f'{_ACTOR}use_kl_loss': Option(False, flag),
    f'{_ACTOR}kl_loss_coef': Option(0.001, number),
    f'{_ACTOR}kl_loss_type': Option('low_var_kl', text),
    f'{_ACTOR}ppo_epochs': Option(1, count),
    f'{_ACTOR}ppo_mini_batch_size': Option(256, count),
    f'{_ACTOR}ppo_micro_batch_size_per_gpu': Option(None, count),
    f'{_ACTOR}use_dynamic_bsz': Option(False, flag),
    f'{_LOSS}loss_mode': Option('vanilla', text),
    f'{_LOSS}clip_cov_ratio': Option(2e-4, number),
    f'{_LOSS}clip_cov_lb': Option(1.0, number),
    f'{_LOSS}clip_cov_ub': Option(5.0, number),
    f'{_LOSS}kl_cov_ratio': Option(2e-4, number),
    f'{_LOSS}ppo_kl_coef': Option(0.1, number),
    f'{_LOSS}dro_beta': Option(None, number),
    f'{_ROLLOUT}n': Option(1, count),
    f'{_ROLLOUT}temperature': Option(1.0, number),
    f'{_ROLLOUT}top_p': Option(1.0, number),
    f'{_ROLLOUT}top_k': Option(-1, count),
    'algorithm.adv_estimator': Option('gae', text),
    'algorithm.norm_adv_by_std_in_grpo': Option(True, flag),
    'algorithm.use_kl_in_reward': Option(False, flag),
    'algorithm.kl_penalty': Option('kl', text),
    'algorithm.kl_ctrl.type': Option('fixed', text),
    'algorithm.kl_ctrl.kl_coef': Option(0.001, number),
    'algorithm.use_pf_ppo': Option(False, flag),
    'algorithm.filter_groups.enable': Option(False, flag),
    'algorithm.filter_groups.metric': Option('reward', text),
    f'{_CORRECTION}rollout_is': Option(None, text),
    _THRESHOLD: Option((0.0, 2.0), interval),
    f'{_CORRECTION}rollout_rs': Option(None, text),
    f'{_CORRECTION}rollout_is_batch_normalize': Option(False, flag),
    f'{_CORRECTION}bypass_mode': Option(False, flag),
    f'{_CORRECTION}loss_type': Option('ppo_clip', text),
    'data.train_batch_size': Option(1024, count),
    'data.max_prompt_length': Option(512, count),
    'data.max_response_length': Option(512, count),
    f'{_BUFFER}enable': Option(False, flag),
    f'{_BUFFER}len': Option(None, count),
    f'{_BUFFER}penalty_factor': Option(1.0, number),
    'trainer.n_gpus_per_node': Option(8, count),
    'trainer.nnodes': Option(1, count),
}
_ESTIMATORS = {
    'kl': 'unweighted_k1', 'k1': 'unweighted_k1',
    'mse': 'unweighted_k2', 'k2': 'unweighted_k2',
    'low_var_kl': 'unweighted_k3', 'k3': 'unweighted_k3',
    # '+' keeps the value and takes the gradient of k2.
    'kl+': 'unweighted_k2', 'k1+': 'unweighted_k2',
    'mse+': 'unweighted_k2', 'k2+': 'unweighted_k2',
    'low_var_kl+': 'unweighted_k2', 'k3+': 'unweighted_k2'}
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
      point.entropy(v[f'{_ACTOR}entropy_coeff'], f'{_ACTOR}entropy_coeff'),
      *_data(v)]


def _clip_ratio(v):
  name = f'{_ACTOR}clip_ratio'
  return point.note(
      None not in (v[f'{name}_low'], v[f'{name}_high'])
      and v[name] != OPTIONS[name].default, name, (
          'is read only where clip_ratio_low or clip_ratio_high is null, and '
          'both are 0.2 by default: no effect'))


def _widths(v):
  both = v[f'{_ACTOR}clip_ratio']
  low, high = v[f'{_ACTOR}clip_ratio_low'], v[f'{_ACTOR}clip_ratio_high']
  return both if low is None else low, both if high is None else high


def _rule(v):
  mode = v[f'{_LOSS}loss_mode']
  bypass = v[f'{_CORRECTION}bypass_mode'] or mode == 'bypass_mode'
  yield Part({'anchor': 'behavior' if bypass else 'old'})
  if bypass:
    yield point.note(
        mode not in ('vanilla', 'bypass_mode'), f'{_LOSS}loss_mode',
        'bypass_mode replaces it: no effect')
    mode = v[f'{_CORRECTION}loss_type']
  rules = {
      'vanilla': _vanilla, 'ppo_clip': _vanilla, 'gspo': _gspo, 'sapo': _sapo,
      'gpg': lambda v: [Part({'gate': gates.Unweighted()})], 'cispo': _cispo,
      'geo_mean': _geo_mean, 'dppo_tv': _dppo, 'dppo_kl': _dppo, 'dro': _dro,
      'clip_cov': _cov, 'kl_cov': _cov, 'reinforce': _reinforce}
  if mode not in rules:
    raise ValueError(
        f'{_LOSS}loss_mode must be one of {", ".join(rules)}, got {mode!r}.')
  yield from rules[mode](v)


def _vanilla(v):
  yield point.fixed(*_widths(v), f'{_ACTOR}clip_ratio_low')
  yield point.dual_clip(v[f'{_ACTOR}clip_ratio_c'])


def _gspo(v):
  yield point.fixed(*_widths(v), f'{_ACTOR}clip_ratio_low')
  yield point.dual_clip(None)
  # With one advantage a row the gradient is that of the level 'sequence'.
  yield Part({'level': 'sequence'})
  yield point.note(True, f'{_LOSS}loss_mode', (
      'GSPO-token: the same gradient as the level sequence, since a row has '
      'one advantage; log s is clamped to at most 10 there'))
  yield point.note(
      v[f'{_ACTOR}loss_agg_mode'] != 'seq-mean-token-mean',
      f'{_ACTOR}loss_agg_mode', 'GSPO is published with seq-mean-token-mean, '
      'which loss_mode does not set')


def _sapo(v):
  yield Part({'gate': gates.SoftSigmoid(
      v[f'{_ACTOR}tau_pos'], v[f'{_ACTOR}tau_neg'])})


def _cispo(v):
  low, high = _widths(v)
  yield point.fixed(low, high, f'{_ACTOR}clip_ratio_low')
  yield Part({'gate': gates.ClippedWeight()})
  yield point.note(low < 1, f'{_ACTOR}clip_ratio_low', (
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
  yield point.note(True, f'{_ACTOR}clip_ratio_low', (
      f'bounds log w, so w lies in [{math.exp(-low):.4g}, '
      f'{math.exp(high):.4g}]; the paper has 0.4'))


def _dppo(v):
  low, high = _widths(v)
  name = {'dppo_tv': 'binary_tv', 'dppo_kl': 'binary_kl'}[
      v[f'{_LOSS}loss_mode']]
  yield point.choose(
      'bounds', (name,), option=f'{_LOSS}loss_mode', instead=bounds.Fixed(),
      numbers={'delta': high})
  yield point.choose(
      'gate', ('masked_weight',), option=f'{_LOSS}loss_mode',
      instead=gates.PessimisticMin(),
      numbers={'cap': v[f'{_ACTOR}clip_ratio_c']})
  paper = {'binary_tv': 0.15, 'binary_kl': 0.05}[name]
  yield point.note(True, f'{_ACTOR}clip_ratio_high', (
      f'is a divergence budget with this loss_mode, {high:g} (the paper: '
      f'{paper:g}), and clip_ratio_c the cap of the weight '
      f'({v[f"{_ACTOR}clip_ratio_c"]:g}; the paper 20 or more)'))
  yield point.note(low != high, f'{_ACTOR}clip_ratio_low', (
      f'another budget downward, {low:g}: lost'))


def _dro(v):
  yield point.choose(
      'gate', ('squared_log',), option=f'{_LOSS}loss_mode',
      instead=gates.Unweighted(),
      numbers={'strength': v[f'{_LOSS}dro_beta']})


def _cov(v):
  yield point.fixed(*_widths(v), f'{_ACTOR}clip_ratio_low')
  mode = v[f'{_LOSS}loss_mode']
  if mode == 'clip_cov':
    instead, numbers = gates.PessimisticMin(), {
        'cov_share': v[f'{_LOSS}clip_cov_ratio'],
        'cov_low': v[f'{_LOSS}clip_cov_lb'],
        'cov_high': v[f'{_LOSS}clip_cov_ub']}
  else:
    instead, numbers = gates.Unclipped(), {
        'cov_share': v[f'{_LOSS}kl_cov_ratio'],
        'cov_coefficient': v[f'{_LOSS}ppo_kl_coef']}
  yield point.choose('gate', (mode,), option=f'{_LOSS}loss_mode',
                     numbers=numbers, instead=instead)
  yield point.note(True, f'{_LOSS}loss_mode', (
      'the covariance, and the share of tokens, are those of a micro-batch'))


def _reinforce(v):
  level = v[f'{_CORRECTION}rollout_is']
  low, high = v[_THRESHOLD]
  option = f'{_CORRECTION}rollout_is'
  if level is None:
    yield Part({'gate': gates.Unweighted()})
    return
  yield Part({'gate': gates.ClippedWeight(),
              'bounds': bounds.Fixed(1.0, max(high - 1, 0.0))})
  yield point.note(low, _THRESHOLD, (
      'weights outside are set to 0; here they are cut off at the upper end'))
  yield point.note(level == 'sequence', option, (
      'the weight is the product over the sequence; here each token has its '
      'own'))


def _reduction(v):
  mode, loss = v[f'{_ACTOR}loss_agg_mode'], v[f'{_LOSS}loss_mode']
  constant = v[f'{_ACTOR}loss_scale_factor']
  name = f'{_ACTOR}loss_agg_mode'
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
  kind, beta = v[f'{_ACTOR}kl_loss_type'], v[f'{_ACTOR}kl_loss_coef']
  in_reward = v['algorithm.use_kl_in_reward']
  notes = point.note(
      in_reward and v['algorithm.kl_ctrl.type'] != 'fixed',
      'algorithm.kl_ctrl.type', 'a steered coefficient is lost').notes
  if not (v[f'{_ACTOR}use_kl_loss'] and beta):
    if not in_reward:
      return Part()
    part = point.penalty_in_reward(
        v['algorithm.kl_ctrl.kl_coef'], 'algorithm.use_kl_in_reward',
        'from each token\'s reward, before the advantage is taken over the '
        'sequence\'s sum')
    notes += point.note(
        v['algorithm.kl_penalty'] not in ('kl', 'k1'), 'algorithm.kl_penalty',
        'another estimator than k1 in the reward is lost').notes
    return Part(part.axes, part.notes + notes)
  name = f'{_ACTOR}kl_loss_type'
  notes += point.note(in_reward, 'algorithm.use_kl_in_reward', (
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
  level, option = v[f'{_CORRECTION}rollout_is'], f'{_CORRECTION}rollout_is'
  yield point.note(
      v[f'{_CORRECTION}rollout_rs'], f'{_CORRECTION}rollout_rs',
      'tokens or sequences that are too far from the sampler are dropped: no '
      'axis does so by this statistic, lost')
  if level is None or v[f'{_CORRECTION}bypass_mode']:
    return
  low, high = v[_THRESHOLD]
  yield point.note(not low and high < 1, _THRESHOLD, (
      'cuts off the weight of tokens that agree, too. An interval needs '
      'quotes: YAML reads 0.5_5 as 0.55'))
  yield (point.masked(low, high, option, level) if low else
         point.truncated(high, option, level))
  yield point.note(
      v[f'{_CORRECTION}rollout_is_batch_normalize'],
      f'{_CORRECTION}rollout_is_batch_normalize',
      'weights are divided by their mean over the batch: lost')


def _data(v):
  n, prompts = v[f'{_ROLLOUT}n'], v['data.train_batch_size']
  mini, micro = (v[f'{_ACTOR}ppo_mini_batch_size'],
                 v[f'{_ACTOR}ppo_micro_batch_size_per_gpu'])
  devices = v['trainer.n_gpus_per_node'] * v['trainer.nnodes']
  dynamic = v[f'{_ACTOR}use_dynamic_bsz']
  parts_a_batch = None if micro is None or dynamic else max(
      mini * n // (micro * devices), 1)
  yield point.settings(
      ('rollout.group_size', n, f'{_ROLLOUT}n'),
      ('rollout.num_prompts', prompts, 'data.train_batch_size'),
      ('rollout.prompt_length', v['data.max_prompt_length'],
       'data.max_prompt_length'),
      ('rollout.completion_length', v['data.max_response_length'],
       'data.max_response_length'),
      ('rollout.temperature', v[f'{_ROLLOUT}temperature'],
       f'{_ROLLOUT}temperature'),
      ('learner.num_epochs', v[f'{_ACTOR}ppo_epochs'], f'{_ACTOR}ppo_epochs'),
      ('learner.num_mini_batches', max(prompts // mini, 1),
       f'{_ACTOR}ppo_mini_batch_size'),
      ('learner.num_micro_batches', parts_a_batch,
       f'{_ACTOR}ppo_micro_batch_size_per_gpu'))
  yield point.note(n < 2, f'{_ROLLOUT}n', (
      'a group of one has no baseline; group advantages need 2 or more'))
  yield point.note(dynamic, f'{_ACTOR}use_dynamic_bsz', (
      'micro-batches are cut by tokens; here by rows, with the same gradient'))
  if v['algorithm.filter_groups.enable']:
    yield point.dynamic_sampling('algorithm.filter_groups.enable')
  if v[f'{_BUFFER}enable']:
    yield point.overlong(v, f'{_BUFFER}len', f'{_BUFFER}penalty_factor')
  yield point.note(v['algorithm.use_pf_ppo'], 'algorithm.use_pf_ppo', (
      'samples are redrawn by reward: lost'))
  yield point.unfiltered(v, {f'{_ROLLOUT}top_p': (1,),
                             f'{_ROLLOUT}top_k': (-1, 0)})
