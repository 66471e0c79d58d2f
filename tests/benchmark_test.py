"""The benchmark of losses, on a small experiment."""
import json

import pytest

from configs import tiny
from rlclip import config
from rlclip.benchmark import losses, machine

_NAMES = ('atr_grpo', 'gapo', 'icepop')  # which read no more, rewards, old


@pytest.fixture(scope='module')
def result():
  return losses.run(config.resolve(tiny.get_config()), _NAMES)


def test_a_ratio_is_of_medians_and_the_largest_is_named(result):
  for key, clock in (('ratio', 'median_s'), ('cpu_ratio', 'cpu_s')):
    whole, ratio = result['t']['update'][clock], result[key]
    for name in _NAMES:
      own = result['t'][f'loss/{name}']
      assert own['min_s'] <= own['median_s'] <= own['max_s']
      assert ratio[name] == pytest.approx(own[clock] / whole)
      # Arithmetic on 16 x 12 numbers, against a model's two passes and AdamW.
      assert ratio[name] < 1
    assert ratio[result['largest'][key]] == max(ratio.values())


def test_no_rule_adds_a_compilation(result):
  assert result['compilations'] == dict.fromkeys((*_NAMES, 'update'), 1)
  last = lambda result: losses.table(result).splitlines()[-1]
  assert last(result) == '3 losses; compiled more than once: none'
  twice = {**result, 'compilations': {**result['compilations'], 'gapo': 2}}
  assert last(twice) == '3 losses; compiled more than once: gapo'


def test_a_result_is_json(result):
  assert json.loads(json.dumps(result)) == result


def test_the_machines_rates_follow_from_the_best_time():
  product = machine.product_rate('float32', 64, repeats=2)
  assert product['flops_s'] == pytest.approx(2 * 64**3 / product['min_s'])
  moved = machine.bandwidth(1 << 16, repeats=2)
  assert moved['bytes_s'] == pytest.approx(2 * (1 << 16) / moved['min_s'])
