package quire.cli;

import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.util.Collection;
import java.util.TreeMap;
import quire.client.Book;

/** JSON as the programs print it: names in alphabetical order. */
public final class Json {
  private Json() {}

  /** An object of names and values in turn. */
  public static JsonObject object(Object... namesAndValues) {
    TreeMap<String, Object> sorted = new TreeMap<>();
    for (int i = 0; i < namesAndValues.length; i += 2) {
      sorted.put((String) namesAndValues[i], namesAndValues[i + 1]);
    }
    JsonObject object = new JsonObject();
    sorted.forEach((name, value) -> object.add(name, element(value)));
    return object;
  }

  /** A book, with the fields that the contract names. */
  public static JsonObject object(Book book) {
    return object(
        "id", book.id(),
        "price_cents", book.priceCents(),
        "stock", book.stock(),
        "title", book.title(),
        "topic", book.topic());
  }

  private static JsonElement element(Object value) {
    if (value == null) {
      return JsonNull.INSTANCE;
    } else if (value instanceof JsonElement element) {
      return element;
    } else if (value instanceof Collection<?> items) {
      JsonArray array = new JsonArray();
      items.forEach(item -> array.add(element(item)));
      return array;
    } else if (value instanceof Number number) {
      return new JsonPrimitive(number);
    } else if (value instanceof Boolean bool) {
      return new JsonPrimitive(bool);
    }
    return new JsonPrimitive((String) value);
  }
}
