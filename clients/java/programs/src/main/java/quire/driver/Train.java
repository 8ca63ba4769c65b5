package quire.driver;

import io.grpc.Grpc;
import io.grpc.InsecureServerCredentials;
import io.grpc.Server;
import io.grpc.stub.StreamObserver;
import java.io.IOException;
import quire.cli.Main;
import quire.client.wire.BookStoreGrpc;
import quire.client.wire.Bookstore.Book;
import quire.client.wire.Bookstore.BookInfoReply;
import quire.client.wire.Bookstore.BuyBookReply;
import quire.client.wire.Bookstore.ItemNumberRequest;

/** Runs the command line against a store of its own, so that the build can archive its classes. */
final class Train {
  private Train() {}

  public static void main(String[] words) throws IOException {
    Server server =
        Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create())
            .addService(new Store())
            .build()
            .start();
    Main.main(new String[] {"127.0.0.1:" + server.getPort()});
  }

  private static final class Store extends BookStoreGrpc.BookStoreImplBase {
    @Override
    public void lookup(ItemNumberRequest request, StreamObserver<BookInfoReply> reply) {
      Book book = Book.newBuilder().setId(request.getId()).setPriceCents(1).build();
      reply.onNext(BookInfoReply.newBuilder().setSuccess(true).setBook(book).build());
      reply.onCompleted();
    }

    @Override
    public void buy(ItemNumberRequest request, StreamObserver<BuyBookReply> reply) {
      reply.onNext(BuyBookReply.newBuilder().setSuccess(true).build());
      reply.onCompleted();
    }
  }
}
