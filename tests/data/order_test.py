"""What stands at a place depends on the seed alone."""
import numpy as np
import pytest

from rlclip.data import order


def test_an_epoch_visits_everything_once():
  for epoch in range(3):
    assert sorted(order.order(10, seed=1, epoch=epoch)) == list(range(10))


def test_seed_and_epoch_change_the_order():
  orders = {
      tuple(order.order(50, seed=s, epoch=e)) for s in (0, 1) for e in (0, 1)}
  assert len(orders) == 4


def test_the_order_is_the_same_for_good():
  # Numbers of the first run: another machine or numpy must give them too.
  np.testing.assert_array_equal(
      order.order(8, seed=3, epoch=2), [1, 7, 0, 2, 4, 5, 6, 3])


def test_steps_walk_through_epochs_without_a_gap():
  size, batch = 10, 4
  line = np.concatenate([order.order(size, seed=5, epoch=e) for e in range(2)])
  steps = [order.indices_at(i * batch, batch, size, seed=5) for i in range(5)]
  np.testing.assert_array_equal(np.concatenate(steps), line)


def test_a_batch_larger_than_the_dataset_repeats_it():
  got = order.indices_at(0, 7, 3, seed=0)
  assert sorted(got[:3]) == sorted(got[3:6]) == [0, 1, 2]


@pytest.mark.parametrize('first, count, size', [(-1, 1, 1), (0, 0, 1),
                                                (0, 1, 0)])
def test_impossible_places_are_refused(first, count, size):
  with pytest.raises(ValueError, match='needs first >= 0'):
    order.indices_at(first, count, size, seed=0)
