"""One step's rollouts: from prompts to a batch the learner takes.

prompts -> sampler -> completions -> rewards (-> more prompts, where groups
have no signal) -> shaping -> advantages -> batch

The verifier's rewards stay as they are: metrics, evaluation, the choice of
groups and `Batch.rewards` (so group-adaptive bounds) read them. Only the
advantages see the shaped ones.
"""
from typing import Callable, Mapping, NamedTuple, Sequence

import numpy as np

from rlclip import advantages
from rlclip.data import bank, batching, tasks, tokenizer
from rlclip.rewards import pool as pool_lib
from rlclip.types import (Batch, Completion, Prompt, Request, Sampler,
                          SamplingSpec)


class BadSampling(RuntimeError):
  """More completions ended in an error of the sampler than a run allows."""


class Group(NamedTuple):
  """One prompt's answers and what they earned."""
  prompt: Prompt
  requests: Sequence[Request]
  completions: Sequence[Completion]
  texts: Sequence[str]
  rewards: np.ndarray  # float[G] of the verifier, nan where there is none
  by_function: Sequence[dict[str, float | None]]  # G of them, unweighted
  penalties: np.ndarray | None = None  # float[G] <= 0, by length; None: none

  @property
  def has_signal(self) -> bool:
    """Whether two of its rewards differ."""
    known = self.rewards[~np.isnan(self.rewards)]
    return bool(np.any(known != known[:1]))

  @property
  def shaped(self) -> np.ndarray:
    """float[G], rewards with their penalties."""
    return self.rewards + (0.0 if self.penalties is None else self.penalties)


class Collected(NamedTuple):
  """Groups, and how the verifiers fared.

  Attributes:
    groups: in the order sampled.
    num_timeouts: of verifiers.
    num_errors: of verifiers.
    num_prompts: P, where groups without signal are left out of training and
      others sampled for them; None where all are trained on.
    num_refills: how often others were sampled.
  """
  groups: Sequence[Group]
  num_timeouts: int
  num_errors: int
  num_prompts: int | None = None
  num_refills: int = 0

  @property
  def rewards(self) -> np.ndarray:
    """float[P, G], nan where a completion could not be scored."""
    return np.stack([group.rewards for group in self.groups])

  @property
  def trained(self) -> list[Group]:
    """The groups that the learner sees."""
    return [group for group in self.groups
            if self.num_prompts is None or group.has_signal]

  @property
  def num_tokens(self) -> int:
    """Of prompts and completions that the learner sees, a prompt once a row."""
    return sum(len(group.prompt.tokens) + len(completion.tokens)
               for group in self.trained for completion in group.completions)


def encode(task: tasks.Task, tokenizer: tokenizer.Tokenizer, split: str,
           indices: Sequence[int], *, limit: int) -> list[Prompt]:
  """Encodes examples, chat template applied.

  Args:
    task: where the examples are.
    tokenizer: the model's.
    split: of the task.
    indices: examples in the order wanted.
    limit: longest prompt the sampler takes, in tokens.

  Returns:
    One Prompt an index.

  Raises:
    ValueError: naming the first example whose prompt is longer.
  """
  examples = task.examples(split)
  prompts = [tasks.make_prompt(task, examples[int(i)], tokenizer)
             for i in indices]
  for prompt in prompts:
    if len(prompt.tokens) > limit:
      raise ValueError(
          f'The prompt of {task.name}/{split} example {prompt.id} has '
          f'{len(prompt.tokens)} tokens, and the sampler takes {limit}. Raise '
          f'--config.rollout.prompt_length.')
  return prompts


def collect(sampler: Sampler, pool: pool_lib.Pool, decode, prompts,
            spec: SamplingSpec, *, group_size: int, first_id: int, phase,
            penalty: Callable[[np.ndarray], np.ndarray] | None = None,
            max_error_frac: float = 1.0) -> Collected:
  """Samples a group for every prompt and scores it.

  A completion that ended in an error (logits that are not finite) has no
  reward, and so no part in the loss.

  Args:
    sampler: any.
    pool: the verifiers.
    decode: ids -> text.
    prompts: P of them.
    spec: how to draw.
    group_size: G.
    first_id: of the requests; they are numbered on from it.
    phase: `with phase(name):` times what stands in it.
    penalty: lengths in tokens -> what the advantages take off; None for none.
    max_error_frac: share of completions that may end in an error.

  Returns:
    The groups, in the order of the prompts.

  Raises:
    BadSampling: more of them did.
  """
  requests = make_requests(
      prompts, spec, group_size=group_size, first_id=first_id)
  with phase('sample'):
    completions = sampler.generate(requests)
    broken = np.array([c.finish == 'error' for c in completions])
    if broken.any() and broken.mean() > max_error_frac:
      raise BadSampling(
          f'The logits of {broken.sum()} of {broken.size} completions, that of '
          f'request {requests[int(broken.argmax())].id} first, are not finite. '
          f'At most {max_error_frac:.1%} may end so. Look at the weights of '
          f'the last checkpoint, lower the learning rate, or raise '
          f'config.rollout.max_error_frac.')
    texts = [decode(completion.tokens) for completion in completions]
  with phase('reward'):
    scored = pool.score([
        pool_lib.ScoreItem(prompt.text, text, completion.tokens, prompt.fields)
        for prompt, text, completion in zip(
            np.repeat(np.array(prompts, object), group_size), texts,
            completions, strict=True)])
  rewards = np.array(
      [np.nan if r is None else r for r in scored.rewards], np.float64)
  rewards[broken] = np.nan
  by_function = [dict(zip(scored.by_function, values))
                 for values in zip(*scored.by_function.values())]
  groups = make_groups(
      prompts, requests, completions, texts, rewards, by_function, penalty)
  return Collected(groups, scored.num_timeouts, scored.num_errors)


def make_requests(prompts: Sequence[Prompt], spec: SamplingSpec, *,
                  group_size: int, first_id: int) -> list[Request]:
  """G requests a prompt, numbered on from `first_id`."""
  return [
      Request(first_id + i * group_size + g, prompt.tokens, spec)
      for i, prompt in enumerate(prompts) for g in range(group_size)]


def make_groups(
    prompts: Sequence[Prompt], requests: Sequence[Request],
    completions: Sequence[Completion], texts: Sequence[str],
    rewards: np.ndarray, by_function: Sequence[Mapping[str, float | None]],
    penalty: Callable[[np.ndarray], np.ndarray] | None) -> list[Group]:
  """Cuts P * G rows into the groups of P prompts; see `collect` and Group."""
  columns = [requests, completions, texts, rewards, by_function]
  if penalty is not None:
    columns.append(penalty(np.array([len(c.tokens) for c in completions])))
  size = len(requests) // len(prompts)
  return [
      Group(prompt, *(column[i * size:(i + 1) * size] for column in columns))
      for i, prompt in enumerate(prompts)]


def collect_with_signal(
    draw: Callable[[int, int], Collected], num_prompts: int, *,
    max_refills: int) -> Collected:
  """Samples until enough groups have rewards that differ.

  A group whose rewards are all equal has no advantage. It is left out, and the
  next prompts are sampled in its place: as many as are missing, so that every
  group with signal is trained on. By the verifier's rewards: penalties of
  length alone are no signal, as in DAPO, which filters by accuracy.

  Args:
    draw: (place, count) -> the groups of so many prompts from this place on,
      counted from the step's first.
    num_prompts: P, groups wanted.
    max_refills: times that others are sampled, at most; 0 takes the first P
      groups as they are.

  Returns:
    All groups sampled; fewer than P may have a signal.

  Source: Yu et al., arXiv 2503.14476 (DAPO, dynamic sampling), which has no
  limit and samples whole batches; verl's `max_num_gen_batches` limits.
  """
  collected = draw(0, num_prompts)
  if not max_refills:
    return collected
  collected = collected._replace(num_prompts=num_prompts)
  for refill in range(1, max_refills + 1):
    missing = num_prompts - len(collected.trained)
    if not missing:
      break
    more = draw(len(collected.groups), missing)
    collected = collected._replace(
        groups=[*collected.groups, *more.groups],
        num_timeouts=collected.num_timeouts + more.num_timeouts,
        num_errors=collected.num_errors + more.num_errors,
        num_refills=refill)
  return collected


def batch(collected: Collected, *, advantage: str, prompt_length: int,
          completion_length: int, drop_truncated: bool) -> Batch:
  """Computes advantages and pads everything to few sizes.

  Prompts and completions are padded to the smallest of C, C / 2, C / 4, ...
  that holds the longest: a policy that learns to be brief is updated faster,
  for a compilation a size. Where groups without signal are left out and too
  few others were found, empty groups make up P: they weigh nothing.
  """
  # With no signal anywhere, one group gives the arrays their shapes.
  groups = collected.trained or collected.groups[:1]
  longest = max(len(c.tokens) for group in groups for c in group.completions)
  completion_length = _halved(completion_length, longest)
  prompt_length = _halved(
      prompt_length, max(len(group.prompt.tokens) for group in groups))
  made = batching.make_batch(
      [group.prompt for group in groups],
      [group.completions for group in groups],
      np.stack([group.rewards for group in groups]),
      advantages.get(advantage)(np.stack([group.shaped for group in groups])),
      prompt_length=prompt_length, completion_length=completion_length,
      drop_truncated=drop_truncated)
  if not collected.trained:
    made = made._replace(mask=np.zeros_like(made.mask),
                         advantages=np.zeros_like(made.advantages))
  return batching.pad_groups(made, collected.num_prompts or len(groups))


def statistics(collected: Collected) -> dict[str, float]:
  """A step's metrics of rewards and lengths, by TRL's names.

  Over all groups sampled, those left out of training too: what the policy
  earns, and not what was picked of it.
  """
  rewards, groups = collected.rewards, collected.groups
  has_reward = ~np.isnan(rewards)
  count = np.maximum(has_reward.sum(1), 1)
  mean = np.where(has_reward, rewards, 0).sum(1) / count
  spread = np.where(has_reward, (rewards - mean[:, None])**2, 0).sum(1)
  # The mean of seven floats 0.1 is not 0.1, and their std would not be 0.
  differ = np.array([group.has_signal for group in groups])
  std = np.where(differ, np.sqrt(spread / np.maximum(count - 1, 1)), 0.0)
  completions = [c for group in groups for c in group.completions]
  lengths = np.array([len(c.tokens) for c in completions])
  truncated = [c.finish == 'length' for c in completions]
  scored = np.any(has_reward, 1)
  average = lambda values: float(np.mean(values[scored])) if any(scored) else 0.
  return {
      'reward': float(np.sum(np.where(has_reward, rewards, 0))
                      / max(has_reward.sum(), 1)),
      'reward_std': average(std),
      'frac_reward_zero_std': average(~differ),
      'reward/unscored_frac': float(np.mean(~has_reward)),
      'reward/timeout_frac': collected.num_timeouts / rewards.size,
      'reward/error_frac': collected.num_errors / rewards.size,
      'completions/mean_length': float(lengths.mean()),
      'completions/min_length': float(lengths.min()),
      'completions/max_length': float(lengths.max()),
      'completions/clipped_ratio': float(np.mean(truncated)),
      'completions/error_frac': float(np.mean(
          [c.finish == 'error' for c in completions])),
      **_shaping_statistics(collected),
  }


def staleness(collected: Collected, version: int, *, limit: int
              ) -> dict[str, float]:
  """Versions between the weights that sampled and the learner's, by metric.

  Args:
    collected: a step's rollouts.
    version: of the learner, before it updates on them.
    limit: most versions allowed, `config.rollout.max_staleness`.

  Raises:
    RuntimeError: a completion is older, or newer than the learner. A sampler
      that works as it should returns none.
  """
  ages = [version - completion.version for group in collected.groups
          for completion in group.completions]
  if not (0 <= min(ages) and max(ages) <= limit):
    raise RuntimeError(
        f'Expected completions of weights 0 to {limit} versions older than '
        f'the learner\'s version {version}, got ages from {min(ages)} to '
        f'{max(ages)}. The sampler did not take the weights it was given: '
        f'see its log, or raise config.rollout.max_staleness.')
  return {'staleness/mean': float(np.mean(ages)),
          'staleness/max': float(max(ages))}


def _shaping_statistics(collected):
  """Metrics of what is switched on."""
  values = {}
  if collected.groups[0].penalties is not None:
    penalties = np.stack([group.penalties for group in collected.groups])
    values['reward/overlong_penalty'] = float(np.mean(penalties))
    values['reward/overlong_frac'] = float(np.mean(penalties < 0))
  if collected.num_prompts is not None:
    sampled = len(collected.groups)
    values['dynamic_sampling/generated_groups'] = sampled
    values['dynamic_sampling/kept_frac'] = len(collected.trained) / sampled
    values['dynamic_sampling/refills'] = collected.num_refills
  return values


def bank_rows(collected: Collected, batch: Batch, step: int
              ) -> list[bank.Rollout]:
  """The step's rows for the rollout bank, as the loss saw them.

  Groups that were left out of training are among them, and say so.
  """
  rows, row = [], 0
  for number, group in enumerate(collected.groups):
    dropped = collected.num_prompts is not None and not group.has_signal
    for i, completion in enumerate(group.completions):
      reward = None if np.isnan(group.rewards[i]) else float(group.rewards[i])
      rewards = dict(group.by_function[i])
      if group.penalties is not None:
        rewards['overlong'] = float(group.penalties[i])
      old_logps, advantage = None, 0.0
      if not dropped:
        old_logps = batch.old_logps[row, :len(completion.tokens)]
        advantage = float(batch.advantages[row])
        row += 1
      rows.append(bank.Rollout(
          step=step, group=number, example_id=group.prompt.id,
          request_id=group.requests[i].id, weights=completion.version,
          prompt_tokens=group.prompt.tokens, tokens=completion.tokens,
          text=group.texts[i], finish=completion.finish,
          behavior_logps=completion.logps, old_logps=old_logps,
          reward=reward, rewards=rewards,
          gold=str(group.prompt.fields['gold']), advantage=advantage,
          dropped=dropped))
  return rows


def _halved(size: int, needed: int) -> int:
  """`size`, halved as often as it stays even before and enough after."""
  while size % 2 == 0 and size // 2 >= needed:
    size //= 2
  return size
