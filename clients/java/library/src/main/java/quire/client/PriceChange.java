package quire.client;

/** A book's price before and after, in cents. */
public record PriceChange(long beforeCents, long afterCents) {}
