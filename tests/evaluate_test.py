"""Answers drawn by a scripted sampler, and the measures made of them."""
import contextlib

import pytest

from rlclip import evaluate, rollouts
from rlclip.data import tasks, tokenizer
from rlclip.rewards import extraction
from rlclip.rewards import pool as pool_lib
from rlclip.sampler import scripted
from rlclip.types import SamplingSpec

TASK = tasks.get('arithmetic', num_operands=2, num_digits=1)
TOKENIZER = tokenizer.character_tokenizer(TASK.alphabet)


def answer(right, extracted='1', problem='a', finish='stop', tokens=5):
  return evaluate.Answer(
      problem, 'p', 'c', 'g', None if right is None else float(right), finish,
      tokens, extracted, extracted is not None)


def test_answers_are_drawn_scored_and_read():
  prompts = rollouts.encode(TASK, TOKENIZER, 'test', range(2), limit=8)
  seen = []

  def script(request):
    seen.append(request)
    gold = prompts[len(seen) > 2].fields['gold']
    text = {1: f' #{gold}', 2: '9' * 8}.get(len(seen), ' #999')
    return [*TOKENIZER.encode(text), *TOKENIZER.stop_ids]

  sampler = scripted.Scripted(script)
  spec = SamplingSpec(8, TOKENIZER.stop_ids, temperature=0.5, top_k=3)
  with pool_lib.Pool({'arithmetic': 1.0}, num_workers=1) as pool:
    got = evaluate.run(
        sampler, pool, TOKENIZER.decode, prompts, spec, num_samples=2,
        phase=lambda name: contextlib.nullcontext(),
        extract=extraction.get('arithmetic'))
  assert [a.id for a in got] == [p.id for p in prompts for _ in range(2)]
  assert [a.verdict for a in got] == ['right', 'wrong', 'wrong', 'wrong']
  assert [a.extracted for a in got] == [
      prompts[0].fields['gold'], None, '999', '999']
  assert [a.format for a in got] == [True, False, True, True]
  assert [a.finish for a in got] == ['stop', 'length', 'stop', 'stop']
  # Its own settings, and ids that training never comes to.
  assert {request.spec for request in seen} == {spec}
  assert [request.id - 2**31 for request in seen] == [0, 1, 2, 3]


def test_measures_of_two_problems():
  got = evaluate.summary([
      *(answer(i < 3, '1' if i < 3 else str(i), 'a', tokens=10)
        for i in range(8)),
      *(answer(False, None, 'b', finish='length', tokens=20)
        for i in range(8))])
  values = {name: round(e.value, 6) for name, e in got.items()}
  assert values == {
      'pass@1': 0.1875, 'mean@8': 0.1875, 'pass@2': round(9 / 28, 6),
      'pass@4': round(0.928571 / 2, 6), 'pass@8': 0.5,
      # Of 28 pairs 3 are twice right, 15 tied; of 70 fours 5 hold 3 right, 30
      # hold 2, and 30 one, one of four; with all, 3 votes beat 1.
      'maj@2': round((3 + 15 / 2) / 28 / 2, 6),
      'maj@4': round((5 + 30 + 30 / 4) / 70 / 2, 6), 'maj@8': 0.5,
      'truncated': 0.5, 'format': 0.5, 'tokens': 120.0}
  assert {e.method for e in got.values()} == {'bootstrap'}


def test_one_sample_a_problem_has_no_votes():
  got = evaluate.summary([answer(True, problem='a'),
                          answer(None, problem='b')])
  assert list(got) == ['pass@1', 'truncated', 'format', 'tokens']
  assert got['pass@1'].value == 0.5
  assert [e.method for e in got.values()] == [*['wilson'] * 3, 'bootstrap']


def test_a_reward_that_reads_no_answer_has_neither_votes_nor_format():
  rows = [answer(i % 2)._replace(extracted=None, format=None)
          for i in range(4)]
  assert list(evaluate.summary(rows)) == [
      'pass@1', 'mean@4', 'pass@2', 'pass@4', 'truncated', 'tokens']


@pytest.mark.parametrize('row, expected', [
    # Alike but for how numbers, spaces and fractions are written.
    ([(0, '1,234'), (0, ' 1234.0'), (1, '7')], 0.0),
    ([(0, r'\dfrac{1}{2} x'), (0, r'$\frac{1}{2}x$.'), (1, '7')], 0.0),
    # What is right is equal, however it is written.
    ([(1, '0.5'), (1, r'\frac12'), (0, '3')], 1.0),
    # Right without an answer that could be read votes all the same.
    ([(1, None), (1, '7'), (0, '3')], 1.0),
    # Who has no answer, right or unscored, does not outvote.
    ([(0, None), (None, None), (1, '7')], 1.0),
    ([(0, None), (0, None)], 0.0),
    # The same answer judged twice, differently.
    ([(1, '7'), (0, '7')], 0.5)])
def test_who_votes_together(row, expected):
  got = evaluate.at_every_k([answer(*a) for a in row])
  assert got['maj'][len(row)].value == pytest.approx(expected)


def test_every_k_up_to_the_fewest_samples():
  rows = [answer(True, problem='a')] * 4 + [answer(False, problem='b')] * 3
  got = evaluate.at_every_k(rows)
  assert list(got['pass']) == list(got['maj']) == [1, 2, 3]


def test_lines_hold_the_verdict_and_read_back(tmp_path):
  answers = [answer(True), answer(None, None), answer(False, '\u2028"\n\0')]
  evaluate.write(tmp_path / 'a.jsonl', answers)
  text = (tmp_path / 'a.jsonl').read_text(encoding='utf-8')
  assert text.count('"verdict"') == 3 and '"verdict": "unscored"' in text
  assert evaluate.read(tmp_path / 'a.jsonl') == answers
