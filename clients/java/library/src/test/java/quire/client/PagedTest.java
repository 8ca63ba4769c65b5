package quire.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;

class PagedTest {
  @Test
  void pagesAreAskedForAsTheyAreReadAndMayBeEmpty() {
    Page<Integer> last = new Page<>(List.of(3), "", null);
    Page<Integer> empty = new Page<>(List.of(), "", () -> last);
    Paged<Integer> paged = new Paged<>(() -> new Page<>(List.of(1, 2), "", () -> empty));
    assertEquals(List.of(1, 2, 3), paged.stream().toList());
    assertEquals(List.of(1, 2, 3), paged.stream().toList(), "a second time");
  }

  @Test
  void wrongArgumentsAreNamed() {
    assertThrows(IllegalArgumentException.class, () -> Purchase.of(0));
    assertThrows(IllegalArgumentException.class, () -> Purchase.of(1).quantity(0));
    assertThrows(IllegalArgumentException.class, () -> Purchase.of(1).key("ü".repeat(33)));
    assertThrows(IllegalArgumentException.class, () -> Address.parse("::1:80"));
    assertEquals(new Address("[::1]", 80, false), Address.parse("[::1]:80"));
  }
}
