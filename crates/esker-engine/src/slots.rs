//! How experts lie in the file and in a slot: pure arithmetic, shared by the plan and the store.

use arrayvec::ArrayVec;
use esker_disk::{FileId, Segment, SmallSegments, aligned_span};
use esker_models::{ExpertLayout, StoreLayout};

/// A range of a file that is read as a whole for an expert: one part, or several that lie side by side.
#[derive(Clone, Debug)]
struct Run {
    /// Index into the model's files.
    file: usize,
    /// Of expert 0.
    offset: u64,
    /// From one expert to the next.
    stride: u64,
    bytes: usize,
    /// What direct reads of the file ask for; 1 for buffered ones.
    read_align: usize,
    /// Where the run's aligned span starts in a slot.
    into: usize,
}

impl Run {
    fn start(&self, e: usize) -> u64 {
        self.offset + self.stride * e as u64
    }
}

/// Where a part of an expert is within its run.
#[derive(Clone, Debug)]
struct PartPlace {
    run: usize,
    from: usize,
    bytes: usize,
}

/// One layer's experts in file and slot.
#[derive(Clone, Debug)]
pub(crate) struct SlotLayout {
    runs: Vec<Run>,
    parts: Vec<PartPlace>,
    /// Bytes of a slot that can take any expert of the layer.
    pub(crate) slot_bytes: usize,
    /// Bytes of one expert, alignment not counted.
    pub(crate) expert_bytes: usize,
}

impl SlotLayout {
    /// A slot has room for spans of `slot_align`. Spans of each file's `read_aligns`, which divide it, lie inside those.
    pub(crate) fn new(layer: &ExpertLayout, slot_align: usize, read_aligns: &[usize]) -> SlotLayout {
        let mut runs: Vec<Run> = Vec::new();
        let mut parts = Vec::new();
        for part in &layer.parts {
            let tensor = &layer.tensors[part.tensor];
            let (offset, bytes) = (tensor.offset + part.offset, part.bytes as usize);
            // Parts of one tensor are side by side in each expert; their run includes the padding between them.
            match runs.last_mut() {
                Some(run)
                    if part.stride != part.bytes && run.file == tensor.file && run.stride == part.stride =>
                {
                    let from = (offset - run.offset) as usize;
                    run.bytes = from + bytes;
                    parts.push(PartPlace { run: runs.len() - 1, from, bytes });
                }
                _ => {
                    parts.push(PartPlace { run: runs.len(), from: 0, bytes });
                    let (file, stride) = (tensor.file, part.stride);
                    let read_align = read_aligns[file];
                    runs.push(Run { file, offset, stride, bytes, read_align, into: 0 });
                }
            }
        }
        let mut slot_bytes = 0;
        for run in &mut runs {
            run.into = slot_bytes;
            let span = |e| aligned_span(run.start(e), run.bytes, slot_align).len;
            slot_bytes += (0..layer.n_expert).map(span).max().unwrap_or(0);
        }
        SlotLayout { runs, parts, slot_bytes, expert_bytes: layer.expert_bytes() as usize }
    }

    /// Bytes of the longest read of an expert, and the file that it is in.
    pub(crate) fn longest_read(&self) -> Option<(usize, usize)> {
        self.runs.iter().map(|run| (run.bytes, run.file)).max()
    }

    /// The reads that bring expert `e` into a slot.
    pub(crate) fn segments(&self, e: usize, files: &[FileId]) -> SmallSegments {
        let segment = |run: &Run| Segment {
            file: files[run.file],
            offset: run.start(e),
            len: run.bytes,
            into: run.into,
        };
        self.runs.iter().map(segment).collect()
    }

    /// The parts of expert `e` in a slot that holds it, in the layout's order.
    pub(crate) fn slices<'a>(&self, e: usize, slot: &'a [u8]) -> ArrayVec<&'a [u8], 3> {
        let slice = |part: &PartPlace| {
            let run = &self.runs[part.run];
            let skip = aligned_span(run.start(e), run.bytes, run.read_align).skip;
            &slot[run.into + skip + part.from..][..part.bytes]
        };
        self.parts.iter().map(slice).collect()
    }
}

/// Layers whose slots have the same size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SizeClass {
    pub(crate) slot_bytes: usize,
    /// Model layers.
    pub(crate) layers: Vec<usize>,
    /// Experts of all of them.
    pub(crate) n_experts: usize,
    /// The largest top-k: the fewest slots that work.
    pub(crate) slots_min: usize,
}

/// The slots of every layer, and the size classes, smallest first. Alignments as in [`SlotLayout::new`].
pub(crate) fn slot_layouts(
    layout: &StoreLayout,
    slot_align: usize,
    read_aligns: &[usize],
) -> (Vec<Option<SlotLayout>>, Vec<SizeClass>) {
    let slots: Vec<_> = layout
        .layers
        .iter()
        .map(|l| l.as_ref().map(|l| SlotLayout::new(l, slot_align, read_aligns)))
        .collect();
    let mut classes: Vec<SizeClass> = Vec::new();
    for (il, (slot, layer)) in slots.iter().zip(&layout.layers).enumerate() {
        let (Some(slot), Some(layer)) = (slot, layer) else { continue };
        let slot_bytes = slot.slot_bytes;
        let class = match classes.iter_mut().find(|c| c.slot_bytes == slot_bytes) {
            Some(class) => class,
            None => {
                classes.push(SizeClass { slot_bytes, layers: Vec::new(), n_experts: 0, slots_min: 0 });
                classes.last_mut().expect("just pushed")
            }
        };
        class.layers.push(il);
        class.n_experts += layer.n_expert;
        class.slots_min = class.slots_min.max(layer.n_expert_used);
    }
    classes.sort_by_key(|c| c.slot_bytes);
    (slots, classes)
}

/// Slots of each class in an arena of `bytes`: the classes share it by their number of layers, none gets more than it has
/// experts, and what a class leaves goes to the others. `None` if a class would get less than one token needs.
pub(crate) fn share_arena(classes: &[SizeClass], bytes: u64) -> Option<Vec<usize>> {
    let need =
        |n: &[usize]| -> u64 { n.iter().zip(classes).map(|(&n, c)| n as u64 * c.slot_bytes as u64).sum() };
    let mut n_slots: Vec<usize> = classes.iter().map(|c| c.slots_min).collect();
    if need(&n_slots) > bytes {
        return None;
    }
    // Grow all classes that are not complete by the same number of slots per layer until the bytes are used up.
    loop {
        let growing: Vec<usize> = (0..classes.len()).filter(|&c| n_slots[c] < classes[c].n_experts).collect();
        let left = bytes - need(&n_slots);
        let round: u64 =
            growing.iter().map(|&c| (classes[c].layers.len() * classes[c].slot_bytes) as u64).sum();
        if round == 0 {
            break;
        }
        // At least one slot per layer a round, more while much is left.
        let times = (left / round / 2).max(1) as usize;
        let mut grew = false;
        for c in growing {
            let class = &classes[c];
            let want = (class.layers.len() * times).min(class.n_experts - n_slots[c]);
            let left = bytes - need(&n_slots);
            let n = want.min((left / class.slot_bytes as u64) as usize);
            n_slots[c] += n;
            grew |= n > 0;
        }
        if !grew {
            break;
        }
    }
    Some(n_slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(slot_bytes: usize, n_layers: usize, n_expert: usize, slots_min: usize) -> SizeClass {
        let layers = (0..n_layers).collect();
        SizeClass { slot_bytes, layers, n_experts: n_layers * n_expert, slots_min }
    }

    #[test]
    fn arena_is_shared_by_layers_and_filled() {
        let classes = [class(100, 30, 16, 4), class(200, 10, 16, 4)];
        assert_eq!(share_arena(&classes, 1199), None, "4 slots of each take 1200");
        assert_eq!(share_arena(&classes, 1200), Some(vec![4, 4]));
        let slots = share_arena(&classes, 25_000).expect("enough");
        assert!((140..=160).contains(&slots[0]) && (45..=55).contains(&slots[1]), "{slots:?}: 3 to 1");
        let used = slots[0] * 100 + slots[1] * 200;
        assert!((24_801..=25_000).contains(&used), "{used}: nothing that would hold a slot is left");
        assert_eq!(share_arena(&classes, 1 << 30), Some(vec![480, 160]), "all experts, no more");
    }
}
