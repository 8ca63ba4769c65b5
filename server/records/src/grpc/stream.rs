//! `RecordStreamService`: the answer in as many messages as needed, all from one state of the file.

use std::pin::Pin;

use quire_rpc::{Encoded, Request, Response, Status, Stream, unfold};

use super::{
    shape::RECORDS,
    wire::{StreamRequest, record_stream_service_server::RecordStreamService},
};
use crate::{
    answer::Answer,
    query::Query,
    records::{Records, Shape},
    selection::Selection,
};

/// Serves records.
#[derive(Clone, Debug)]
pub struct StreamGrpc {
    records: Records,
}

impl StreamGrpc {
    /// Serves `records`.
    pub fn new(records: Records) -> Self {
        Self { records }
    }
}

impl RecordStreamService for StreamGrpc {
    type StreamRecordsStream = Pages;

    async fn stream_records(&self, request: Request<StreamRequest>) -> Result<Response<Pages>, Status> {
        let records = self.records.until(request.deadline().map(Into::into));
        let request = request.into_inner();
        let page_rows = usize::try_from(request.page_rows).unwrap_or(usize::MAX);
        let query = Query {
            column: request.key,
            value: request.value,
            share: request.result_size,
            offset: request.offset,
            limit: (request.limit > 0).then_some(request.limit),
        };
        let selection = records.select(query).await?;
        let progress = Progress {
            records,
            selection,
            next_row: 0,
            is_begun: false,
            page_rows: if page_rows == 0 { usize::MAX } else { page_rows },
        };
        Ok(Response::new(Box::pin(unfold(progress, Progress::step))))
    }
}

type Pages = Pin<Box<dyn Stream<Item = Result<Encoded, Status>> + Send>>;

/// Progress of a stream.
struct Progress {
    records: Records,
    selection: Selection,
    next_row: usize,
    is_begun: bool,
    page_rows: usize,
}

impl Progress {
    async fn step(mut self) -> Option<(Result<Encoded, Status>, Self)> {
        let rows = self.selection.rows().len();
        // Without rows there is still one message, with the counts.
        if self.next_row == rows && self.is_begun {
            return None;
        }
        self.is_begun = true;
        let start = self.next_row;
        self.next_row = self.page_end(&RECORDS);
        let page = self.records.part(&self.selection, start..self.next_row, &RECORDS).await;
        let message = |page: Answer| Encoded::from(page.chunks().collect::<Vec<_>>());
        Some((page.map(message).map_err(Into::into), self))
    }

    /// End of the next message's rows.
    fn page_end(&self, shape: &Shape) -> usize {
        let (table, rows) = (self.selection.table(), self.selection.rows());
        let most = self.next_row.saturating_add(self.page_rows).min(rows.len());
        let mut room = self.records.settings().limits.page_bytes;
        for (place, row) in rows[self.next_row..most].iter().enumerate() {
            let bytes = table.row_bytes(*row, shape.format);
            if bytes > room && place > 0 {
                return self.next_row + place;
            }
            room = room.saturating_sub(bytes);
        }
        most
    }
}
