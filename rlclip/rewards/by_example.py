"""The reward of a mixture: each example names its own."""
from rlclip import rewards


@rewards.register('by_example')
def by_example(
    prompt: str, completion: str, tokens, *, reward_name: str, **fields
) -> float | None:
  """Scores by the reward that the example's field `reward_name` names."""
  return rewards.get(reward_name)(prompt, completion, tokens, **fields)
