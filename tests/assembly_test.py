"""What assembly derives from an Experiment."""
import jax.numpy as jnp
import numpy as np
import pytest

from configs import default
from rlclip import assembly, config


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
