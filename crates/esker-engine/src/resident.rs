//! The store of a model that is all in memory: every expert is always there.

use crate::tables::Tables;
use esker_kernels::matmul::Weights;
use esker_models::{
    ExpertLayout, ExpertStore, ExpertTensors, Fetch, Purpose, RouteBias, StoreError, StoreLayout, TableId,
};
use esker_ops::{ExpertWeights, WeightBytes};

/// Experts and tables in memory (mapped or read).
pub(crate) struct ResidentStore {
    layout: StoreLayout,
    /// Bytes of each layer's tensors, in [`ExpertTensors::list`] order.
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
            let tensors = layer.iter().flat_map(|l| l.tensors.list());
            layers.push(tensors.map(|t| fetch(t, Purpose::Kept)).collect::<Result<Vec<_>, _>>()?);
        }
        let tables = Tables::in_memory(&layout.tables, fetch)?;
        Ok(ResidentStore { layout, layers, tables, il: 0, wanted: Vec::new(), given: false })
    }
}

/// The matrices of an expert, given the bytes of its slices in [`ExpertTensors::list`] order.
pub(crate) fn expert_weights<'a>(layout: &ExpertLayout, slices: [&'a [u8]; 3]) -> ExpertWeights<'a> {
    let &ExpertLayout { n_ff, n_embd, .. } = layout;
    match &layout.tensors {
        ExpertTensors::Split { gate, up, down } => ExpertWeights {
            gate: Weights::new(gate.ty, n_ff, n_embd, slices[0]),
            up: Weights::new(up.ty, n_ff, n_embd, slices[1]),
            down: Weights::new(down.ty, n_embd, n_ff, slices[2]),
        },
        ExpertTensors::Fused { gate_up, down } => {
            let (gate, up) = slices[0].split_at(slices[0].len() / 2);
            ExpertWeights {
                gate: Weights::new(gate_up.ty, n_ff, n_embd, gate),
                up: Weights::new(gate_up.ty, n_ff, n_embd, up),
                down: Weights::new(down.ty, n_embd, n_ff, slices[1]),
            }
        }
    }
}

impl ExpertStore for ResidentStore {
    fn layout(&self) -> &StoreLayout {
        &self.layout
    }

    fn begin_pass(&mut self, _n_tokens: usize) -> Result<(), StoreError> {
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
        let mut slices = [&[][..]; 3];
        for (slice, bytes) in slices.iter_mut().zip(&self.layers[self.il]) {
            let bytes = bytes.bytes();
            let n = bytes.len() / layout.n_expert;
            *slice = &bytes[e * n..(e + 1) * n];
        }
        expert_weights(layout, slices)
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
