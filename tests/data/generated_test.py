"""Generated tasks: pure, disjoint, and worked out as people would."""
import random

import pytest

from rlclip import rewards
from rlclip.data import arithmetic, splits, tasks


def problem_of(example):
  return example['operands']


@pytest.mark.parametrize('name', ['arithmetic', 'arithmetic_words'])
def test_examples_are_functions_of_seed_split_and_index(name):
  first, again = (tasks.get(name, seed=3).examples('train') for _ in range(2))
  assert [first[i] for i in (5, 0)] == [again[i] for i in (5, 0)]
  assert tasks.get(name, seed=4).examples('train')[:9] != first[:9]
  assert tasks.get(name, seed=3).examples('test')[:9] != first[:9]


def test_no_sum_is_in_both_splits_even_across_seeds():
  few = {'num_operands': 2, 'num_digits': 1}  # 100 problems
  train, test = (
      {e['operands'] for e in tasks.get('arithmetic', seed=seed, **few)
       .examples(split)[:2000]}
      for seed, split in ((0, 'train'), (1, 'test')))
  assert not train & test
  assert len(train | test) == 100


def test_no_word_problem_is_in_both_splits_whichever_way_round():
  def problems(split, seed):
    task = tasks.get('arithmetic_words', operations='+', operand=(1, 9),
                     seed=seed)
    numbers = lambda text: [int(n) for n in text.split() if n.isdigit()]
    texts = [e['problem'].replace('?', ' ').replace('.', ' ')
             for e in task.examples(split)[:1000]]
    return {tuple(sorted(numbers(text)[:2])) for text in texts}
  train, test = problems('train', 0), problems('test', 1)
  assert not train & test
  assert len(train | test) == 45


def test_the_working_of_one_sum_by_hand():
  example = {'operands': (347, 58, 926), 'width': 4}
  assert arithmetic.demonstration(example, random.Random(0)) == (
      '51014000 11303110 #1331')


def test_working_without_slips_is_right_and_short():
  task = tasks.get('arithmetic')
  score = rewards.get(task.reward)
  for example in task.examples('train')[:300]:
    text = task.demonstration(example, random.Random(0))
    assert len(text) <= 48
    assert score('', text, (), gold=task.gold(example), **{
        'marker': example['marker']}) == 1.0


def test_slips_spoil_as_many_sums_as_their_rate_says():
  task = tasks.get('arithmetic', num_operands=3, num_digits=3)
  rng, score = random.Random(0), rewards.get(task.reward)
  texts = [(e, task.demonstration(e, rng, 0.05))
           for e in task.examples('train')[:2000]]
  right = sum(
      score('', text, (), gold=task.gold(e), marker='#') for e, text in texts)
  # 8 columns: 0.95^8 = 0.663, and a little more since some slips cancel; four
  # standard deviations of 2000 draws are 0.043.
  assert abs(right / 2000 - 0.667) < 0.043


def test_slips_are_carried_on():
  example = {'operands': (5, 5, 0), 'width': 2}
  rng = random.Random(0)
  texts = {arithmetic.demonstration(example, rng, 0.5) for _ in range(300)}
  assert '0110 0010 #10' in texts  # 5 + 5 = 10, right
  assert '0000 0000 #0' in texts  # the carry forgotten, and 00 + 0 = 0
  assert '1110 1010 #11' in texts  # one off: 11, and 11 + 0 = 11


def test_alphabet_covers_prompts_and_completions():
  task = tasks.get('arithmetic')
  for example in task.examples('test')[:50]:
    text = task.messages(example) + task.demonstration(
        example, random.Random(1), 0.3)
    assert set(text) <= set(arithmetic.ALPHABET)


def test_operands_have_the_asked_digits():
  task = tasks.get('arithmetic', num_operands=(3, 4), num_digits=(2, 3))
  terms = [e['operands'] for e in task.examples('train')[:400]]
  assert {len(t) for t in terms} == {3, 4}
  assert {len(str(number)) for t in terms for number in t} == {2, 3}
  assert task.messages({'problem': '047+123='}) == '047+123='


def test_word_problems_have_their_answers():
  task = tasks.get('arithmetic_words', instruction='Be brief.')
  seen = set()
  for example in task.examples('train')[:300]:
    message, = task.messages(example)
    assert message['content'].endswith(' Be brief.')
    numbers = [int(n) for n in
               example['problem'].replace('?', ' ').replace('.', ' ').split()
               if n.isdigit()]
    a, b = numbers
    value = {'+': a + b, '-': a - b, '*': a * b}[example['operation']]
    assert value >= 0 and task.gold(example) == str(value)
    seen.add(example['operation'])
  assert seen == set('+-*')


def test_splits_have_their_shares():
  share = sum(splits.split_of(i) == 'test' for i in range(8000)) / 8000
  assert abs(share - 1 / 8) < 0.015  # four standard deviations


def test_impossible_options_are_named():
  with pytest.raises(ValueError, match='num_digits'):
    tasks.get('arithmetic', num_digits=(3, 2))
  with pytest.raises(ValueError, match='operations'):
    tasks.get('arithmetic_words', operations='/')
  with pytest.raises(ValueError, match='Widen the ranges'):
    tasks.get('arithmetic_words', operations='+', operand=(1, 1)).examples(
        'test')[0]
  with pytest.raises(ValueError, match='slip_rate'):
    arithmetic.demonstration({'operands': (1, 2), 'width': 2}, None, 1.5)
