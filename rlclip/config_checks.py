"""Every check of a config that needs more than one key, or a range.

A rule is (whether it holds, key, what is expected, what came), of a
config.Experiment.
"""
import math

# What there is, named here as well so that a check loads no model.
OPTIMIZERS = ('adamw', 'muon', 'schedule_free_adamw')
GROUPS = ('norm', 'bias', 'embedding', 'head', 'attention', 'mlp')
MODULES = ('query', 'key', 'value', 'output', 'gate', 'up', 'down')


def rules(e):
  """All rules; the first that does not hold is told.

  Raises:
    ValueError: an algorithm, or an override of it, that there is not.
  """
  return (*_model_rules(e), *_training_rules(e), *_optimizer_rules(e),
          *_host_rules(e), *_shaping_rules(e), *_staleness_rules(e),
          *_sampler_rules(e))


def warnings(e) -> tuple[str, ...]:
  """What a config may do and its author may not have meant; for the log."""
  spec, stale = e.loss_spec, e.rollout.max_staleness
  if not stale or spec.mismatch is not None:
    return ()
  if spec.anchor == 'old':
    lacks = "its ratio is to the learner's own log-probs"
  elif type(spec.gate).__name__ == 'Unweighted':
    lacks = 'no ratio enters its gradient'
  else:
    return ()
  return (
      f'config.rollout.max_staleness = {stale} has completions sampled by '
      f'weights {stale} versions behind the learner, and the rule '
      f'{e.algorithm.name} takes them for its own: {lacks}, and it has no '
      f'mismatch correction. Set config.algorithm.anchor to old and '
      f'config.algorithm.mismatch, as to truncated_importance, or take a rule '
      f'whose ratio is to the sampler, with the anchor behavior.',)


def _model_rules(e):
  """For model and start."""
  m, w = e.model, e.warm_start
  total = e.rollout.prompt_length + e.rollout.completion_length
  return (
      (m.dtype in ('float32', 'bfloat16'), 'model.dtype',
       'float32 or bfloat16', m.dtype),
      (m.remat in ('none', 'dots', 'layer'), 'model.remat',
       'none, dots or layer', m.remat),
      (m.path or m.architecture.family in ('llama', 'qwen2', 'qwen3'),
       'model.architecture.family', 'llama, qwen2 or qwen3',
       m.architecture.family),
      (m.path or total <= m.architecture.max_positions,
       'model.architecture.max_positions',
       f'at least prompt_length + completion_length = {total}',
       m.architecture.max_positions),
      (w.num_steps >= 0, 'warm_start.num_steps', '0 or more', w.num_steps),
      (set(e.task.drop) <= {'too_long', 'duplicate', 'overlap'}, 'task.drop',
       'out of too_long, duplicate, overlap', e.task.drop),
      (w.task or not w.options, 'warm_start.options',
       'empty where warm_start.task is: the run\'s own task has task.options',
       w.options),
      (w.batch_size >= 1, 'warm_start.batch_size', '1 or more', w.batch_size),
      (w.learning_rate > 0, 'warm_start.learning_rate', 'more than 0',
       w.learning_rate),
      (0 <= w.slip_rate < 1, 'warm_start.slip_rate',
       'at least 0 and less than 1', w.slip_rate),
  )


def _training_rules(e):
  """For rollouts and updates."""
  r, u = e.rollout, e.learner
  # At least 1: a rule below says so where it is less.
  minis, micros = max(u.num_mini_batches, 1), max(u.num_micro_batches, 1)
  per_mini_batch = r.num_prompts // minis
  at_least_one = tuple(
      (getattr(part, name) >= 1, f'{group}.{name}', '1 or more',
       getattr(part, name))
      for group, part, names in (
          ('rollout', r, ('num_prompts', 'group_size', 'prompt_length',
                          'completion_length', 'steps_per_round')),
          ('learner', u, ('num_epochs', 'num_mini_batches',
                          'num_micro_batches', 'logits_chunk')))
      for name in names)
  return (
      (e.num_steps >= 0, 'num_steps', '0 or more', e.num_steps),
      *at_least_one,
      (r.temperature > 0, 'rollout.temperature',
       'more than 0 (greedy rollouts have no ratio to clip)', r.temperature),
      (r.num_slots >= 0, 'rollout.num_slots', '0 (all) or more', r.num_slots),
      (0 <= r.max_error_frac <= 1, 'rollout.max_error_frac', '0 to 1',
       r.max_error_frac),
      (r.num_prompts % minis == 0, 'learner.num_mini_batches',
       f'a divisor of rollout.num_prompts = {r.num_prompts}',
       u.num_mini_batches),
      (u.num_micro_batches == 1 or not e.loss_spec.whole_batch,
       'learner.num_micro_batches',
       '1, as the rule looks at the whole batch of an update',
       u.num_micro_batches),
      (per_mini_batch % micros == 0, 'learner.num_micro_batches',
       f'a divisor of the {per_mini_batch} prompts of a mini-batch',
       u.num_micro_batches),
  )


def _optimizer_rules(e):
  """For the optimizer, and what trains."""
  o, a = e.optimizer, e.model.lora
  is_averaged = o.name == 'schedule_free_adamw'
  return (
      (o.name in OPTIMIZERS, 'optimizer.name', f'one of {OPTIMIZERS}', o.name),
      (o.learning_rate > 0, 'optimizer.learning_rate', 'more than 0',
       o.learning_rate),
      (all(map(_is_multiplier, o.multipliers)), 'optimizer.multipliers',
       f"'group=factor' each, as in 'embedding=0.1', with a factor of 0 or "
       f'more and a group out of {GROUPS}', o.multipliers),
      (len({text.partition('=')[0] for text in o.multipliers})
       == len(o.multipliers), 'optimizer.multipliers',
       'one factor a group', o.multipliers),
      (o.schedule in ('constant', 'cosine', 'linear'), 'optimizer.schedule',
       'constant, cosine or linear', o.schedule),
      (o.schedule == 'constant' or not is_averaged, 'optimizer.schedule',
       'constant where optimizer.name is schedule_free_adamw, whose average '
       'takes the place of a decay', o.schedule),
      (o.state_dtype in ('float32', 'bfloat16'), 'optimizer.state_dtype',
       'float32 or bfloat16', o.state_dtype),
      (o.state_dtype == 'float32' or not is_averaged, 'optimizer.state_dtype',
       'float32 where optimizer.name is schedule_free_adamw: its state is '
       'weights, and small steps would be rounded off', o.state_dtype),
      (0 < o.b1 <= 1 or not is_averaged, 'optimizer.b1', 'above 0 and at most '
       '1 where optimizer.name is schedule_free_adamw', o.b1),
      (o.warmup_steps >= 0, 'optimizer.warmup_steps', '0 or more',
       o.warmup_steps),
      (o.max_grad_norm >= 0, 'optimizer.max_grad_norm', '0 (none) or more',
       o.max_grad_norm),
      (a.rank >= 0, 'model.lora.rank', '0 (none) or more', a.rank),
      (a.alpha > 0, 'model.lora.alpha', 'more than 0', a.alpha),
      (set(a.modules) <= set(MODULES), 'model.lora.modules',
       f'out of {MODULES}', a.modules),
      (bool(a.modules) and len(set(a.modules)) == len(a.modules),
       'model.lora.modules', 'one or more, each once', a.modules),
  )


def _host_rules(e):
  """For rewards, evaluation and checkpoints."""
  d, v, k = e.reward, e.evaluation, e.checkpoint
  return (
      (d.num_workers >= 1, 'reward.num_workers', '1 or more', d.num_workers),
      (d.deadline > 0, 'reward.deadline', 'more than 0 seconds', d.deadline),
      (d.on_failure in ('none', 'zero', 'raise'), 'reward.on_failure',
       'none, zero or raise', d.on_failure),
      (v.every >= 0, 'evaluation.every', '0 or more', v.every),
      (v.num_problems >= 0, 'evaluation.num_problems', '0 (all) or more',
       v.num_problems),
      (v.num_samples >= 1, 'evaluation.num_samples', '1 or more',
       v.num_samples),
      (v.temperature >= 0, 'evaluation.temperature', '0 (greedy) or more',
       v.temperature),
      (v.temperature > 0 or v.num_samples == 1, 'evaluation.num_samples',
       '1 where evaluation.temperature is 0: greedy samples are all the same',
       v.num_samples),
      (v.temperature > 0 or (v.top_p == 1 and v.top_k == 0),
       'evaluation.top_p', '1, and top_k 0, where temperature is 0: the mode '
       'does not depend on them', v.top_p),
      (k.every >= 1, 'checkpoint.every', '1 or more', k.every),
      (k.keep_last >= 1, 'checkpoint.keep_last', '1 or more', k.keep_last),
  )


def _shaping_rules(e):
  """For what changes rewards, groups or the reference."""
  d, f, r = e.reward, e.reference, e.rollout
  spec = e.loss_spec  # an unknown algorithm or override stops here
  counts = spec.advantage.partition('(')[0] in ('f_grpo', 'f_grpo_zscore')
  return (
      (all(map(_is_weighted, d.also)), 'reward.also',
       "'name=weight' each, as in 'repetition=0.1'", d.also),
      (not (d.also and counts), 'reward.also',
       f'empty with the advantage {spec.advantage}, which counts rewards of 0 '
       'and 1', d.also),
      (0 <= d.overlong_buffer <= r.completion_length,
       'reward.overlong_buffer',
       f'0 (none) to rollout.completion_length = {r.completion_length}',
       d.overlong_buffer),
      (d.overlong_factor > 0, 'reward.overlong_factor', 'more than 0',
       d.overlong_factor),
      (d.overlong_buffer or d.overlong_factor == 1, 'reward.overlong_factor',
       '1, its default, where reward.overlong_buffer is 0: it has no effect',
       d.overlong_factor),
      (not (d.overlong_buffer and counts), 'reward.overlong_buffer',
       f'0 with the advantage {spec.advantage}, which counts rewards of 0 and '
       f'1', d.overlong_buffer),
      (r.max_refills >= 0, 'rollout.max_refills', '0 (off) or more',
       r.max_refills),
      (r.max_refills == 0 or r.group_size > 1, 'rollout.max_refills',
       '0 where rollout.group_size is 1: no group has a signal',
       r.max_refills),
      (f.every >= 0, 'reference.every', '0 (never) or more', f.every),
      (f.max_kl >= 0, 'reference.max_kl', '0 (never) or more nats', f.max_kl),
      (0 <= f.kl_decay < 1, 'reference.kl_decay', 'at least 0 and less than 1',
       f.kl_decay),
      *((spec.needs_reference or value == default, f'reference.{key}',
         f'{default}, its default, where the rule has no penalty toward a '
         f'reference', value)
        for key, value, default in (
            ('every', f.every, 0), ('max_kl', f.max_kl, 0.0),
            ('kl_decay', f.kl_decay, 0.9))),
  )


def _staleness_rules(e):
  """For rollouts ahead of the learner."""
  stale, spec = e.rollout.max_staleness, e.loss_spec
  whole = spec.needs_anchor_policy and spec.anchor == 'behavior'
  return (
      (stale >= 0, 'rollout.max_staleness', '0 (wait) or more versions', stale),
      (stale <= 0 or not whole, 'rollout.max_staleness',
       '0 where the rule reads whole distributions of the policy that sampled: '
       "only the learner's weights at the batch's start are at hand", stale),
  )


def _sampler_rules(e):
  """For who draws the completions."""
  s, r = e.sampler, e.rollout
  is_local = s.kind == 'local'
  is_url = lambda url: url.startswith(('http://', 'https://'))
  positive = tuple(
      (getattr(s, name) > 0, f'sampler.{name}', 'more than 0',
       getattr(s, name))
      for name in ('in_flight', 'timeout', 'reload_timeout', 'patience'))
  return (
      (s.kind in ('local', 'vllm', 'sglang'), 'sampler.kind',
       'local, vllm or sglang', s.kind),
      (is_local != bool(s.urls), 'sampler.urls',
       'empty where sampler.kind is local, and else the servers\' base URLs',
       s.urls),
      (all(map(is_url, s.urls)), 'sampler.urls',
       'http:// or https:// each, as in http://host:8000', s.urls),
      (len(set(s.urls)) == len(s.urls), 'sampler.urls',
       'without repetition', s.urls),
      (is_local != bool(s.weights_folder), 'sampler.weights_folder',
       'empty where sampler.kind is local, and else a folder that the servers '
       'see as well', s.weights_folder),
      (is_local or s.weights_folder.startswith('/'), 'sampler.weights_folder',
       'an absolute path, the same on all machines', s.weights_folder),
      (bool(s.model), 'sampler.model', 'the name that the model is served '
       'under', s.model),
      (s.dtype in ('float32', 'bfloat16'), 'sampler.dtype',
       'float32 or bfloat16', s.dtype),
      (s.retries >= 0, 'sampler.retries', '0 or more', s.retries),
      *positive,
      (is_local or r.num_slots == 0, 'rollout.num_slots',
       '0, its default, where servers sample: sampler.in_flight is the limit',
       r.num_slots),
  )


def _is_multiplier(text: str) -> bool:
  """Whether it is a group of parameters and a factor of 0 or more."""
  name, _, factor = text.partition('=')
  return (name in GROUPS and _is_weighted(text) and float(factor) >= 0)


def _is_weighted(text: str) -> bool:
  """Whether it is a name, an equals sign and a number."""
  name, _, weight = text.rpartition('=')
  try:
    return bool(name) and math.isfinite(float(weight))
  except ValueError:
    return False
