//! Which experts passes use: counts for people to look at. Nothing is decided by them.

use crate::store::StoreLayout;

/// What is left of a use after each later pass.
const FADE: f32 = 0.9;

/// Use of every expert of a model, fading from pass to pass.
#[derive(Default)]
pub struct ExpertUse {
    pass: u32,
    n_expert: usize,
    /// `[n_layer, n_expert]`
    recent: Vec<Recent>,
    /// By layer.
    lookups: Vec<u64>,
}

/// Uses up to pass `pass`, each counted as `FADE` to the number of passes since.
#[derive(Clone, Copy, Default)]
struct Recent {
    uses: f32,
    pass: u32,
}

impl ExpertUse {
    /// Memory held, bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.recent.capacity() * size_of::<Recent>() + self.lookups.capacity() * 8
    }

    pub(crate) fn begin_pass(&mut self, layout: &StoreLayout) {
        if self.lookups.len() < layout.layers.len() {
            self.n_expert = layout.layers.iter().flatten().map(|l| l.n_expert).max().unwrap_or(0);
            self.lookups.resize(layout.layers.len(), 0);
            self.recent.resize(layout.layers.len() * self.n_expert, Recent::default());
        }
        self.pass = self.pass.wrapping_add(1);
    }

    pub(crate) fn count(&mut self, il: usize, experts: &[u32]) {
        self.lookups[il] += experts.len() as u64;
        for &e in experts {
            let recent = &mut self.recent[il * self.n_expert + e as usize];
            *recent = Recent { uses: recent.faded(self.pass) + 1.0, pass: self.pass };
        }
    }

    /// Experts that the passes so far asked for in layer `il`; each counts once in a pass.
    pub fn lookups(&self, il: usize) -> u64 {
        self.lookups.get(il).copied().unwrap_or(0)
    }

    /// Use of late of expert `e` of layer `il`: 0 is never, 255 in every pass.
    pub fn hot(&self, il: usize, e: usize) -> u8 {
        let recent = self.recent.get(il * self.n_expert + e).copied().unwrap_or_default();
        (recent.faded(self.pass) * (1.0 - FADE) * 255.0).round() as u8
    }
}

impl Recent {
    fn faded(self, pass: u32) -> f32 {
        // After 200 passes nothing is left that could be seen.
        self.uses * FADE.powi(pass.wrapping_sub(self.pass).min(200) as i32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::ExpertLayout;

    #[test]
    fn use_fades() {
        let layer = |n_expert| ExpertLayout {
            n_expert,
            n_expert_used: 2,
            n_ff: 1,
            n_embd: 1,
            tensors: Vec::new(),
            parts: Vec::new(),
            checksums: None,
        };
        let layout = StoreLayout { layers: vec![None, Some(layer(4))], tables: Vec::new() };
        let mut usage = ExpertUse::default();
        assert_eq!((usage.hot(1, 2), usage.lookups(1)), (0, 0), "before the first pass");
        for _ in 0..100 {
            usage.begin_pass(&layout);
            usage.count(1, &[0, 2]);
        }
        assert_eq!((0..4).map(|e| usage.hot(1, e)).collect::<Vec<_>>(), [255, 0, 255, 0]);
        assert_eq!((usage.lookups(0), usage.lookups(1)), (0, 200));
        for _ in 0..10 {
            usage.begin_pass(&layout);
            usage.count(1, &[0]);
        }
        assert_eq!(usage.hot(1, 0), 255);
        assert!((80..100).contains(&usage.hot(1, 2)), "{}", usage.hot(1, 2));
        (0..100).for_each(|_| usage.begin_pass(&layout));
        assert_eq!(usage.hot(1, 2), 0);
    }
}
