//! Answers every line with the same bytes, in order.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

const READ_BYTES: usize = 64 * 1024;
/// Answers are gathered up to this size before a write; a larger answer is written by itself.
const WRITE_BYTES: usize = 64 * 1024;
/// Maximum reads with delayed answers; beyond, the next read waits.
const HELD_BACK_MAX: usize = 4096;

/// Serves one connection to its end; errors are the client's to report.
pub(super) async fn serve(stream: TcpStream, answer: Bytes, delay: Duration) {
    let (reader, writer) = stream.into_split();
    let _ = if delay.is_zero() {
        answer_at_once(reader, writer, answer).await
    } else {
        let (hold_back, held_back) = mpsc::channel(HELD_BACK_MAX);
        let (read, written) =
            tokio::join!(read_lines(reader, delay, hold_back), answer_later(writer, answer, held_back));
        read.and(written)
    };
}

async fn answer_at_once(mut reader: OwnedReadHalf, mut writer: OwnedWriteHalf, answer: Bytes) -> std::io::Result<()> {
    let answers = Answers::new(&answer);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = reader.read(&mut buffer).await?;
        if count == 0 {
            return Ok(());
        }
        answers.write(lines(&buffer[..count]), &mut writer).await?;
    }
}

type DelayedLines = (Instant, usize);

async fn read_lines(
    mut reader: OwnedReadHalf,
    delay: Duration,
    hold_back: mpsc::Sender<DelayedLines>,
) -> std::io::Result<()> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = reader.read(&mut buffer).await?;
        let lines = lines(&buffer[..count]);
        if count == 0 || hold_back.send((Instant::now() + delay, lines)).await.is_err() {
            return Ok(());
        }
    }
}

async fn answer_later(
    mut writer: OwnedWriteHalf,
    answer: Bytes,
    mut held_back: mpsc::Receiver<DelayedLines>,
) -> std::io::Result<()> {
    let answers = Answers::new(&answer);
    while let Some((due_at, count)) = held_back.recv().await {
        tokio::time::sleep_until(due_at).await;
        answers.write(count, &mut writer).await?;
    }
    Ok(())
}

#[expect(clippy::naive_bytecount, reason = "compilers vectorize it well enough; a crate for it is one more")]
fn lines(bytes: &[u8]) -> usize {
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

/// As many answers as fit one write, built once.
struct Answers {
    repeated: Vec<u8>,
    answer_bytes: usize,
}

impl Answers {
    fn new(answer: &[u8]) -> Self {
        let count = (WRITE_BYTES / answer.len().max(1)).max(1);
        Self { answer_bytes: answer.len(), repeated: answer.repeat(count) }
    }

    async fn write(&self, mut count: usize, writer: &mut OwnedWriteHalf) -> std::io::Result<()> {
        while count > 0 {
            let now = count.min(self.repeated.len() / self.answer_bytes);
            writer.write_all(&self.repeated[..now * self.answer_bytes]).await?;
            count -= now;
        }
        Ok(())
    }
}
