package quire.cli;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/**
 * Lets a purchase that Ctrl-C ends say that it is in doubt. The machine exits when an interrupt
 * comes; the hook delays that until the purchase has been told of.
 */
final class Interrupts {
  private static final long TELL_SECONDS_MAX = 2;
  private static final CountDownLatch TOLD = new CountDownLatch(1);

  private static Thread buyer;
  private static boolean isHooked;
  private static volatile boolean isOver;

  private Interrupts() {}

  /** From here on an interrupt ends this thread's call instead of the program. */
  static synchronized void hold() {
    if (!isHooked) {
      isHooked = true;
      Runtime.getRuntime().addShutdownHook(new Thread(Interrupts::interrupt));
    }
    buyer = Thread.currentThread();
  }

  /** The outcome has been told; if an interrupt came meanwhile, this is the end. */
  static void release(int exit) {
    synchronized (Interrupts.class) {
      buyer = null;
    }
    if (isOver) {
      end(exit);
    }
  }

  /** Ends the program at once. */
  static void end(int exit) {
    TOLD.countDown();
    System.out.flush();
    System.err.flush();
    Runtime.getRuntime().halt(exit);
  }

  private static void interrupt() {
    synchronized (Interrupts.class) {
      if (buyer == null) {
        return;
      }
      isOver = true;
      buyer.interrupt();
    }
    try {
      TOLD.await(TELL_SECONDS_MAX, TimeUnit.SECONDS);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
