from __future__ import annotations

from barnabas.net.courtesy import MANY_RECORDS, PATIENCE, Courtesy


class Core:
    def __init__(self) -> None:
        self.yields = 0

    def give_up(self) -> None:
        self.yields += 1


def arrivals(courtesy: Courtesy, count: int, records: int = MANY_RECORDS) -> None:
    for _ in range(count):
        courtesy.is_bulk(records)


def test_it_keeps_its_core_until_nothing_but_bulk_has_come_for_a_while() -> None:
    core = Core()
    courtesy = Courtesy(core.give_up)
    arrivals(courtesy, PATIENCE - 1)
    courtesy.give_way()
    assert core.yields == 0
    arrivals(courtesy, 1)
    courtesy.give_way()
    assert core.yields == 1


def test_one_small_request_ends_it() -> None:
    core = Core()
    courtesy = Courtesy(core.give_up)
    arrivals(courtesy, PATIENCE)
    assert not courtesy.is_bulk(MANY_RECORDS - 1)
    arrivals(courtesy, PATIENCE - 1)
    courtesy.give_way()
    assert core.yields == 0


def test_the_systems_own_way_of_yielding_is_at_hand() -> None:
    courtesy = Courtesy()
    arrivals(courtesy, PATIENCE)
    courtesy.give_way()
