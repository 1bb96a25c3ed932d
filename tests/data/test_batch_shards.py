"""Shards of batches: what several processes take of each is the whole batch."""

import pytest
import torch

from poslab.data.batch_shards import BatchShards, shard_indices
from poslab.data.task import _TrainingBatches
from poslab.tasks.state_tracking import FlipFlop


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_every_validation_batch_is_dealt(world_size: int) -> None:
    for batches in (1, 2, 4, 7, 15):
        hands = [shard_indices(batches, rank, world_size) for rank in range(world_size)]
        assert {batch for hand in hands for batch in hand} == set(range(batches))
        assert len({len(hand) for hand in hands}) == 1  # or they would wait for each other


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_parts_of_a_batch_are_the_batch(rows: int) -> None:
    windows = [(torch.full((5,), i), torch.full((5,), i + 1)) for i in range(9)]
    indices = [7, 2, 5, 0][:rows]
    parts = [BatchShards(windows, rank, 3)[indices] for rank in range(3)]
    counted = [part for part in parts if part.share]
    assert torch.cat([part.tokens for part in counted])[:, 0].tolist() == indices
    assert sum(part.share for part in parts) == pytest.approx(1)
    assert all(len(part.tokens) and part.batch_tokens == rows * 5 for part in parts)


def test_parts_of_a_task_weigh_by_what_is_asked() -> None:
    task = FlipFlop(min_length=8, max_length=8, test_lengths=[8], batch_size=6)
    whole = task.training(1, 4)
    parts = [BatchShards(_TrainingBatches(task, 1), rank, 2, of_batches=True)[4] for rank in range(2)]
    assert torch.equal(torch.cat([part.tokens for part in parts]), whole.tokens)
    asked = [int((part.targets != -100).sum()) for part in parts]
    assert [part.share for part in parts] == pytest.approx([n / sum(asked) for n in asked])
    assert asked[0] != asked[1]
