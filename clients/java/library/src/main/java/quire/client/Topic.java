package quire.client;

/** A topic and the number of its books. */
public record Topic(String name, long books) {}
