package quire.connect;

import com.google.gson.FieldNamingPolicy;
import com.google.gson.Gson;
import com.google.gson.GsonBuilder;
import com.google.gson.JsonObject;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import quire.client.BuyOutcome;
import quire.client.Reservation;

/** JSON as the programs print it. */
public final class Json {
  private static final Gson GSON =
      new GsonBuilder()
          .serializeNulls()
          .disableHtmlEscaping()
          .setFieldNamingPolicy(FieldNamingPolicy.LOWER_CASE_WITH_UNDERSCORES)
          .create();

  private Json() {}

  /** An object of names and values in turn. */
  public static JsonObject object(Object... namesAndValues) {
    Map<String, Object> fields = new LinkedHashMap<>();
    for (int i = 0; i < namesAndValues.length; i += 2) {
      fields.put((String) namesAndValues[i], namesAndValues[i + 1]);
    }
    return GSON.toJsonTree(fields).getAsJsonObject();
  }

  /** An object of the fields of a record. */
  public static JsonObject object(Record value) {
    return GSON.toJsonTree(value).getAsJsonObject();
  }

  /** A purchase, its outcome in small letters. */
  public static JsonObject object(BuyOutcome made) {
    return object(
        "outcome", name(made),
        "success", made instanceof BuyOutcome.Bought,
        "message", made.message(),
        "key", made.key(),
        "purchase_number", made.number(),
        "replayed", made.replayed(),
        "stock_left", made.stockLeft().isPresent() ? made.stockLeft().getAsInt() : null);
  }

  /** A reservation, its outcome in small letters. */
  public static JsonObject object(Reservation made) {
    return object(
        "outcome", made.outcome().name().toLowerCase(Locale.ROOT),
        "success", made.success(),
        "message", made.message(),
        "key", made.key(),
        "id", made.id(),
        "quantity", made.quantity(),
        "number", made.number(),
        "replayed", made.replayed(),
        "stock_left", made.stockLeft().isPresent() ? made.stockLeft().getAsInt() : null,
        "until_ms", made.untilMs());
  }

  /** The name of what is an outcome by its class: of NoSuchBook it is no_such_book. */
  public static String name(Object outcome) {
    String name = outcome.getClass().getSimpleName();
    return name.replaceAll("(?<=.)([A-Z])", "_$1").toLowerCase(Locale.ROOT);
  }

  /** One line. */
  public static String line(JsonObject object) {
    return GSON.toJson(object);
  }
}
