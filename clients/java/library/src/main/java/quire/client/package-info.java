/**
 * The client of Quire: {@link QuireClient} has the calls, {@link QuireOperator} the operator's.
 *
 * <p>What the store decides is a value, such as {@link BuyOutcome}; what goes wrong is a {@link
 * QuireException}. Keys and values of the key-value store are {@link
 * com.google.protobuf.ByteString}s, which no one can change.
 */
package quire.client;
