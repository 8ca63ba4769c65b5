"""Buys one copy of a book."""

import sys

from quire_client import Bought, Client, NotBought, Unknown

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"

with Client(address) as client:
    match client.buy(53573):
        case Bought(number=number, stock_left=left):
            print(f"bought: purchase {number}, {left} left")
        case NotBought(message=message):
            print(f"not bought: {message}")
        case Unknown(key=key):
            print(f"not known; to buy with the key {key} asks again and buys nothing twice")
