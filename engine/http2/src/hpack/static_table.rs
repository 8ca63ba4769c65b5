//! The static table (RFC 7541 appendix A).

/// Names and values; index 1 is the first.
#[rustfmt::skip]
pub(crate) static STATIC: [(&str, &str); 61] = [
    (":authority", ""), (":method", "GET"), (":method", "POST"), (":path", "/"), (":path", "/index.html"),
    (":scheme", "http"), (":scheme", "https"), (":status", "200"), (":status", "204"), (":status", "206"),
    (":status", "304"), (":status", "400"), (":status", "404"), (":status", "500"), ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"), ("accept-language", ""), ("accept-ranges", ""), ("accept", ""),
    ("access-control-allow-origin", ""), ("age", ""), ("allow", ""), ("authorization", ""),
    ("cache-control", ""), ("content-disposition", ""), ("content-encoding", ""), ("content-language", ""),
    ("content-length", ""), ("content-location", ""), ("content-range", ""), ("content-type", ""),
    ("cookie", ""), ("date", ""), ("etag", ""), ("expect", ""), ("expires", ""), ("from", ""), ("host", ""),
    ("if-match", ""), ("if-modified-since", ""), ("if-none-match", ""), ("if-range", ""),
    ("if-unmodified-since", ""), ("last-modified", ""), ("link", ""), ("location", ""), ("max-forwards", ""),
    ("proxy-authenticate", ""), ("proxy-authorization", ""), ("range", ""), ("referer", ""), ("refresh", ""),
    ("retry-after", ""), ("server", ""), ("set-cookie", ""), ("strict-transport-security", ""),
    ("transfer-encoding", ""), ("user-agent", ""), ("vary", ""), ("via", ""), ("www-authenticate", ""),
];

/// Position of a field in the static table, and whether the value matches too.
pub(crate) fn find(name: &[u8], value: &[u8]) -> Option<(usize, bool)> {
    let mut name_only = None;
    for (position, (known_name, known_value)) in STATIC.iter().enumerate() {
        if known_name.as_bytes() == name {
            if known_value.as_bytes() == value {
                return Some((position + 1, true));
            }
            name_only = name_only.or(Some((position + 1, false)));
        }
    }
    name_only
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn first_name_and_exact_value_are_found() {
        assert_eq!(find(b":method", b"POST"), Some((3, true)));
        assert_eq!(find(b":status", b"418"), Some((8, false)));
        assert_eq!(find(b"www-authenticate", b"x"), Some((61, false)));
        assert_eq!(find(b"grpc-status", b"0"), None);
    }
}
