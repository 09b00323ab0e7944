//! Least recently used, by the order of wants: the order in which reads complete or experts are released
//! makes no difference.

use super::Policy;
use crate::evict_queue::{Band, Place};
use crate::ids::ExpertNo;

pub(crate) struct Lru;

impl Policy for Lru {
    fn place(&self, _expert: ExpertNo, stamp: u64) -> Place {
        Place { band: Band::First, key: u128::from(stamp) }
    }
}
