r"""SmolLM2-135M-Instruct on GSM8K, MATH-500 and AIME 2024; no training.

50 problems of each (AIME has 30), one sample a problem. `make smollm2`
fetches the model; `make smollm2-evaluation` does all of this.

RLCLIP_DATA=../shared/data python -m experiments.evaluate \
  --config=configs/smollm2_evaluation.py --model=.cache/smollm2 \
  --tasks=gsm8k,math500,aime24 --output=runs/smollm2_evaluation
python -m experiments.answers runs/smollm2_evaluation \
  --markdown=docs/results/evaluation.md \
  --title='SmolLM2-135M-Instruct on GSM8K, MATH-500 and AIME 2024'
"""
from configs import default


def get_config():
  """Returns lengths that hold the first 50 problems of each set."""
  config = default.get_config()
  config.model.path = '.cache/smollm2'
  config.task.name = 'gsm8k'
  config.rollout.prompt_length = 512
  config.rollout.completion_length = 512
  config.rollout.num_slots = 40
  config.evaluation.num_problems = 50
  config.evaluation.num_samples = 1
  config.evaluation.temperature = 0.6
  config.evaluation.top_p = 0.95
  return config
