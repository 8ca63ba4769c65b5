"""The model of a bookstore that histories of a cluster are held against accepts what one store can do, and nothing else."""

import pytest

FIRST = {"book": 1, "op": "stock", "left": 3}


def buy(call, end, quantity, result, left):
    return {"client": call, "book": 1, "op": "buy", "quantity": quantity, "result": result, "left": left, "call": call, "return": end}


def restock(call, end, before, left):
    return {"client": -1, "book": 1, "op": "restock", "before": before, "left": left, "result": "ok", "call": call, "return": end}


@pytest.mark.parametrize(("name", "history", "can_be"), [
    ("one after another", [buy(1, 2, 2, "bought", 1), buy(3, 4, 2, "too few", 1), buy(5, 6, 1, "bought", 0),
                           buy(7, 8, 1, "sold out", 0)], True),
    ("at once, in either order", [buy(1, 9, 2, "too few", 1), buy(2, 8, 2, "bought", 1)], True),
    ("oversold", [buy(1, 9, 2, "bought", 1), buy(2, 8, 2, "bought", 1)], False),
    ("told after it was over", [buy(1, 2, 2, "too few", 1), buy(3, 4, 2, "bought", 1)], False),
    ("a purchase is gone again", [buy(1, 2, 1, "bought", 2), buy(3, 4, 1, "bought", 2)], False),
    ("refused, though there were enough", [buy(1, 2, 2, "sold out", 0)], False),
    ("restocked between", [buy(1, 2, 3, "bought", 0), restock(3, 60, 0, 5), buy(4, 5, 1, "bought", 4)], True),
    ("restocked from what was not", [buy(1, 2, 3, "bought", 0), restock(3, 60, 1, 5), buy(4, 5, 1, "bought", 4)], False),
], ids=lambda value: value if isinstance(value, str) else "")
def test_what_one_store_can_do(judged_history, name, history, can_be):
    assert judged_history("store", [FIRST, *history]) == can_be
