//! A product allocates nothing once the activation buffer has its size.

use esker_kernels::Pool;
use esker_kernels::matmul::{ActBuf, Job, Weights, act_format, matmul};
use esker_quant::GgmlType;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is passed on to the system's allocator; the counter allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn matmul_allocates_nothing_after_the_first_time() {
    const COLS: usize = 512;
    const ROWS: usize = 300;
    const RUNS: usize = 100;
    let pool = Pool::new(3);
    let x: Vec<f32> = (0..9 * COLS).map(|i| (i as f32 * 0.01).sin()).collect();
    let tokens = [0u32, 8, 3];
    for ty in [GgmlType::Q8_0, GgmlType::Q4_K, GgmlType::F16, GgmlType::TQ1_0] {
        let bytes = vec![1u8; ty.row_bytes(COLS).unwrap() * ROWS];
        let weights = Weights::new(ty, ROWS, COLS, &bytes);
        let mut buf = ActBuf::new();
        let (mut all, mut some) = (vec![0.0; 9 * ROWS], vec![0.0; 3 * ROWS]);
        let mut run = || {
            let acts = buf.prepare(&pool, act_format(ty), &x, COLS);
            matmul(
                &pool,
                &mut [
                    Job { weights, acts, tokens: None, out: &mut all },
                    Job { weights, acts, tokens: Some(&tokens), out: &mut some },
                ],
            );
        };
        run();
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..RUNS {
            run();
        }
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        // Threads that are still starting, and the test harness, allocate a few times, but not once a run.
        assert!(after - before < RUNS, "{ty}: {} allocations in {RUNS} runs", after - before);
    }
}
