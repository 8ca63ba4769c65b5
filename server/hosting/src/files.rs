//! Reads operators' files as a whole, such as credentials and certificates.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// Reads a file of at most `bytes_max` bytes. Blocks.
pub fn read(path: &Path, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > bytes_max {
        return Err(io::Error::other(format!("it has more than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Fails for a file that cannot be read a second time: a pipe, which may block its reader for ever, or a device.
pub fn check_regular(path: &Path) -> io::Result<()> {
    if fs::metadata(path)?.is_file() { Ok(()) } else { Err(io::Error::other("it is not a regular file")) }
}

#[cfg(test)]
mod tests {
    use super::{Path, check_regular, read};

    #[test]
    fn a_file_without_an_end_is_not_read_to_it() {
        let zeros = Path::new("/dev/zero");
        assert_eq!(read(zeros, 4096).unwrap_err().to_string(), "it has more than 4096 bytes");
        assert_eq!(check_regular(zeros).unwrap_err().to_string(), "it is not a regular file");
    }
}
