"""Generated puzzles of reasoning-gym, an optional extra (`rlclip[gym]`).

Stojanovski et al., "Reasoning Gym", arXiv 2505.24760.
"""
import json
from typing import Any, Mapping

from rlclip.data import tasks

_APART = 1 << 30  # seeds of the splits, more than a split has items
_INSTRUCTION = 'Put your final answer between <answer> and </answer>.'


@tasks.register('reasoning_gym')
def reasoning_gym(
    *, dataset: str = 'leg_counting', options: Mapping[str, Any] | None = None,
    instruction: str = _INSTRUCTION, system: str = '', chat: bool = True,
    num_train: int = 1 << 14, num_test: int = 1 << 9, seed: int = 0,
) -> tasks.Task:
  """One of reasoning-gym's data sets.

  The library draws item i from its seed plus i, so the splits get seeds that
  are far apart. A small puzzle may still be in both; the report at a run's
  start counts those that are.

  Args:
    dataset: its name there.
    options: of the data set, such as its ranges.
    instruction: follows the question.
    system: a system message; empty leaves it to the chat template.
    chat: whether prompts are chat messages, else plain text.
    num_train: size of the training split.
    num_test: size of the test split.
    seed: of the examples.

  Raises:
    ValueError: the extra is not installed, or there is no such data set.
  """
  try:
    import reasoning_gym as library
  except ImportError as error:
    raise ValueError(
        'Task \'reasoning_gym\' needs the package reasoning-gym, which is not '
        f'installed ({error}). Run: pip install rlclip[gym]') from error
  sizes = {'train': num_train, 'test': num_test}
  made = {}

  def generated(split):
    if split not in made:
      try:
        made[split] = library.create_dataset(
            dataset, size=sizes[split],
            seed=2 * _APART * seed + _APART * (split == 'test'),
            **dict(options or {}))
      except (TypeError, AssertionError) as error:
        raise ValueError(
            f'reasoning-gym refuses the options {dict(options or {})} for '
            f'{dataset!r}: {error}') from error
    return made[split]

  def example(split, index):
    entry = generated(split)[index]
    return {
        'id': f'{dataset}-{split}-{seed}-{index}',
        'problem': entry['question'], 'answer': str(entry['answer']),
        'dataset': dataset,
        # As text: the metadata holds whatever the data set's scorer reads.
        'entry': json.dumps(entry, default=str)}

  def examples(split):
    tasks.check_split('reasoning_gym', split, tuple(sizes))
    return tasks.Examples(sizes[split], lambda i: example(split, i))

  generated('train')  # an unknown name or option stops here
  return tasks.Task(
      name='reasoning_gym', reward='reasoning_gym', splits=tuple(sizes),
      examples=examples, messages=lambda e: tasks.ask(
          e['problem'], instruction, system=system, chat=chat),
      gold=lambda e: e['answer'])
