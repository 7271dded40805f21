"""The demo's input."""

from towline.cli import flights


class TestTheFlightsOfNewYork:
    def test_are_read_in_the_order_of_the_file(self):
        first, second = flights.read_flights(2)
        assert (first["carrier"], first["flight"], first["origin"], first["dest"]) == ("UA", 1545, "EWR", "IAH")
        assert second["tailnum"] == "N24211"

    def test_have_numbers_as_numbers_and_empty_cells_as_none(self):
        (first,) = flights.read_flights(1)
        assert first["dep_delay"] == 2
        assert first["time_hour"] == "2013-01-01T10:00:00Z"
        cancelled = next(flight for flight in flights.read_flights() if flight["dep_time"] is None)
        assert cancelled["arr_delay"] is None

    def test_are_as_many_as_the_demo_says_and_leave_from_three_airports(self):
        origins = [flight["origin"] for flight in flights.read_flights()]
        assert len(origins) == flights.COUNT
        assert tuple(sorted(set(origins))) == flights.ORIGINS

    def test_are_found_by_tail_number_and_flight_number(self):
        (first,) = flights.read_flights(1)
        assert flights.keys_of(first) == ("N14228", "UA1545")
        assert flights.keys_of(first | {"tailnum": None}) == ("UA1545",)
