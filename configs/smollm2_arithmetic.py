r"""SmolLM2-135M-Instruct learns two-operand arithmetic asked in words.

The model speaks fluently and adds badly. ATR-GRPO on its own samples, scored
by whether the last number is right. `make smollm2` fetches and converts it.

python -m experiments.train --config=configs/smollm2_arithmetic.py \
  --workdir=runs/smollm2
"""
from configs import default


def get_config():
  """Returns 80 steps of 64 completions; docs/results/smollm2.md has a run."""
  config = default.get_config()
  config.num_steps = 80
  config.model.path = '.cache/smollm2'
  config.task.name = 'arithmetic_words'
  config.task.options = {
      'operand': (1, 20), 'factor': (1, 10),
      'instruction': 'Answer with the number only.'}
  config.algorithm.name = 'atr_grpo'
  config.rollout.num_prompts = 8
  config.rollout.prompt_length = 64
  config.rollout.completion_length = 32
  config.rollout.steps_per_round = 8
  config.learner.num_mini_batches = 2
  config.learner.logits_chunk = 1024
  config.optimizer.learning_rate = 2e-5
  config.optimizer.warmup_steps = 4
  config.evaluation.every = 20
  config.evaluation.num_problems = 256
  config.checkpoint.every = 10
  config.checkpoint.keep_last = 1
  config.checkpoint.keep_best = False
  return config
