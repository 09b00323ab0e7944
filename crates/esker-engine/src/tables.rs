//! Tables whose rows are read by need: token embeddings, n-gram embeddings.
//!
//! In memory, a row is decoded where it lies. On disk, missing rows are read many at a time into small buffers, and the
//! last few thousand stay in a direct-mapped cache, whose size is a line of the memory plan.

use crate::plan::PLAN_ALIGN;
use esker_disk::{
    Arena, Buffer, Completion, Disk, FileId, Priority, Read, ReadError, ReadId, Segment, WaitError,
    aligned_span,
};
use esker_models::{Fetch, Purpose, TableId, TableLayout};
use esker_ops::WeightBytes;

/// Rows that stay in memory, of each table on disk.
const CACHED_ROWS: usize = 2048;
/// Rows of all tables that can be read at the same time.
pub(crate) const READS: usize = 32;
/// Ids of row reads have this bit; those of experts do not.
const ROW_READ: u64 = 1 << 63;
/// And this one at the second attempt: a failed read is repeated once, as those of experts are.
const SECOND_ATTEMPT: u64 = 1 << 62;

/// Rows could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RowsError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Wait(#[from] WaitError),
}

/// All tables of a model.
pub(crate) struct Tables {
    tables: Vec<Table>,
    /// Buffers of reads that are not under way.
    buffers: Vec<Buffer>,
    done: Vec<Completion>,
}

struct Table {
    layout: TableLayout,
    row_bytes: usize,
    place: Place,
}

enum Place {
    Memory(WeightBytes),
    Disk {
        file: FileId,
        /// Row that each cache line holds; `u64::MAX` for none.
        held: Vec<u64>,
        /// `[lines, row_bytes]`
        lines: Vec<u8>,
    },
}

/// Memory that tables on disk take.
pub(crate) fn disk_bytes(layouts: &[TableLayout], align: usize) -> usize {
    let cached: usize = layouts.iter().map(|l| cached_rows(l) * (row_bytes(l) + size_of::<u64>())).sum();
    cached + Arena::bytes_for(buffer_sizes(layouts, align))
}

fn row_bytes(layout: &TableLayout) -> usize {
    layout.tensor.ty.row_bytes(layout.n_cols).expect("row lengths were checked when the directory was read")
}

fn cached_rows(layout: &TableLayout) -> usize {
    layout.n_rows.min(CACHED_ROWS)
}

/// Each holds the aligned superset of any row.
fn buffer_sizes(layouts: &[TableLayout], align: usize) -> impl Iterator<Item = usize> {
    let row = layouts.iter().map(row_bytes).max();
    let size = row.map(|bytes| (bytes + 2 * align).next_multiple_of(align));
    size.into_iter().flat_map(|size| std::iter::repeat_n(size, READS))
}

impl Tables {
    /// Tables in memory.
    pub(crate) fn in_memory(layouts: &[TableLayout], fetch: &mut Fetch<'_>) -> Result<Tables, String> {
        let mut tables = Vec::with_capacity(layouts.len());
        for layout in layouts {
            let place = Place::Memory(fetch(&layout.tensor, Purpose::Kept)?);
            tables.push(Table { layout: layout.clone(), row_bytes: row_bytes(layout), place });
        }
        Ok(Tables { tables, buffers: Vec::new(), done: Vec::new() })
    }

    /// Tables on disk, but for those whose tensor is `kept` in memory anyway (a tied output head). `on_disk` are the
    /// others; `arena` has room for [`arena_bytes`](Self::arena_bytes) of them.
    pub(crate) fn on_disk(
        layouts: &[TableLayout],
        on_disk: &[TableLayout],
        files: &[FileId],
        kept: impl Fn(&str) -> Option<WeightBytes>,
        arena: &mut Arena,
    ) -> Tables {
        let tables = layouts.iter().map(|layout| {
            let row_bytes = row_bytes(layout);
            let place = match kept(&layout.tensor.name) {
                Some(bytes) => Place::Memory(bytes),
                None => {
                    let lines = cached_rows(layout);
                    let file = files[layout.tensor.file];
                    Place::Disk { file, held: vec![u64::MAX; lines], lines: vec![0; lines * row_bytes] }
                }
            };
            Table { layout: layout.clone(), row_bytes, place }
        });
        let buffers = arena.carve(buffer_sizes(on_disk, PLAN_ALIGN));
        Tables { tables: tables.collect(), done: Vec::with_capacity(READS), buffers }
    }

    /// Bytes of buffers that [`on_disk`](Self::on_disk) takes from its arena.
    pub(crate) fn arena_bytes(layouts: &[TableLayout], align: usize) -> usize {
        Arena::bytes_for(buffer_sizes(layouts, align))
    }

    /// Decodes rows of a table in memory.
    pub(crate) fn in_memory_rows(&self, table: TableId, rows: &[u64], out: &mut [f32]) {
        let table = &self.tables[table.0];
        let Place::Memory(bytes) = &table.place else { unreachable!("asked for tables in memory only") };
        for (&row, out) in rows.iter().zip(out.chunks_exact_mut(table.layout.n_cols)) {
            let at = usize::try_from(row).expect("rows are below n_rows") * table.row_bytes;
            decode(table, &bytes.bytes()[at..at + table.row_bytes], out);
        }
    }

    /// Decodes rows, reading those that are not cached. Returns the bytes that were read.
    ///
    /// `other` is handed completions of reads that are not ours.
    pub(crate) fn rows(
        &mut self,
        table: TableId,
        rows: &[u64],
        out: &mut [f32],
        disk: &mut dyn Disk,
        mut other: impl FnMut(Completion),
    ) -> Result<u64, RowsError> {
        let Table { layout, row_bytes, place } = &mut self.tables[table.0];
        let Place::Disk { file, held, lines } = place else {
            self.in_memory_rows(table, rows, out);
            return Ok(0);
        };
        let (n_cols, row_bytes, align) = (layout.n_cols, *row_bytes, disk.alignment(*file));
        let place_of = |row: u64| layout.tensor.offset + row * row_bytes as u64;
        let read = |id, row, buffer| {
            let segment = Segment { file: *file, offset: place_of(row), len: row_bytes, into: 0 };
            Read { id: ReadId(id), priority: Priority::Demand, buffer, segments: segment.into() }
        };
        let (mut next, mut under_way, mut bytes_read) = (0, 0, 0);
        let mut failed = None;
        while next < rows.len() || under_way > 0 {
            // Issue what there are buffers for; rows in the cache are decoded at once.
            while next < rows.len() && failed.is_none() {
                let row = rows[next];
                let line = (row % held.len() as u64) as usize;
                if held[line] == row {
                    let bytes = &lines[line * row_bytes..][..row_bytes];
                    esker_quant::decode(layout.tensor.ty, bytes, &mut out[next * n_cols..][..n_cols])
                        .expect("row sizes were checked at load");
                    next += 1;
                    continue;
                }
                let Some(buffer) = self.buffers.pop() else { break };
                match disk.submit(read(ROW_READ | next as u64, row, buffer)) {
                    Ok(()) => {
                        under_way += 1;
                        next += 1;
                    }
                    Err(full) => {
                        self.buffers.push(full.0.buffer);
                        break;
                    }
                }
            }
            if failed.is_some() && under_way == 0 {
                break;
            }
            if under_way == 0 && next == rows.len() {
                break;
            }
            disk.wait(&mut self.done)?;
            for completion in self.done.drain(..) {
                if completion.id.0 & ROW_READ == 0 {
                    other(completion);
                    continue;
                }
                under_way -= 1;
                let at = (completion.id.0 & !(ROW_READ | SECOND_ATTEMPT)) as usize;
                let row = rows[at];
                if completion.result.is_err() && completion.id.0 & SECOND_ATTEMPT == 0 {
                    match disk.submit(read(completion.id.0 | SECOND_ATTEMPT, row, completion.buffer)) {
                        Ok(()) => {
                            under_way += 1;
                            continue;
                        }
                        // The disk is full of other reads: then the first failure stands.
                        Err(full) => self.buffers.push(full.0.buffer),
                    }
                    if let Err(error) = completion.result {
                        failed = Some(error);
                    }
                    continue;
                }
                match completion.result {
                    Ok(stats) => {
                        bytes_read += stats.bytes;
                        let skip = aligned_span(place_of(row), row_bytes, align).skip;
                        let bytes = &completion.buffer[skip..][..row_bytes];
                        esker_quant::decode(layout.tensor.ty, bytes, &mut out[at * n_cols..][..n_cols])
                            .expect("row sizes were checked at load");
                        let line = (row % held.len() as u64) as usize;
                        held[line] = row;
                        lines[line * row_bytes..][..row_bytes].copy_from_slice(bytes);
                    }
                    Err(error) => failed = Some(error),
                }
                self.buffers.push(completion.buffer);
            }
        }
        match failed {
            Some(error) => Err(error.into()),
            None => Ok(bytes_read),
        }
    }

    /// Takes back the buffer of a row read that was given up on; gives back any other completion.
    pub(crate) fn reclaim(&mut self, completion: Completion) -> Option<Completion> {
        if completion.id.0 & ROW_READ == 0 {
            return Some(completion);
        }
        self.buffers.push(completion.buffer);
        None
    }
}

fn decode(table: &Table, bytes: &[u8], out: &mut [f32]) {
    esker_quant::decode(table.layout.tensor.ty, bytes, out).expect("row sizes were checked at load");
}
