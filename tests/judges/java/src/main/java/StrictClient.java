import com.google.protobuf.ByteString;
import io.grpc.Kv.CreateRequest;
import io.grpc.Kv.CreateResponse;
import io.grpc.Kv.DeleteRequest;
import io.grpc.Kv.DeleteResponse;
import io.grpc.Kv.RetrieveRequest;
import io.grpc.Kv.RetrieveResponse;
import io.grpc.Kv.UpdateRequest;
import io.grpc.Kv.UpdateResponse;
import io.grpc.KeyValueServiceGrpc;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import java.util.Random;

/**
 * A strict client of the key-value service: {@code StrictClient HOST:PORT ROUNDS}. It knows the contract's tables alone,
 * has the default limits of its library, and ends with an exception at the first reply that is not what it must be.
 */
final class StrictClient {
    private static final int MEAN_KEY_BYTES = 64;
    private static final int MEAN_VALUE_BYTES = 65_536;
    private static final int MESSAGE_BYTES = 4 << 20;

    private final KeyValueServiceGrpc.KeyValueServiceBlockingStub service;
    private final Random random = new Random(7);

    private StrictClient(ManagedChannel channel) {
        service = KeyValueServiceGrpc.newBlockingStub(channel);
    }

    public static void main(String[] arguments) {
        ManagedChannel channel = ManagedChannelBuilder.forTarget(arguments[0]).usePlaintext().build();
        try {
            StrictClient client = new StrictClient(channel);
            int rounds = Integer.parseInt(arguments[1]);
            for (int round = 0; round < rounds; round++) {
                client.life(client.bytes(1 + client.exponential(MEAN_KEY_BYTES)), client.exponential(MEAN_VALUE_BYTES));
            }
            for (int keyBytes : new int[] {0, 1, 1000}) {
                ByteString key = client.bytes(keyBytes);
                CreateRequest.Builder request = CreateRequest.newBuilder().setKey(key);
                int around = request.setValue(client.bytes(MESSAGE_BYTES)).build().getSerializedSize() - MESSAGE_BYTES;
                client.life(key, MESSAGE_BYTES - around);
            }
            System.out.println("every reply was as it must be");
        } finally {
            channel.shutdownNow();
        }
    }

    /** A key from its creation to its deletion. */
    private void life(ByteString key, int valueBytes) {
        ByteString first = bytes(valueBytes);
        ByteString second = bytes(valueBytes);
        refused(Status.Code.NOT_FOUND, () -> retrieve(key, first));
        refused(Status.Code.NOT_FOUND, () -> update(key, second));
        create(key, first);
        refused(Status.Code.ALREADY_EXISTS, () -> create(key, second));
        retrieve(key, first);
        update(key, second);
        retrieve(key, second);
        delete(key);
        delete(key);
        refused(Status.Code.NOT_FOUND, () -> retrieve(key, second));
    }

    private void create(ByteString key, ByteString value) {
        CreateResponse reply = service.create(CreateRequest.newBuilder().setKey(key).setValue(value).build());
        if (!reply.equals(CreateResponse.getDefaultInstance())) {
            throw new IllegalStateException("Create was answered with " + reply);
        }
    }

    private void retrieve(ByteString key, ByteString value) {
        RetrieveResponse reply = service.retrieve(RetrieveRequest.newBuilder().setKey(key).build());
        if (!reply.equals(RetrieveResponse.newBuilder().setValue(value).build())) {
            throw new IllegalStateException("Retrieve was answered with " + reply.getSerializedSize() + " bytes");
        }
    }

    private void update(ByteString key, ByteString value) {
        UpdateResponse reply = service.update(UpdateRequest.newBuilder().setKey(key).setValue(value).build());
        if (!reply.equals(UpdateResponse.getDefaultInstance())) {
            throw new IllegalStateException("Update was answered with " + reply);
        }
    }

    private void delete(ByteString key) {
        DeleteResponse reply = service.delete(DeleteRequest.newBuilder().setKey(key).build());
        if (!reply.equals(DeleteResponse.getDefaultInstance())) {
            throw new IllegalStateException("Delete was answered with " + reply);
        }
    }

    private static void refused(Status.Code code, Runnable call) {
        try {
            call.run();
        } catch (StatusRuntimeException refusal) {
            if (refusal.getStatus().getCode() == code) {
                return;
            }
            throw refusal;
        }
        throw new IllegalStateException("a call was done that must be refused with " + code);
    }

    private int exponential(int mean) {
        return (int) (-Math.log(1 - random.nextDouble()) * mean);
    }

    private ByteString bytes(int count) {
        byte[] bytes = new byte[count];
        random.nextBytes(bytes);
        return ByteString.copyFrom(bytes);
    }
}
