//! Prefixed integers (RFC 7541 section 5.1).

use crate::error::ConnectionError;

/// Largest length or index we accept; a longer one is an attack or an error.
const VALUE_MAX: usize = 1 << 24;

/// Reads an integer whose first byte shares its high bits with other flags.
#[inline]
pub(crate) fn read(input: &mut &[u8], prefix_bits: u32) -> Result<usize, ConnectionError> {
    let mask = (1usize << prefix_bits) - 1;
    let Some((&first, rest)) = input.split_first() else {
        return Err(ConnectionError::compression("header block ends inside an integer"));
    };
    *input = rest;
    let value = usize::from(first) & mask;
    if value < mask { Ok(value) } else { read_rest(input, value) }
}

fn read_rest(input: &mut &[u8], mut value: usize) -> Result<usize, ConnectionError> {
    for shift in [0, 7, 14, 21] {
        let Some((&byte, rest)) = input.split_first() else {
            return Err(ConnectionError::compression("header block ends inside an integer"));
        };
        *input = rest;
        value += usize::from(byte & 0x7f) << shift;
        if value > VALUE_MAX {
            break;
        }
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ConnectionError::compression("integer in a header block is too large"))
}

/// Writes an integer; `pattern` holds the representation's high bits.
pub(crate) fn write(out: &mut Vec<u8>, pattern: u8, prefix_bits: u32, mut value: usize) {
    let mask = (1usize << prefix_bits) - 1;
    if value < mask {
        out.push(pattern | low_byte(value));
        return;
    }
    out.push(pattern | low_byte(mask));
    value -= mask;
    while value >= 0x80 {
        out.push(low_byte(value & 0x7f) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: usize) -> u8 {
    value.to_le_bytes()[0]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7541 appendix C.1.
    #[test]
    fn examples_of_the_rfc() {
        for (value, prefix, bytes) in [(10, 5, &[0b01010][..]), (1337, 5, &[31, 154, 10]), (42, 8, &[42])] {
            let mut out = Vec::new();
            write(&mut out, 0, prefix, value);
            assert_eq!(out, bytes);
            assert_eq!(read(&mut &bytes[..], prefix).unwrap(), value);
        }
    }

    #[test]
    fn endless_and_cut_integers_are_errors() {
        assert!(read(&mut &[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01][..], 7).is_err());
        assert!(read(&mut &[0xff, 0xff, 0xff, 0xff, 0x7f][..], 7).is_err());
        assert!(read(&mut &[0xff, 0x80][..], 7).is_err());
        assert!(read(&mut &[][..], 7).is_err());
    }
}
