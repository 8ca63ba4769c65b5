"""Buys all copies of a book, and handles each outcome of a purchase."""

import sys

from quire_client import Bought, Client, NoSuchBook, NotBought, SoldOut, TooFew, Unknown

BOOK = 12498

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"


def buy(client: Client, copies: int) -> None:
    """Buy copies and say what came of it."""
    match client.buy(BOOK, copies):
        case Bought(stock_left=left):
            print(f"bought: {left} left")
        case TooFew(stock_left=left):
            print(f"too few: {left} left")
        case SoldOut():
            print("sold out")
        case NoSuchBook():
            print("no such book")
        case NotBought(message=message):
            print(f"not bought: {message}")
        case Unknown(key=key):
            print(f"not known; to buy with the key {key} asks again and buys nothing twice")


with Client(address) as client:
    book = client.lookup(BOOK)
    if book is None:
        sys.exit(f"there is no book {BOOK}")
    buy(client, 1)
    # As many as one purchase may have.
    buy(client, 1000)
    buy(client, book.stock - 1)
    buy(client, 1)
