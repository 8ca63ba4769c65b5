package quire.client;

import static quire.client.Attempts.Kind.READ;
import static quire.client.Attempts.Kind.WRITE;

import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.concurrent.CompletableFuture;
import quire.client.Calls.Call;
import quire.client.wire.AdminGrpc;
import quire.client.wire.Bookstore.ListReply;
import quire.client.wire.Bookstore.ListRequest;
import quire.client.wire.Bookstore.LogReply;
import quire.client.wire.Bookstore.LogRequest;
import quire.client.wire.Bookstore.RestockReply;
import quire.client.wire.Bookstore.RestockRequest;
import quire.client.wire.Bookstore.TailLogRequest;
import quire.client.wire.Bookstore.UpdatePriceReply;
import quire.client.wire.Bookstore.UpdatePriceRequest;

/**
 * The operator's calls; {@link QuireClient#operator} makes one, which ends with its client. They
 * throw {@link QuireException}; its {@link OutcomeUnknownException} only those that change
 * something.
 */
public final class QuireOperator {
  private final Calls calls;

  QuireOperator(Calls calls) {
    this.calls = calls;
  }

  /** Every book, in the order of ids. */
  public Paged<Book> list() {
    return new Paged<>(() -> listPage(""));
  }

  /**
   * Raises every book that has fewer copies to that many; returns how many books were raised.
   *
   * @param amount 20 if absent
   */
  public long restock(OptionalInt amount) {
    return calls.run(restockCall(amount));
  }

  /** As {@link #restock}. */
  public CompletableFuture<Long> restockAsync(OptionalInt amount) {
    return calls.start(restockCall(amount));
  }

  /** Changes a price; empty if there is no such book. */
  public Optional<PriceChange> updatePrice(int id, long cents) {
    return calls.run(updatePriceCall(id, cents));
  }

  /** As {@link #updatePrice}. */
  public CompletableFuture<Optional<PriceChange>> updatePriceAsync(int id, long cents) {
    return calls.start(updatePriceCall(id, cents));
  }

  /** The transaction log, newest first. */
  public Paged<LogEntry> log() {
    return new Paged<>(() -> logPage(""));
  }

  /**
   * The transaction log as it grows, oldest first; it ends when the server stops.
   *
   * @param after the number that the first entry follows; absent for what is written from now on
   */
  public Subscription<LogEntry> tailLog(OptionalLong after) {
    var request = TailLogRequest.newBuilder();
    after.ifPresent(request::setAfterNumber);
    return calls.subscribe(
        AdminGrpc.getTailLogMethod(), request.build(), LogEntry::of, after.isPresent());
  }

  private Page<Book> listPage(String token) {
    ListRequest request = ListRequest.newBuilder().setPageToken(token).build();
    ListReply reply = calls.run(new Call<>(READ, AdminGrpc.getListMethod(), request, it -> it));
    return Page.of(reply.getBooksList(), Book::of, "", reply.getNextPageToken(), this::listPage);
  }

  private Page<LogEntry> logPage(String token) {
    LogRequest request = LogRequest.newBuilder().setPageToken(token).build();
    LogReply reply = calls.run(new Call<>(READ, AdminGrpc.getLogMethod(), request, it -> it));
    return Page.of(
        reply.getEntriesList(), LogEntry::of, "", reply.getNextPageToken(), this::logPage);
  }

  private static Call<RestockRequest, RestockReply, Long> restockCall(OptionalInt amount) {
    RestockRequest.Builder request = RestockRequest.newBuilder();
    amount.ifPresent(request::setAmount);
    return new Call<>(
        WRITE, AdminGrpc.getRestockMethod(), request.build(), RestockReply::getBooksRaised);
  }

  private static Call<UpdatePriceRequest, UpdatePriceReply, Optional<PriceChange>> updatePriceCall(
      int id, long cents) {
    Purchase.checkId(id);
    UpdatePriceRequest request =
        UpdatePriceRequest.newBuilder().setId(id).setPriceCents(cents).build();
    return new Call<>(
        WRITE,
        AdminGrpc.getUpdatePriceMethod(),
        request,
        reply ->
            reply.getSuccess()
                ? Optional.of(
                    new PriceChange(reply.getPriceCentsBefore(), reply.getPriceCentsAfter()))
                : Optional.empty());
  }
}
