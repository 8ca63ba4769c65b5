package quire.client;

/**
 * A proof that the log has a purchase, which anyone can check without the server.
 *
 * @param text in the form of c2sp.org/tlog-proof
 * @param logKey the log's public key now, in the form of c2sp.org/signed-note; it proves something
 *     only if the reader has it from elsewhere as well
 */
public record Receipt(String text, String logKey) {}
