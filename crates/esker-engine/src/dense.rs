//! The store of a model without experts inside a budget: dense weights in memory, table rows from disk.

use crate::cached::with_causes;
use crate::tables::Tables;
use esker_disk::Disk;
use esker_models::{ExpertStore, RouteBias, StoreError, StoreLayout, TableId};
use esker_ops::ExpertWeights;
use std::path::PathBuf;

/// Tables on disk, no experts.
pub(crate) struct DenseStore {
    layout: StoreLayout,
    disk: Box<dyn Disk>,
    tables: Tables,
    path: PathBuf,
}

impl DenseStore {
    pub(crate) fn new(layout: StoreLayout, disk: Box<dyn Disk>, tables: Tables, path: PathBuf) -> DenseStore {
        DenseStore { layout, disk, tables, path }
    }
}

impl ExpertStore for DenseStore {
    fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    fn begin_pass(&mut self, _n_tokens: usize, _is_decode: bool) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&mut self, _il: usize, _experts: &[u32], _n_tokens: &[u32]) -> Result<(), StoreError> {
        unreachable!("no layer of this model has experts")
    }

    fn wait(&mut self, _ready: &mut Vec<usize>) -> Result<(), StoreError> {
        unreachable!("no layer of this model has experts")
    }

    fn weights(&self, _position: usize) -> ExpertWeights<'_> {
        unreachable!("no layer of this model has experts")
    }

    fn release(&mut self, _position: usize) {}

    fn route_bias(&mut self, _il: usize) -> Option<RouteBias<'_>> {
        None
    }

    fn routed(&mut self, _il: usize, _logits: &[f32], _chosen: &[u32]) {}

    fn wants_read_ahead(&self, _il: usize) -> bool {
        false
    }

    fn read_ahead(&mut self, _il: usize, _logits: &[f32]) {}

    fn rows(&mut self, table: TableId, rows: &[u64], out: &mut [f32]) -> Result<(), StoreError> {
        let read =
            self.tables.rows(table, rows, out, &mut *self.disk, |_| unreachable!("all reads are of rows"));
        read.map(|_| ()).map_err(|error| StoreError::Read {
            what: format!("rows of `{}`", self.layout.tables[table.0].tensor.name),
            file: self.path.clone(),
            cause: with_causes(&error),
        })
    }
}
