"""Every variant of configs/papers is a whole experiment."""
import itertools
import json
import os
import pathlib

import pytest

from configs.papers import atr_grpo, gapo, rpg, slices, variants
from rlclip import config as config_lib
from rlclip.dryrun import chips
from rlclip.dryrun import plan as plan_lib
from rlclip.models import config as model_config

_TABLES = {atr_grpo: (atr_grpo.MODELS, atr_grpo.RULES),
           gapo: (gapo.MODELS, gapo.RULES),
           rpg: (rpg.MODELS, rpg.RULES, rpg.CONTEXTS)}
_VARIANTS = [
    (module, ','.join(names)) for module, tables in _TABLES.items()
    for names in itertools.product(*tables)]
_DATA = pathlib.Path(os.environ.get('RLCLIP_DATA', '../shared/data'))
_MODELS = _DATA.parent / 'models'


def resolve(module, variant):
  return config_lib.resolve(module.get_config(variant))


@pytest.mark.parametrize('module, variant', _VARIANTS)
def test_a_variant_resolves(module, variant):
  experiment = resolve(module, variant)
  # Its rule is one of ours, with every number that it was given.
  assert experiment.loss_spec
  assert experiment.model.path
  assert experiment.learner.num_mini_batches in (4, 16)


def test_there_are_as_many_as_the_tables_have():
  assert len(_VARIANTS) == 2 * 4 + 3 * 8 + 2 * 12 * 3


def test_widths_of_gapo_follow_model_and_level():
  widths = lambda variant: (lambda b: (b.eps_low, b.eps_high))(
      resolve(gapo, variant).loss_spec.bounds)
  assert widths('r1-distill-1.5b,sequence') == (7e-5, 3e-4)
  assert widths('llama-3.2-3b,sequence') == (3e-3, 5e-3)
  assert widths('r1-distill-1.5b,token') == (0.2, 0.28)
  assert widths('qwen2.5-math-1.5b,gspo') == (3e-3, 3e-3)


def test_gapo_and_its_baselines_have_no_std_and_no_penalty():
  for rule in gapo.RULES:
    spec = resolve(gapo, rule).loss_spec
    assert spec.penalty is None
    assert spec.advantage in ('group_mean', 'f_grpo')


def test_rpg_updates_sixteen_times_on_512_prompts():
  experiment = resolve(rpg, 'rpg_urkl')
  assert experiment.sizes()['completions an update'] == 32 * 16
  assert experiment.updates_per_step == 16
  penalty = experiment.loss_spec.penalty
  # Half of 1e-4, as rewards are half of the paper's.
  assert (penalty.measure, penalty.beta, penalty.toward) == (
      'reverse_kl', 5e-5, 'anchor')


def test_only_grpo_of_rpg_scores_a_reference():
  assert [rule for rule in rpg.RULES
          if resolve(rpg, rule).loss_spec.needs_reference] == ['grpo']


@pytest.mark.parametrize('text, message', [
    ('qwen3-9b', 'Unknown variant'), ('qwen3-8b,qwen3-1.7b', 'Name one')])
def test_a_variant_that_is_none_is_refused(text, message):
  with pytest.raises(ValueError, match=message):
    atr_grpo.get_config(text)


def test_names_come_in_any_order_and_the_first_is_the_default():
  tables = {'a': {'x': 1, 'y': 2}, 'b': {'z': 3}}
  assert variants.choose('z,y', **tables) == {'a': 'y', 'b': 'z'}
  assert variants.choose('', **tables) == {'a': 'x', 'b': 'z'}


@pytest.mark.parametrize('row', slices.ROWS, ids=lambda row: row.name)
def test_a_row_lies_on_its_slice(row):
  experiment = config_lib.resolve(row.config)
  name = experiment.model.path.replace('/', '__')
  path = _MODELS / f'{name}.json'
  if not path.exists():
    pytest.skip(f'no {path.name} beside the folder that RLCLIP_DATA names')
  architecture = model_config.from_hf(
      json.loads(path.read_text(encoding='utf-8')))
  plan = plan_lib.make(experiment, architecture, chips.parse(row.topology))
  # Else rows would be computed on every device.
  assert plan.micro_rows % plan.batch_shards == 0
  assert plan.num_slots % (plan.host_mesh[0] * plan.host_mesh[1]) == 0


def test_every_model_of_the_papers_has_a_row():
  rows = {row.config.model.path for row in slices.ROWS}
  assert rows == {settings['model.path'] for module in _TABLES
                  for settings in module.MODELS.values()}
