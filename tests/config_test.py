"""Configs: every key checked before step 0, in words that help."""
import dataclasses
import importlib
import pathlib
import pkgutil

import pytest

import configs
from configs import default, tiny
from rlclip import config, config_checks


def changed(**changes):
  """The default config with `a__b=value` changes."""
  made = default.get_config()
  for key, value in changes.items():
    *groups, leaf = key.split('__')
    node = made
    for group in groups:
      node = node[group]
    node[leaf] = value
  return made


SERVERS = dict(
    sampler__kind='vllm', sampler__urls=('http://a:8000', 'http://b:8000'),
    sampler__weights_folder='/shared/weights')


def test_servers_are_accepted_as_they_should_be():
  assert config.resolve(changed(**SERVERS)).sampler.kind == 'vllm'


@pytest.mark.parametrize(
    'name', [m.name for m in pkgutil.iter_modules(configs.__path__)])
def test_every_config_resolves(name):
  module = importlib.import_module(f'configs.{name}')
  experiment = config.resolve(module.get_config())
  assert experiment.num_rows == (
      experiment.rollout.num_prompts * experiment.rollout.group_size)


@pytest.mark.parametrize('changes, message', [
    (dict(learner__num_mini_batches=5),
     'num_mini_batches must be a divisor of rollout.num_prompts = 32, got 5'),
    (dict(learner__num_mini_batches=4, learner__num_micro_batches=3),
     'a divisor of the 8 prompts of a mini-batch, got 3'),
    (dict(learner__num_mini_batches=0), 'mini_batches must be 1 or more'),
    (dict(rollout__temperature=0.0), 'temperature must be more than 0'),
    (dict(model__architecture__max_positions=100),
     'at least prompt_length .* = 128, got 100'),
    (dict(evaluation__temperature=0.0, evaluation__num_samples=4),
     'greedy samples are all the same, got 4'),
    (dict(warm_start__options={'a': 1}), 'empty where warm_start.task is'),
    (dict(task__drop=('overlap', 'long')), 'out of too_long, .*overlap, got'),
    (dict(optimizer__schedule='step'), "cosine or linear, got 'step'"),
    (dict(optimizer__name='adam'), "muon', 'schedule_free.* got 'adam'"),
    (dict(optimizer__name='schedule_free_adamw', optimizer__schedule='linear'),
     "takes the place of a decay, got 'linear'"),
    (dict(optimizer__name='schedule_free_adamw',
          optimizer__state_dtype='bfloat16'), 'state_dtype must be float32'),
    (dict(optimizer__name='schedule_free_adamw', optimizer__b1=0.0),
     'b1 must be above 0'),
    (dict(optimizer__state_dtype='int8'), 'float32 or bfloat16, got'),
    (dict(optimizer__multipliers=('norms=1',)), "'group=factor'.*'norms=1'"),
    (dict(optimizer__multipliers=('norm=-1',)), "'group=factor'.*'norm=-1'"),
    (dict(optimizer__multipliers=('norm=1', 'norm=2')), 'one factor a group'),
    (dict(model__lora__rank=-1), r'rank must be 0 \(none\) or more, got -1'),
    (dict(model__lora__alpha=0.0), 'alpha must be more than 0'),
    (dict(model__lora__modules=('query', 'head')),
     "out of .'query', .*'down'.*, got .'query', 'head'"),
    (dict(model__lora__modules=()), 'one or more, each once'),
    (dict(algorithm__name='atr_grpoo'), "Did you mean 'atr_grpo'"),
    # GRPO's clip has no delta: the option would have no effect.
    (dict(algorithm__delta=0.1), "'grpo' does not take delta"),
    (dict(algorithm__name='atr_grpo', algorithm__delta=-1.0), 'delta > 0'),
    (dict(reward__overlong_buffer=65),
     'overlong_buffer must be 0 .*completion_length = 64, got 65'),
    (dict(reward__overlong_factor=0.5), 'it has no effect, got 0.5'),
    (dict(reward__overlong_buffer=8, algorithm__advantage='f_grpo(gamma=2)'),
     'must be 0 with the advantage f_grpo'),
    (dict(reward__also=('repetition',)), "'name=weight' each.*'repetition'"),
    (dict(reward__also=('think=1',), algorithm__advantage='f_grpo(gamma=2)'),
     'also must be empty with the advantage f_grpo'),
    (dict(reward__on_failure='stop'), "none, zero or raise, got 'stop'"),
    (dict(rollout__max_refills=-1), 'max_refills must be 0 .off. or more'),
    (dict(rollout__max_refills=1, rollout__group_size=1),
     'no group has a signal, got 1'),
    (dict(rollout__max_staleness=-1), 'max_staleness must be 0 .wait. or more'),
    # Their divergence is to the policy that sampled, which is gone by then.
    (dict(algorithm__name='dppo_top_k', rollout__max_staleness=1),
     'max_staleness must be 0 where the rule reads whole distributions'),
    (dict(algorithm__name='grpo', rollout__max_staleness=1,
          algorithm__penalty='reverse_kl', algorithm__beta=0.1,
          algorithm__toward='anchor', algorithm__estimator='exact'),
     'max_staleness must be 0 where the rule reads whole distributions'),
    (dict(sampler__kind='trl'), "local, vllm or sglang, got 'trl'"),
    (dict(sampler__kind='vllm'), "urls must be empty where .*base URLs, got"),
    (dict(sampler__urls=('http://a:1',)), 'urls must be empty where'),
    (dict(SERVERS, sampler__urls=('a:8000',)), 'http:// or https:// each'),
    (dict(SERVERS, sampler__urls=('http://a', 'http://a')), 'without repet'),
    (dict(SERVERS, sampler__weights_folder=''), 'weights_folder must be empty'),
    (dict(SERVERS, sampler__weights_folder='runs/w'), 'an absolute path'),
    (dict(SERVERS, sampler__timeout=0.0), 'timeout must be more than 0'),
    (dict(SERVERS, sampler__retries=-1), 'retries must be 0 or more'),
    (dict(SERVERS, sampler__dtype='int8'), 'float32 or bfloat16'),
    (dict(SERVERS, rollout__num_slots=8), 'sampler.in_flight is the limit'),
    (dict(reference__kl_decay=1.0), 'kl_decay must be at least 0'),
    # DAPO's rule has no reference to refresh.
    (dict(algorithm__name='dapo', reference__every=5),
     'every must be 0, its default, where the rule has no penalty'),
    (dict(algorithm__name='dapo', reference__max_kl=0.1), 'max_kl must be 0.0'),
    (dict(algorithm__name='dapo', reference__kl_decay=0.5), 'must be 0.9'),
])
def test_what_makes_no_sense_stops_before_step_0(changes, message):
  with pytest.raises(ValueError, match=message):
    config.resolve(changed(**changes))


@pytest.mark.parametrize('changes, lacks', [
    (dict(algorithm__anchor='old'), "to the learner's own log-probs"),
    (dict(algorithm__name='reinforce'), 'no ratio enters its gradient'),
    (dict(), None),  # its ratio is to the sampler
    (dict(algorithm__name='dppo_tv'), None),
    (dict(algorithm__anchor='old', algorithm__mismatch='icepop'), None),
    (dict(algorithm__name='grpo_tis'), None),
    (dict(algorithm__name='reinforce', algorithm__anchor='old',
          algorithm__mismatch='truncated_importance'), None),
])
def test_a_rule_that_takes_stale_rollouts_for_its_own_is_told(changes, lacks):
  for stale in (0, 1):
    found = config_checks.warnings(
        config.resolve(changed(rollout__max_staleness=stale, **changes)))
    if lacks and stale:
      (message,) = found
      assert lacks in message and 'max_staleness = 1' in message
    else:
      assert found == ()


def test_an_unknown_key_is_refused_with_the_nearest_known_one():
  raw = default.get_config().to_dict()
  raw['rollout']['group_sise'] = 4
  with pytest.raises(ValueError, match='Did you mean config.rollout.group_si'):
    config.resolve(raw)


def test_a_missing_key_is_refused():
  raw = default.get_config().to_dict()
  del raw['mesh']['fsdp']
  with pytest.raises(ValueError, match='Missing config.mesh.fsdp'):
    config.resolve(raw)


@pytest.mark.parametrize('value', [8.0, '8', True])
def test_a_wrong_type_is_refused(value):
  raw = default.get_config().to_dict()
  raw['rollout']['group_size'] = value
  with pytest.raises(ValueError, match='group_size must be of type int, got'):
    config.resolve(raw)


def test_an_int_passes_for_a_float():
  raw = default.get_config().to_dict()
  raw['rollout']['temperature'] = 1
  assert config.resolve(raw).rollout.temperature == 1.0


def test_sizes_are_those_of_a_step():
  sizes = config.resolve(tiny.get_config()).sizes()
  assert sizes['completions a step'] == 32  # 8 prompts x 4
  assert sizes['completions an update'] == 16
  assert sizes['optimizer updates in all'] == 8  # 4 steps x 2
  assert sizes['tokens a step, at most'] == 8 * 8 + 32 * 12


def test_overrides_reach_the_rule():
  experiment = config.resolve(changed(
      algorithm__name='atr_grpo', algorithm__divergence='pearson',
      algorithm__delta=0.5 * 0.3**2, algorithm__gate='dual_clip'))
  low, high = experiment.loss_spec.bounds.interval()
  assert (low, high) == pytest.approx((0.7, 1.3))  # 1 -/+ sqrt(2 delta)
  assert type(experiment.loss_spec.gate).__name__ == 'DualClip'


def test_dr_grpo_divides_by_the_token_budget_however_batches_are_trimmed():
  spec = config.resolve(changed(algorithm__name='dr_grpo')).loss_spec
  assert spec.reduction.constant == 64.0


def test_default_and_dataclasses_name_the_same_keys():
  def keys(kind):
    return {
        f.name: keys(f.type) if dataclasses.is_dataclass(f.type) else None
        for f in dataclasses.fields(kind)}
  def names(node):
    return {k: names(v) if isinstance(v, dict) and k != 'options' else None
            for k, v in node.items()}
  assert names(default.get_config().to_dict()) == keys(config.Experiment)


def test_experiments_hold_only_their_differences():
  for path in pathlib.Path(configs.__path__[0]).glob('*.py'):
    if path.name not in ('default.py', '__init__.py'):
      text = path.read_text(encoding='utf-8')
      assert 'default.get_config()' in text and '.get(' not in text, path
