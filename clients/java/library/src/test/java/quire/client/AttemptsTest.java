package quire.client;

import static java.util.concurrent.TimeUnit.MILLISECONDS;
import static java.util.concurrent.TimeUnit.SECONDS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.Metadata;
import io.grpc.Status;
import java.io.IOException;
import java.net.ConnectException;
import java.security.cert.CertificateException;
import javax.net.ssl.SSLException;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;
import quire.client.Attempts.Kind;
import quire.client.Attempts.Reach;

class AttemptsTest {
  private static final String ADDRESS = "books:10086";
  private static final int RETRIES = 3;
  private static final long TIMEOUT = SECONDS.toNanos(30);

  private final Attempts purchase = new Attempts(ADDRESS, Kind.KEYED, RETRIES, TIMEOUT, 0);

  @Test
  void pausesGrowToTwoSecondsAndVaryByAFifth() {
    long now = 0;
    for (long base : new long[] {100, 200, 400, 800, 1600, 2000, 2000}) {
      long pause = purchase.pauseAfter(Status.UNAVAILABLE, null, Reach.SENT, now);
      assertTrue(pause >= MILLISECONDS.toNanos(base) * 0.8, base + " ms: " + pause);
      assertTrue(pause <= MILLISECONDS.toNanos(base) * 1.2, base + " ms: " + pause);
    }
  }

  @Test
  void anAttemptHasItsShareAndWaitsForAConnectionForFourFifthsOfIt() {
    assertEquals(MILLISECONDS.toNanos(7500), purchase.attemptEnd(0));
    assertEquals(MILLISECONDS.toNanos(6000), purchase.connectMax(0));
    assertEquals(TIMEOUT, purchase.attemptEnd(TIMEOUT - 1));
  }

  @Test
  void whatWasNotSentIsSentAgainAsOftenAsIsSaidAndIsUnreachable() {
    for (int i = 0; i < RETRIES; i++) {
      purchase.pauseAfter(Status.UNAVAILABLE, null, Reach.NOT_SENT, 0);
    }
    var fault =
        assertThrows(
            UnreachableException.class,
            () -> purchase.pauseAfter(Status.UNAVAILABLE, null, Reach.NOT_SENT, 0));
    assertEquals(false, fault.sent());
  }

  @Test
  void theUnreachableHasItsAddressAndTheFirstCause() {
    Exception first = new ConnectException("Connection refused");
    Exception cause = new IOException("io", first);
    Status status = Status.UNAVAILABLE.withDescription("io exception").withCause(cause);
    var fault = purchase.fault(status, Reach.NOT_SENT);
    assertEquals("books:10086 cannot be reached: Connection refused", fault.getMessage());
    assertEquals(cause, fault.getCause());
    Attempts read = new Attempts(ADDRESS, Kind.READ, 0, TIMEOUT, 0);
    assertEquals(
        "books:10086 did not answer: io exception",
        read.fault(status.withCause(null), Reach.SENT).getMessage());
  }

  @Test
  void anUntrustedCertificateIsNamed() {
    Exception untrusted = new CertificateException("PKIX", new IOException("no path"));
    Status status = Status.UNAVAILABLE.withCause(new SSLException("handshake", untrusted));
    assertEquals(
        "books:10086 cannot be reached: the server's certificate is not trusted: no path",
        purchase.fault(status, Reach.NOT_SENT).getMessage());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "First received frame was not SETTINGS. Hex dump for first 5 bytes: 1503030002",
        "not an SSL/TLS record: 000012040000"
      })
  void aSideWithoutTlsIsNamed(String cause) {
    Status status = Status.UNAVAILABLE.withCause(new IOException(cause));
    String message = purchase.fault(status, Reach.NOT_SENT).getMessage();
    assertTrue(
        message.matches("books:10086 cannot be reached: the server .*speaks? TLS.*"), message);
  }

  @Test
  void aFaultSaysWhatTheServerDid() {
    Status status = Status.UNAVAILABLE.withDescription("later");
    Attempts read = new Attempts(ADDRESS, Kind.READ, 0, TIMEOUT, 0);
    assertEquals(
        "books:10086 answered UNAVAILABLE: later", read.fault(status, Reach.ANSWERED).getMessage());
    assertEquals(
        "books:10086 did not answer: later", purchase.fault(status, Reach.SENT).getMessage());
  }

  @ParameterizedTest
  @EnumSource(
      value = Status.Code.class,
      names = {"INVALID_ARGUMENT", "UNAUTHENTICATED", "RESOURCE_EXHAUSTED", "INTERNAL"})
  void aDoubtStaysWhateverALaterAttemptIsTold(Status.Code later) {
    purchase.pauseAfter(Status.DEADLINE_EXCEEDED, null, Reach.SENT, 0);
    purchase.pauseAfter(later.toStatus(), null, Reach.ANSWERED, 0);
    purchase.pauseAfter(Status.UNAVAILABLE, null, Reach.NOT_SENT, 0);
    var fault =
        assertThrows(
            OutcomeUnknownException.class,
            () -> purchase.pauseAfter(later.toStatus(), null, Reach.ANSWERED, TIMEOUT - 1));
    assertEquals(Status.Code.DEADLINE_EXCEEDED, fault.code());
  }

  @Test
  void aBrokenStreamIsADoubtWhateverItsCode() {
    var fault = purchase.fault(Status.INTERNAL, Reach.SENT);
    assertEquals(OutcomeUnknownException.class, fault.getClass());
  }

  @Test
  void aRefusalWithoutADoubtIsOne() {
    assertThrows(
        RefusedException.class,
        () -> purchase.pauseAfter(Status.INTERNAL, null, Reach.ANSWERED, 0));
  }

  @Test
  void withoutRetriesADoubtIsNotSentAgain() {
    Attempts once = new Attempts(ADDRESS, Kind.KEYED, 0, TIMEOUT, 0);
    assertThrows(
        OutcomeUnknownException.class,
        () -> once.pauseAfter(Status.UNAVAILABLE, null, Reach.SENT, 0));
  }

  @Test
  void aWriteThatWasSentIsNotSentAgain() {
    Attempts write = new Attempts(ADDRESS, Kind.WRITE, RETRIES, TIMEOUT, 0);
    write.pauseAfter(Status.RESOURCE_EXHAUSTED, null, Reach.ANSWERED, 0);
    assertThrows(
        OutcomeUnknownException.class,
        () -> write.pauseAfter(Status.UNKNOWN, null, Reach.ANSWERED, 0));
  }

  @Test
  void theServerSaysWhenToComeBack() {
    assertEquals(
        MILLISECONDS.toNanos(700),
        purchase.pauseAfter(Status.RESOURCE_EXHAUSTED, pushback("700"), Reach.ANSWERED, 0));
    assertEquals(0, purchase.pauseAfter(Status.UNAVAILABLE, pushback("0"), Reach.ANSWERED, 0));
  }

  @ParameterizedTest
  @ValueSource(strings = {"-1", "soon", "", "30000"})
  void aPauseThatIsForbiddenOrDoesNotFitIsNotBegun(String wish) {
    assertThrows(
        RefusedException.class,
        () -> purchase.pauseAfter(Status.RESOURCE_EXHAUSTED, pushback(wish), Reach.ANSWERED, 0));
  }

  @Test
  void anInterruptLeavesADoubtOnlyIfSomethingWasSent() {
    assertEquals(UnreachableException.class, purchase.interrupted(Reach.NOT_SENT).getClass());
    purchase.pauseAfter(Status.UNAVAILABLE, null, Reach.SENT, 0);
    var fault = purchase.interrupted(Reach.NOT_SENT);
    assertEquals(OutcomeUnknownException.class, fault.getClass());
    assertEquals(Status.Code.CANCELLED, fault.code());
  }

  @Test
  void anInterruptOfAPauseAfterARefusalHasDoneNothing() {
    purchase.pauseAfter(Status.RESOURCE_EXHAUSTED, null, Reach.ANSWERED, 0);
    var fault = purchase.interrupted(Reach.ANSWERED);
    assertEquals(UnreachableException.class, fault.getClass());
    assertEquals(Status.Code.CANCELLED, fault.code());
  }

  private static Metadata pushback(String wish) {
    Metadata trailers = new Metadata();
    trailers.put(Attempts.PUSHBACK, wish);
    return trailers;
  }
}
