package quire.cli;

/**
 * Lets a purchase that Ctrl-C ends say that it is in doubt. The machine exits when an interrupt
 * comes; the hook delays that until the purchase has been told of.
 */
final class Interrupts {
  private static final long TELL_MS_MAX = 10_000;

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
    System.out.flush();
    System.err.flush();
    Runtime.getRuntime().halt(exit);
  }

  private static void interrupt() {
    Thread told;
    synchronized (Interrupts.class) {
      if (buyer == null) {
        return;
      }
      isOver = true;
      told = buyer;
    }
    told.interrupt();
    try {
      // That thread halts the machine; until then the hook must not end, or the exit code is lost.
      told.join(TELL_MS_MAX);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }
}
