r"""The whole line in seconds, for tests; it learns next to nothing.

python -m experiments.train --config=configs/tiny.py --workdir=/tmp/tiny
"""
from configs import default


def get_config():
  """Returns a run of 4 steps with a model of 30,000 parameters."""
  config = default.get_config()
  config.num_steps = 4
  config.model.architecture.hidden_size = 32
  config.model.architecture.num_layers = 2
  config.model.architecture.num_heads = 2
  config.model.architecture.num_kv_heads = 1
  config.model.architecture.head_dim = 16
  config.model.architecture.intermediate_size = 64
  config.task.options = {'num_operands': 2, 'num_digits': 1}
  config.warm_start.num_steps = 200
  config.warm_start.batch_size = 32
  config.algorithm.name = 'atr_grpo'
  config.rollout.num_prompts = 8
  config.rollout.group_size = 4
  config.rollout.prompt_length = 8
  config.rollout.completion_length = 12
  config.learner.num_mini_batches = 2
  config.optimizer.learning_rate = 1e-3
  config.evaluation.every = 2
  config.evaluation.num_problems = 32
  config.checkpoint.every = 1
  return config
