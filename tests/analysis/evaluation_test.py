"""What an evaluation leaves on disk, and the Markdown made of it."""
import json

import pytest

from rlclip import evaluate
from rlclip.analysis import evaluation
from rlclip.types import SamplingSpec

SETTINGS = evaluation.settings(
    SamplingSpec(64, (2,), 0.7, 0.9, 5), seed=3, num_samples=2,
    model='models/a', seconds=1.23)


def result(task, step=0, right=1, num_samples=2):
  return evaluation.Result(task, step, [
      evaluate.Answer(f'{task}-{p}', 'p', 'c', '1', float(s < right and p),
                      'stop', 9, '1', True)
      for p in range(2) for s in range(num_samples)], SETTINGS)


def test_files_of_two_tasks_read_back(tmp_path):
  results = [result('a'), result('b', right=2)]
  for count in (1, 2):
    paths = evaluation.write(tmp_path, results[:count])
  assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob('*.*')
                ) == ['0.html', 'a/0.json', 'a/0.jsonl', 'b/0.json',
                      'b/0.jsonl']
  assert 'b-1' in paths['page'].read_text() and 'a-1' in (
      paths['page'].read_text())
  assert evaluation.read(tmp_path) == results
  report = json.loads((tmp_path / 'a' / '0.json').read_text())
  assert report['settings']['temperature'] == 0.7
  assert report['settings']['seconds'] == 1.2
  assert (report['num_problems'], report['num_completions']) == (2, 4)
  assert report['measures']['pass@1'] == {
      'value': 0.25, 'low': 0.0, 'high': 0.5, 'method': 'bootstrap',
      'num_problems': 2}
  assert list(report['pass_at_k']) == list(report['maj_at_k']) == ['1', '2']
  assert report['pass_at_k']['2']['value'] == 0.5


def test_the_newest_step_of_a_run_is_read(tmp_path):
  for step in (9, 20):
    evaluate.write(tmp_path / 'a' / f'{step}.jsonl', result('a').answers)
  (found,) = evaluation.read(tmp_path)
  assert (found.step, found.settings) == (20, {})
  (found,) = evaluation.read(tmp_path, step=9)
  assert found.step == 9
  with pytest.raises(ValueError, match='of step 10 in .*, found none'):
    evaluation.read(tmp_path, step=10)


def test_markdown_says_how_intervals_were_made():
  got = evaluation.markdown(
      [result('many'), result('one', num_samples=1)]).splitlines()
  assert got[0] == '|  | many | one |'
  assert got[2] == '| problems x samples | 2 x 2 | 2 x 1 |'
  assert got[3] == ('| pass@1 | 0.250 [0.000, 0.500] | '
                    '0.500 [0.095, 0.905] w |')
  assert '| mean@2 | 0.250 [0.000, 0.500] |  |' in got
  assert any('temperature 0.7' in line for line in got)
