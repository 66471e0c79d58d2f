"""What assembly derives from an Experiment."""
import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from configs import default, tiny
from rlclip import assembly, config, metrics, samplers
from rlclip.data import order, tasks, tokenizer
from rlclip.sampler import dialects


@pytest.mark.parametrize('schedule', ['constant', 'cosine', 'linear'])
@pytest.mark.parametrize('warmup', [0, 3])
def test_the_learning_rate_told_is_the_one_applied(schedule, warmup):
  c = default.get_config()
  c.num_steps = 4
  c.learner.num_mini_batches = 2
  c.optimizer.learning_rate = 0.1
  c.optimizer.schedule, c.optimizer.warmup_steps = schedule, warmup
  c.optimizer.b1 = c.optimizer.b2 = 0.0
  c.optimizer.epsilon = 1e-30
  experiment = config.resolve(c)
  optimizer = assembly.optimizer(experiment)
  # Without memory Adam's step on a gradient of 1 is the rate itself.
  params, grads = {'w': jnp.zeros(())}, {'w': jnp.ones(())}
  state = optimizer.init(params)
  for update in range(8):
    updates, state = optimizer.update(grads, state, params)
    np.testing.assert_allclose(
        -updates['w'], assembly.learning_rate(experiment, update),
        rtol=1e-6, atol=1e-9)


def test_every_kind_of_server_can_be_chosen():
  kinds = {'local', *dialects.REGISTRY.names()}
  assert set(samplers._KINDS) == kinds
  for kind in kinds - {'local'}:
    c = default.get_config()
    c.sampler.kind, c.sampler.urls = kind, ('http://a:8000',)
    c.sampler.weights_folder = '/shared/weights'
    assert config.resolve(c).sampler.kind == kind


@pytest.mark.parametrize('max_refills, is_met', [(0, False), (1, True)])
def test_a_long_prompt_is_found_before_training_meets_it(max_refills, is_met):
  c = tiny.get_config()  # 4 steps of 8 prompts, refilled or not
  c.rollout.max_refills = max_refills
  experiment = config.resolve(c)
  task = tasks.get('arithmetic', **experiment.task.options)
  place = order.indices_at(
      40, 1, len(task.examples('train')), seed=experiment.seed)[0]
  long = task.examples('train')[int(place)]['id']
  task = dataclasses.replace(task, messages=lambda example: (
      '1' * 9 if example['id'] == long else '1'))
  parts = assembly.Parts(
      experiment, task, tokenizer.character_tokenizer(task.alphabet),
      *[None] * 5)
  if is_met:
    with pytest.raises(ValueError, match=f'example {long} has 9 tokens'):
      assembly.check_lengths(assembly.check_data(parts))
  else:
    assembly.check_lengths(assembly.check_data(parts))


def test_an_evaluation_in_parts_gives_the_same_answers():
  c = tiny.get_config()
  c.rollout.num_slots, c.evaluation.num_samples = 3, 2
  c.evaluation.num_problems = 16
  parts = assembly.build(config.resolve(c))
  parts.sampler.load_weights(assembly.initial_params(parts), 0)
  shown = []
  with assembly.pool(parts.experiment, parts.task.reward) as pool:
    whole, cut = (
        assembly.evaluate_task(parts, parts.task, pool, metrics.Phases(), show)
        for show in (None, lambda *counts: shown.append(counts)))
  assert whole == cut and len({a.completion for a in whole}) > 16
  # Four slotfuls are 12 completions, of 6 problems.
  tokens = np.cumsum([a.num_tokens for a in whole])
  assert shown == [(n, tokens[2 * n - 1]) for n in (6, 12, 16)]
