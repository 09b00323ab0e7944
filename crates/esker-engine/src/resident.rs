//! The store of a model that is all in memory: every expert is always there.

use crate::tables::Tables;
use arrayvec::ArrayVec;
use esker_models::{ExpertStore, Fetch, Purpose, RouteBias, StoreError, StoreLayout, TableId};
use esker_ops::{ExpertWeights, WeightBytes};

/// Experts and tables in memory (mapped or read).
pub(crate) struct ResidentStore {
    layout: StoreLayout,
    /// Bytes of each layer's tensors.
    layers: Vec<Vec<WeightBytes>>,
    tables: Tables,
    il: usize,
    wanted: Vec<u32>,
    given: bool,
}

impl ResidentStore {
    /// `fetch` gives the bytes of a tensor.
    ///
    /// # Errors
    /// If a tensor's bytes cannot be had; the error says why.
    pub(crate) fn new(layout: StoreLayout, fetch: &mut Fetch<'_>) -> Result<ResidentStore, String> {
        let mut layers = Vec::with_capacity(layout.layers.len());
        for layer in &layout.layers {
            let tensors = layer.iter().flat_map(|l| &l.tensors);
            layers.push(tensors.map(|t| fetch(t, Purpose::Kept)).collect::<Result<Vec<_>, _>>()?);
        }
        let tables = Tables::in_memory(&layout.tables, fetch)?;
        Ok(ResidentStore { layout, layers, tables, il: 0, wanted: Vec::new(), given: false })
    }
}

impl ExpertStore for ResidentStore {
    fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    fn begin_pass(&mut self, _n_tokens: usize, _is_decode: bool) -> Result<(), StoreError> {
        Ok(())
    }

    fn begin(&mut self, il: usize, experts: &[u32], _n_tokens: &[u32]) -> Result<(), StoreError> {
        self.il = il;
        self.wanted.clear();
        self.wanted.extend_from_slice(experts);
        self.given = false;
        Ok(())
    }

    fn wait(&mut self, ready: &mut Vec<usize>) -> Result<(), StoreError> {
        if !self.given {
            ready.extend(0..self.wanted.len());
            self.given = true;
        }
        Ok(())
    }

    fn weights(&self, position: usize) -> ExpertWeights<'_> {
        let layout = self.layout.layers[self.il].as_ref().expect("begin is called for layers with experts");
        let e = self.wanted[position] as usize;
        let mut slices: ArrayVec<&[u8], 3> = ArrayVec::new();
        for part in &layout.parts {
            let start = (part.offset + part.stride * e as u64) as usize;
            slices.push(&self.layers[self.il][part.tensor].bytes()[start..start + part.bytes as usize]);
        }
        layout.weights(&slices)
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
        self.tables.in_memory_rows(table, rows, out);
        Ok(())
    }
}
