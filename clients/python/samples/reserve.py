"""Reserves a copy and buys it; then reserves another, and comes too late."""

import sys
import time

from quire_client import Client, Reservation, ReservationOutcome, Unknown

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"


def known(found: Reservation | Unknown) -> Reservation:
    """Give the reservation, unless it must be asked for again."""
    if isinstance(found, Unknown):
        sys.exit(f"not known; to call again with the key {found.key} does nothing twice")
    return found


with Client(address) as client:
    held = known(client.reserve(53477, seconds=60))
    print(f"held: {held.stock_left} left")
    bought = known(client.confirm(held.key))
    print(f"bought: purchase {bought.number}")

    brief = known(client.reserve(53477, seconds=1))
    time.sleep(1.1)
    late = known(client.confirm(brief.key))
    if late.outcome is ReservationOutcome.EXPIRED:
        print(f"too late: {late.stock_left} left")
