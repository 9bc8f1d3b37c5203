"""sample_rng: the same numbers for the same sample."""

from __future__ import annotations

import threading

from weft.data import sample_rng, seeds, worker_info


def draw(*place):
    seeds.enter(*place)
    try:
        return sample_rng().random(), sample_rng().random()
    finally:
        seeds.leave()


def test_a_sample_has_its_own_stream():
    first = draw(1, 0, 5)
    assert first[0] != first[1]  # calls continue one stream
    assert draw(1, 0, 5) == first
    places = [(1, 0, 5), (2, 0, 5), (1, 1, 5), (1, 0, 6), (1, 0, 5, seeds.BATCH), (-1, 0, 5)]
    assert len({draw(*place) for place in places}) == len(places)


def test_outside_a_loader_the_numbers_are_fresh():
    assert sample_rng().random() != sample_rng().random()
    assert worker_info() is None
    mine = sample_rng()
    others = []
    thread = threading.Thread(target=lambda: others.append(sample_rng()))
    thread.start()
    thread.join(5)
    assert others[0] is not mine
