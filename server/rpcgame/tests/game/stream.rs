//! Frames of many messages: validated completely before any message is handled, and ordered with concurrent calls.

use std::time::Duration;

use quire_rpc::client::Channel;
use quire_rpc::{Code, Encoded, Request, Status, Streaming};
use rpcgame::GameLimits;
use rpcgame::grpc::messages::{Played, write_play};
use rpcgame::grpc::wire::rpc_game_client::RpcGameClient;
use rpcgame::grpc::wire::rpc_game_stream_client::PLAY;
use tokio::sync::mpsc;

use crate::support::{done, expected, send, serve, wait_for};

/// An open stream.
struct Stream {
    frames: mpsc::UnboundedSender<Encoded>,
    answers: Streaming<Encoded>,
}

impl Stream {
    async fn open(channel: &Channel) -> Self {
        let (frames, mut waiting) = mpsc::unbounded_channel();
        let frames_out = futures_util::stream::poll_fn(move |cx| waiting.poll_recv(cx));
        let answers = channel.bidi_streaming(&PLAY, Request::new(frames_out)).await.unwrap().into_inner();
        Self { frames, answers }
    }

    fn send(&self, first_serial: u64, names: &[&str], counts: &[u64]) {
        let mut frame = Vec::new();
        write_play(first_serial, names.iter().map(|name| name.as_bytes()), counts, false, &mut frame);
        self.frames.send(frame.into()).unwrap();
    }

    async fn values(&mut self) -> Result<Vec<u64>, Status> {
        let answer = self.answers.message().await?.expect("an answer");
        Ok(Played::read(&answer.into_bytes()).unwrap().values)
    }
}

async fn channel(settings: GameLimits) -> (Channel, rpcgame::Games) {
    let (address, games) = serve(settings).await;
    (Channel::builder(&format!("http://{address}")).unwrap().connect().await.unwrap(), games)
}

#[tokio::test]
async fn a_stream_and_calls_of_a_connection_play_one_game() {
    let (channel, games) = channel(GameLimits::default()).await;
    let client = RpcGameClient::new(channel.clone());
    let mut stream = Stream::open(&channel).await;
    // The frame is early: it waits for serial 1, and serial 4 waits for the frame.
    stream.send(2, &["two", "three"], &[2, 3]);
    wait_for("the frame", || games.waiting_bytes() > 0).await;
    let held = games.waiting_bytes();
    let four = tokio::spawn({
        let client = client.clone();
        async move { send(&client, 4, "four", 4).await }
    });
    wait_for("the fourth", || games.waiting_bytes() > held).await;
    send(&client, 1, "one", 1).await.unwrap();
    assert_eq!(stream.values().await.unwrap().len(), 2);
    four.await.unwrap().unwrap();
    assert_eq!(done(&client).await, expected([("one", 1), ("two", 2), ("three", 3), ("four", 4)]));
    assert_eq!(games.waiting_bytes(), 0);
}

#[tokio::test]
async fn a_refused_frame_ends_the_stream_and_not_the_game() {
    let (channel, _) =
        channel(GameLimits { name_bytes_max: 10, wait: Duration::from_millis(20), ..GameLimits::default() }).await;
    let client = RpcGameClient::new(channel.clone());
    send(&client, 1, "one", 1).await.unwrap();
    let cases = [
        (2, &["a", "b"][..], &[1][..], Code::InvalidArgument, "2 names and 1 counts"),
        (2, &["a", "longer than ten"], &[1, 2], Code::InvalidArgument, "name_bytes_max"),
        (1, &["a"], &[1], Code::InvalidArgument, "serial 1 came before"),
        (0, &["a"], &[1], Code::InvalidArgument, "serial is 0"),
        (4, &["a"], &[1], Code::FailedPrecondition, "serial 2 is missing"),
    ];
    for (first_serial, names, counts, code, words) in cases {
        let mut stream = Stream::open(&channel).await;
        stream.send(first_serial, names, counts);
        let status = stream.values().await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(words), "{status:?}");
    }
    let mut stream = Stream::open(&channel).await;
    stream.frames.send(b"\x1a\x07abcdefg".to_vec().into()).unwrap();
    assert_eq!(stream.values().await.unwrap_err().code(), Code::InvalidArgument);
    send(&client, 2, "two", 2).await.unwrap();
    assert_eq!(done(&client).await, expected([("one", 1), ("two", 2)]));
}
