"""Reward functions as one writes them for TRL, for the test of the adapter."""


def accuracy(prompts, completions, completion_ids, solution, **kwargs):
  """Of texts; None where there is no solution."""
  return [None if s is None else float(c.strip() == s)
          for c, s in zip(completions, solution, strict=True)]


def polite(completions, **kwargs):
  """Of chat messages."""
  return [1.0 if completion[0]['content'].endswith('please') else 0.0
          for completion in completions]


def asks(prompts, completions, **kwargs):
  return [float(prompt[-1]['role'] == 'user' and 'x' in prompt[-1]['content'])
          for prompt in prompts]


async def num_tokens(prompts, completions, completion_ids, **kwargs):
  return [len(ids) for ids in completion_ids]


def too_many(completions, **kwargs):
  return [1.0, 1.0]
