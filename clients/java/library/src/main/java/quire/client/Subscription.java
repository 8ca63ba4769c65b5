package quire.client;

import java.util.Iterator;

/**
 * Items that a server sends as they come to be. Reading waits for the next item; it ends when the
 * server ends the stream or {@link #close}, from any thread, does, and throws {@link
 * QuireException} if the stream broke. One thread reads.
 */
public abstract class Subscription<T> implements Iterator<T>, AutoCloseable {
  Subscription() {}

  @Override
  public abstract void close();
}
