package quire.client;

import java.util.Optional;

/** The answer to a question for a receipt: the receipt, if there is one, and the server's words. */
public record ReceiptLookup(Optional<Receipt> receipt, String message) {}
