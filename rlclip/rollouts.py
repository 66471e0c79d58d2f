"""One step's rollouts: from prompts to a batch the learner takes.

prompts -> sampler -> completions -> rewards -> advantages -> batch
"""
from typing import NamedTuple, Sequence

import numpy as np

from rlclip import advantages
from rlclip.data import bank, batching, tasks, tokenizer
from rlclip.rewards import pool as pool_lib
from rlclip.types import (Batch, Completion, Prompt, Request, Sampler,
                          SamplingSpec)


class Group(NamedTuple):
  """One prompt's answers and what they earned."""
  prompt: Prompt
  requests: Sequence[Request]
  completions: Sequence[Completion]
  texts: Sequence[str]
  rewards: np.ndarray  # float[G], nan where there is none
  by_function: Sequence[dict[str, float | None]]  # G of them, unweighted


class Collected(NamedTuple):
  """Groups, and how the verifiers fared."""
  groups: Sequence[Group]
  num_timeouts: int
  num_errors: int

  @property
  def rewards(self) -> np.ndarray:
    """float[P, G], nan where a completion could not be scored."""
    return np.stack([group.rewards for group in self.groups])


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
            spec: SamplingSpec, *, group_size: int, first_id: int,
            phase) -> Collected:
  """Samples a group for every prompt and scores it.

  Args:
    sampler: any.
    pool: the verifiers.
    decode: ids -> text.
    prompts: P of them.
    spec: how to draw.
    group_size: G.
    first_id: of the requests; they are numbered on from it.
    phase: `with phase(name):` times what stands in it.

  Returns:
    The groups, in the order of the prompts.
  """
  requests = [
      Request(first_id + i * group_size + g, prompt.tokens, spec)
      for i, prompt in enumerate(prompts) for g in range(group_size)]
  with phase('sample'):
    completions = sampler.generate(requests)
    texts = [decode(completion.tokens) for completion in completions]
  with phase('reward'):
    scored = pool.score([
        pool_lib.ScoreItem(prompt.text, text, completion.tokens, prompt.fields)
        for prompt, text, completion in zip(
            np.repeat(np.array(prompts, object), group_size), texts,
            completions, strict=True)])
  rewards = np.array(
      [np.nan if r is None else r for r in scored.rewards], np.float64)
  by_function = [dict(zip(scored.by_function, values))
                 for values in zip(*scored.by_function.values())]
  cut = lambda items, i: items[i * group_size:(i + 1) * group_size]
  groups = [
      Group(prompt, *(cut(items, i) for items in (
          requests, completions, texts, rewards, by_function)))
      for i, prompt in enumerate(prompts)]
  return Collected(groups, scored.num_timeouts, scored.num_errors)


def batch(collected: Collected, *, advantage: str, prompt_length: int,
          completion_length: int, drop_truncated: bool) -> Batch:
  """Computes advantages and pads everything to few sizes.

  Prompts and completions are padded to the smallest of C, C / 2, C / 4, ...
  that holds the longest: a policy that learns to be brief is updated faster,
  for a compilation a size.
  """
  groups = collected.groups
  longest = max(len(c.tokens) for group in groups for c in group.completions)
  completion_length = _halved(completion_length, longest)
  prompt_length = _halved(
      prompt_length, max(len(group.prompt.tokens) for group in groups))
  return batching.make_batch(
      [group.prompt for group in groups],
      [group.completions for group in groups], collected.rewards,
      advantages.get(advantage)(collected.rewards),
      prompt_length=prompt_length, completion_length=completion_length,
      drop_truncated=drop_truncated)


def statistics(collected: Collected) -> dict[str, float]:
  """A step's metrics of rewards and lengths, by TRL's names."""
  rewards = collected.rewards
  has_reward = ~np.isnan(rewards)
  count = np.maximum(has_reward.sum(1), 1)
  mean = np.where(has_reward, rewards, 0).sum(1) / count
  spread = np.where(has_reward, (rewards - mean[:, None])**2, 0).sum(1)
  std = np.sqrt(spread / np.maximum(count - 1, 1))
  completions = [c for group in collected.groups for c in group.completions]
  lengths = np.array([len(c.tokens) for c in completions])
  truncated = [c.finish == 'length' for c in completions]
  scored = np.any(has_reward, 1)
  average = lambda values: float(np.mean(values[scored])) if any(scored) else 0.
  return {
      'reward': float(np.sum(np.where(has_reward, rewards, 0))
                      / max(has_reward.sum(), 1)),
      'reward_std': average(std),
      'frac_reward_zero_std': average(std == 0),
      'reward/unscored_frac': float(np.mean(~has_reward)),
      'reward/timeout_frac': collected.num_timeouts / rewards.size,
      'reward/error_frac': collected.num_errors / rewards.size,
      'completions/mean_length': float(lengths.mean()),
      'completions/min_length': float(lengths.min()),
      'completions/max_length': float(lengths.max()),
      'completions/clipped_ratio': float(np.mean(truncated)),
  }


def bank_rows(collected: Collected, batch: Batch, step: int
              ) -> list[bank.Rollout]:
  """The step's rows for the rollout bank, as the loss saw them."""
  rows = []
  for number, group in enumerate(collected.groups):
    size = len(group.completions)
    for i in range(size):
      row, completion = number * size + i, group.completions[i]
      reward = None if np.isnan(group.rewards[i]) else float(group.rewards[i])
      rows.append(bank.Rollout(
          step=step, group=number, example_id=group.prompt.id,
          request_id=group.requests[i].id, weights=completion.version,
          prompt_tokens=group.prompt.tokens, tokens=completion.tokens,
          text=group.texts[i], finish=completion.finish,
          behavior_logps=completion.logps,
          old_logps=batch.old_logps[row, :len(completion.tokens)],
          reward=reward, rewards=group.by_function[i],
          gold=str(group.prompt.fields['gold']),
          advantage=float(batch.advantages[row])))
  return rows


def _halved(size: int, needed: int) -> int:
  """`size`, halved as often as it stays even before and enough after."""
  while size % 2 == 0 and size // 2 >= needed:
    size //= 2
  return size
