"""Keeps the receipt of a purchase, with which anyone can verify it without the server."""

import sys
from pathlib import Path

from quire_client import Bought, Client

address = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:10086"

with Client(address) as client:
    purchase = client.buy(53573)
    if not isinstance(purchase, Bought):
        sys.exit(f"not bought: {purchase.message}")
    receipt = client.receipt(purchase.number, purchase.key)
    if receipt is None:
        sys.exit("there is no receipt")
    Path("my.tlog-proof").write_text(receipt.text)
    # It proves little if it comes from the same server as the receipt; the shop publishes it elsewhere as well.
    Path("log-key").write_text(receipt.log_key + "\n")
    print(f"kept: purchase {purchase.number}")
    print("verify it: quire receipt my.tlog-proof --key log-key")
