//! Sequences of items: from pages, each requested on demand, or from a stream.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    vec,
};

use futures_core::Stream;
use futures_util::StreamExt as _;
use quire_rpc::{Streaming, unfold};

use crate::{attempts::broken, error::Error};

/// Items from the server, read with [`Items::try_next`] or as a [`Stream`]. An error ends the sequence.
pub struct Items<T> {
    stream: Pin<Box<dyn Stream<Item = Result<T, Error>> + Send>>,
}

/// Rest of a page, and the start of the next one.
struct Paging<T, P> {
    items: vec::IntoIter<T>,
    next: Option<P>,
}

impl<T: Send + 'static> Items<T> {
    /// Items from pages; `fetch` returns a page, and the start of the next if there is one.
    pub(crate) fn of_pages<P, F>(first: P, fetch: impl Fn(P) -> F + Send + Sync + Clone + Unpin + 'static) -> Self
    where
        P: Send + 'static,
        F: Future<Output = Result<(Vec<T>, Option<P>), Error>> + Send + 'static,
    {
        let start = Paging { items: Vec::new().into_iter(), next: Some(first) };
        let step = move |mut paging: Paging<T, P>| {
            let fetch = fetch.clone();
            async move {
                loop {
                    if let Some(item) = paging.items.next() {
                        return Some((Ok(item), paging));
                    }
                    match fetch(paging.next.take()?).await {
                        Ok((items, next)) => paging = Paging { items: items.into_iter(), next },
                        Err(error) => return Some((Err(error), paging)),
                    }
                }
            }
        };
        Self { stream: Box::pin(unfold(start, step)) }
    }

    /// Messages of a stream from a server at `address`, each converted by `read`.
    pub(crate) fn of_stream<M>(address: &Arc<str>, messages: Streaming<M>, read: fn(M) -> T) -> Self
    where
        M: quire_rpc::Decode + Send + 'static,
    {
        let step = move |state: Option<(Streaming<M>, Arc<str>)>| async move {
            let (mut messages, address) = state?;
            match messages.message().await {
                Ok(message) => Some((Ok(read(message?)), Some((messages, address)))),
                Err(status) => Some((Err(broken(&address, &status)), None)),
            }
        };
        Self { stream: Box::pin(unfold(Some((messages, Arc::clone(address))), step)) }
    }
}

impl<T> Items<T> {
    /// Next item; none at the end.
    pub async fn try_next(&mut self) -> Result<Option<T>, Error> {
        self.stream.next().await.transpose()
    }

    /// All remaining items, or the first error.
    pub async fn all(mut self) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        while let Some(item) = self.try_next().await? {
            all.push(item);
        }
        Ok(all)
    }
}

impl<T> Stream for Items<T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl<T> fmt::Debug for Items<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Items")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pages_are_asked_for_one_after_the_other_and_an_empty_one_is_no_end() {
        let pages = Items::of_pages(0, |page| async move {
            let items = if page == 1 { Vec::new() } else { vec![page * 10, page * 10 + 1] };
            Ok((items, (page < 2).then_some(page + 1)))
        });
        assert_eq!(pages.all().await.expect("items"), [0, 1, 20, 21]);
    }

    #[tokio::test]
    async fn after_an_error_there_is_no_more() {
        let mut pages = Items::<u8>::of_pages((), |()| async { Err(Error::argument("wrong")) });
        assert!(pages.try_next().await.is_err());
        assert_eq!(pages.try_next().await.expect("the end"), None);
    }
}
