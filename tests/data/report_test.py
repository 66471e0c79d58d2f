"""The report on a task's data, with planted flaws; and overlap itself."""
import json

import pytest

from rlclip.data import overlap, report, tasks, tokenizer
from rlclip.rewards import golds, pool

TEST = ('Ann walks from her house to the station at $4$ km/h, and back at '
        '$6$ km/h. The whole way takes her 50 minutes. How far is it?')
PHRASE = ('The answer is $\\frac{m}{n}$, where $m$ and $n$ are relatively '
          'prime positive integers. Find $m+n$.')
PLAIN = [f'A bag has {n} red and {n * n} blue balls. How many is that? {PHRASE}'
         for n in range(2, 12)]
PLANTED = {
    'spaced': TEST.upper().replace('$', ' ').replace('. ', '.\n\n'),
    'in_front': f'Answer with a fraction of a kilometer. {TEST}',
    'changed': TEST.replace('50 minutes', '40 minutes'),
    'twice': PLAIN[3].replace('$', '$$ '),
    'long': 'Add the numbers. ' + '1 + ' * 200 + '1 = ?',
    'no_gold': 'What is left?'}
ALPHABET = ''.join(map(chr, range(32, 127))) + '\n'


@pytest.fixture
def parts(tmp_path):
  texts = {f'plain{n}': text for n, text in enumerate(PLAIN)} | PLANTED
  rows = [{'name': i, 'problem': text,
           'answer': '' if i == 'no_gold' else '7'} for i, text in texts.items()
          ]
  (tmp_path / 'train.jsonl').write_text('\n'.join(map(json.dumps, rows)))
  task = tasks.get(
      'table', data_dir=str(tmp_path), files={'train': 'train.jsonl'},
      columns={'id': 'name'}, chat=False, cache_dir=str(tmp_path / 'cache'))
  tests = {'other': [{'id': 't0', 'problem': 'How high is it?'},
                     {'id': 't1', 'problem': f'How deep is it? {PHRASE}'}],
           'walks': [{'id': 'w0', 'problem': TEST}]}
  return task, tokenizer.character_tokenizer(ALPHABET), tests


def test_planted_rows_are_found_and_no_others(parts):
  task, characters, tests = parts
  with pool.Pool({'math': 1.0}, num_workers=1) as workers:
    found = report.make(
        task, characters, limit=400, indices=range(16), tests=tests,
        check_golds=lambda examples: golds.check_examples(
            task, examples, workers))
  assert [(o.id, o.task, o.test_id) for o in found.overlaps] == [
      (i, 'walks', 'w0') for i in ('spaced', 'in_front', 'changed')]
  assert [o.share == 1 for o in found.overlaps] == [True, True, False]
  assert found.duplicates == [('twice', 'plain3')]
  assert found.too_long == [('long', 17 + 4 * 200 + 5)]
  assert found.unscorable == [('no_gold', '', 'unreadable')]
  assert (found.num_rows, found.num_checked, found.num_golds) == (16, 16, 16)
  text = '\n'.join(report.lines(found))
  for part in ('table/train: 16 rows', '3 overlaps with 2 of other, 1 of walks',
               'spaced ~ walks/w0 (100%)', '1 duplicates: twice = plain3',
               'longer than 400 tokens: long (822)', "no_gold: ''"):
    assert part in text, text


def test_flawed_rows_are_dropped_on_request(parts):
  task, characters, tests = parts
  without = lambda limit=400, **options: report.without(
      task, characters, limit=limit, tests=lambda: tests, **options)
  names = lambda task: [e['id'] for e in task.examples('train')[:]]
  everything = names(task)
  left = without(drop=('too_long', 'overlap'))
  assert names(left) == [i for i in everything if i not in (
      'spaced', 'in_front', 'changed', 'long')]
  assert left.examples('train')[-1]['id'] == 'no_gold'
  assert 'twice' not in names(without(drop=('duplicate',)))
  with pytest.raises(ValueError, match=(
      "empty data set: of 16 rows {'too_long': 16}")):
    names(without(3, drop=('too_long',)))
  mixed = tasks.get('mixture', parts={'arithmetic': 1})
  with pytest.raises(ValueError, match="an order of its own, got .'overlap'"):
    report.without(mixed, characters, drop=('overlap',), limit=9,
                   tests=lambda: {})


@pytest.mark.parametrize('one, other, same', [
    ('Find $x^{2}$.', 'find x^2', True),
    ('\\left( 1 \\right)', '(1)', True),
    ('ＡＢ １', 'ab 1', True),
    ('1.5 apples', '15 apples', False),
    ('$x - 1$', '$x + 1$', False),
    ('3 of 4', '4 of 3', False)])
def test_what_counts_as_the_same_text(one, other, same):
  assert (overlap.normalized(one) == overlap.normalized(other)) == same


def test_a_run_of_words_does_not_cross_from_one_problem_into_the_next():
  words = [f'w{i}' for i in range(20)]
  tests = {'t': (['0'], [' '.join(words)])}
  halves = [' '.join(words[:10]), ' '.join(words[10:])]
  assert not overlap.overlaps(['a', 'b'], halves, tests)
  assert overlap.overlaps(['a'], [' '.join(words[:17])], tests) == [
      ('a', 't', '0', 5 / 8)]
