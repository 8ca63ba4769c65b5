package quire.client;

import java.util.Optional;

/** The answer to a lookup: the book, if there is one, and the server's words. */
public record Lookup(Optional<Book> book, String message) {}
