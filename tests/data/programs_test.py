"""Programming sets: splits, golds, and that the references pass them."""
import json

import pytest

from rlclip.data import tasks
from rlclip.rewards import code
from tests.data.tasks_test import DATA, needs_data


def get(name, tmp_path, **options):
  return tasks.get(
      name, data_dir=str(DATA), cache_dir=str(tmp_path), **options)


@needs_data
@pytest.mark.parametrize('name, sizes', [
    ('humaneval', {'test': 164}), ('mbpp', {'train': 474, 'test': 500})])
def test_reference_programs_pass_their_golds(name, sizes, tmp_path):
  task = get(name, tmp_path)
  assert task.reward == 'code' and set(task.splits) == set(sizes)
  for split, size in sizes.items():
    examples = task.examples(split)
    assert len(examples) == size
    for example in examples[3:30:9]:
      text = task.demonstration(example)
      assert text.startswith('```python\n') and text.endswith('\n```')
      # As the pool calls the reward, columns and all.
      fields = {k: v for k, v in example.items() if k != 'prompt'}
      verdict = lambda text: code.code(
          '', text, (), **fields, gold=task.gold(example), wall_s=30.0)
      assert verdict(text) == 1
      assert verdict(text.replace('return ', 'return None and ')) == 0
  message, = task.messages(example)
  assert message['content'].endswith('```python block.')


@needs_data
def test_contests_are_split_by_problem_without_unclear_ones(tmp_path):
  task = get('code_contests', tmp_path)
  everything = get('code_contests', tmp_path, keep={})
  sizes = [sum(len(t.examples(split)) for split in ('train', 'test'))
           for t in (task, everything)]
  assert sizes == [162 - 41, 162]
  ids = [{e['id'] for e in task.examples(split)[:]}
         for split in ('train', 'test')]
  assert not ids[0] & ids[1] and len(ids[1]) > 8
  example = task.examples('test')[0]
  assert json.loads(task.gold(example))['tests'] == example['tests']
  answers = {case['input']: case['output'] for case in example['tests']}
  oracle = f'print({answers!r}[open(0).read()])'
  for program, reward in ((oracle, 1), ('print()', 0)):
    assert code.score(program, task.gold(example)) == reward
  assert task.demonstration is None
