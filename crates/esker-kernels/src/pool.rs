//! The compute threads: one round of work at a time, split over an atomic counter.
//!
//! What this is not: a task scheduler. There are no queues and no futures; [`Pool::run`] splits one index range,
//! the calling thread works too, and it returns when every index is done. Workers spin for some tens of
//! microseconds after a round, because the next one usually follows at once, then park.
//!
//! How a round works: the caller writes the task, then publishes a new generation with the `OPEN` bit in one
//! atomic word. A worker that sees it joins by raising the count in the same word, so joining a closed round is
//! impossible; nobody waits for a worker that is late. The caller closes the round after its own last range and
//! waits until the count is zero; only then does the task's borrow end.

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

/// How long a worker waits busily for the next round before it parks.
const SPIN: Duration = Duration::from_micros(40);
/// Looks at the state between two looks at the clock.
const SPIN_BURST: u32 = 64;
/// Ranges handed out per thread when the grain allows it: enough to even out unequal ranges.
const RANGES_PER_THREAD: usize = 8;

/// Low bits of the state word: workers inside the round.
const COUNT: u64 = 0xffff;
/// Set while workers may join.
const OPEN: u64 = 1 << 16;
/// Set when the workers have to end.
const STOP: u64 = 1 << 17;
/// One generation; the rest of the word counts them.
const GENERATION: u64 = 1 << 18;

thread_local! {
    /// True while this thread is inside a task of any pool: a nested `run` goes inline.
    static IN_TASK: Cell<bool> = const { Cell::new(false) };
}

/// A fixed set of threads that share the ranges of one round at a time.
///
/// Dropping it ends and joins the threads.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a round: rounds of several callers follow one another.
    round: Mutex<()>,
    /// What [`Pool::threads`] says, where it is not the number of workers.
    idle_threads: Option<usize>,
}

/// A value alone on its cache lines (two, because of adjacent-line read-ahead).
#[repr(align(128))]
struct Padded<T>(T);

struct Shared {
    /// Generation, `OPEN`, `STOP` and the number of workers inside.
    state: Padded<AtomicU64>,
    /// The next range to hand out.
    next: Padded<AtomicUsize>,
    task: UnsafeCell<Task>,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: Mutex<Vec<Thread>>,
    asleep: Box<[Padded<AtomicBool>]>,
}

/// The round's work. The borrow is erased; see the SAFETY comments for why it holds long enough.
#[derive(Clone, Copy)]
struct Task {
    f: &'static (dyn Fn(Range<usize>) + Sync),
    n: usize,
    /// Indices per range.
    step: usize,
    n_ranges: usize,
}

// SAFETY: `task` is written only by the caller that holds `Pool::round` while the round is closed and no worker is
// inside, and read only by threads inside a round; the state word orders the two (release on open and leave,
// acquire on join and close). Everything else is Sync by itself.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it is tied to a thread (the task is `Sync`, so it may be called from any).
unsafe impl Send for Shared {}

impl Pool {
    /// A pool of `threads` threads, the calling one included (`threads - 1` are started; at least 1, at most
    /// 65,536). If the system refuses to start one, the pool has fewer: see [`Pool::threads`].
    pub fn new(threads: usize) -> Pool {
        let wanted = threads.clamp(1, COUNT as usize + 1) - 1;
        let shared = Arc::new(Shared {
            state: Padded(AtomicU64::new(0)),
            next: Padded(AtomicUsize::new(0)),
            task: UnsafeCell::new(Task { f: &|_| (), n: 0, step: 1, n_ranges: 0 }),
            panic: Mutex::new(None),
            sleepers: Mutex::new(Vec::with_capacity(wanted)),
            asleep: (0..wanted).map(|_| Padded(AtomicBool::new(false))).collect(),
        });
        let mut workers = Vec::with_capacity(wanted);
        for index in 0..wanted {
            let shared = Arc::clone(&shared);
            let worker = thread::Builder::new().name(format!("compute-{}", index + 1));
            match worker.spawn(move || shared.work(index)) {
                Ok(handle) => workers.push(handle),
                Err(_) => break,
            }
        }
        let threads = workers.iter().map(|w| w.thread().clone());
        shared.sleepers.lock().unwrap_or_else(PoisonError::into_inner).extend(threads);
        Pool { shared, workers, round: Mutex::new(()), idle_threads: None }
    }

    /// A pool that says it has `threads` threads and does nothing: operations check shapes and make their scratch
    /// memory, and leave their outputs as they were. For measuring what a computation would allocate.
    pub fn idle(threads: usize) -> Pool {
        let mut pool = Pool::new(1);
        pool.idle_threads = Some(threads.max(1));
        pool
    }

    /// Threads that work in a round, the calling one included.
    pub fn threads(&self) -> usize {
        self.idle_threads.unwrap_or(self.workers.len() + 1)
    }

    /// Calls `f` with ranges that cover `0..n` once, on all threads, and returns when all are done.
    ///
    /// Ranges hold at least `grain` indices (the last one may be shorter). Nothing is allocated. Called from
    /// inside a task, or with too little work for two ranges, it calls `f(0..n)` on this thread. Calls from
    /// several threads follow one another.
    ///
    /// # Panics
    /// With the payload of the first panic in `f`, after all threads have left it; ranges not started are skipped.
    pub fn run(&self, n: usize, grain: usize, f: &(dyn Fn(Range<usize>) + Sync)) {
        if n == 0 || self.idle_threads.is_some() {
            return;
        }
        let step = grain.max(n.div_ceil(self.threads() * RANGES_PER_THREAD)).max(1);
        let n_ranges = n.div_ceil(step);
        if self.workers.is_empty() || n_ranges == 1 || IN_TASK.get() {
            return f(0..n);
        }
        let payload = {
            let _round = self.round.lock().unwrap_or_else(PoisonError::into_inner);
            // SAFETY: the reference is used by threads inside the round only, and `Shared::round` returns after the
            // last of them has left, panics included; `f` outlives this call.
            let f = unsafe {
                std::mem::transmute::<&(dyn Fn(Range<usize>) + Sync), &'static (dyn Fn(Range<usize>) + Sync)>(
                    f,
                )
            };
            self.shared.round(Task { f, n, step, n_ranges })
        };
        if let Some(payload) = payload {
            resume_unwind(payload);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state.0.fetch_or(STOP, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            // Tasks cannot unwind out of a worker, so there is no payload to pass on.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The caller's side of one round; returns the payload of a panic in the task.
    fn round(&self, task: Task) -> Option<Box<dyn Any + Send>> {
        // SAFETY: the caller holds `Pool::round`, the last round was closed and its count had come to zero, so no
        // other thread reads or writes the task now.
        unsafe { *self.task.get() = task };
        self.next.0.store(0, Ordering::Relaxed);
        let idle = self.state.0.load(Ordering::Relaxed);
        // SeqCst: ordered before the look at `asleep`, as a worker's `asleep` is before its look at the state.
        // `STOP` cannot be set here (dropping needs the pool), so a plain store loses nothing.
        self.state.0.store((idle + GENERATION) | OPEN, Ordering::SeqCst);
        self.wake(2);
        self.take_ranges(&task);
        self.state.0.fetch_and(!OPEN, Ordering::Relaxed);
        let mut looks = 0u32;
        while self.state.0.load(Ordering::Acquire) & COUNT != 0 {
            looks += 1;
            // A worker may have lost its core; then it needs this one more than we do.
            if looks.is_multiple_of(1 << 12) { thread::yield_now() } else { std::hint::spin_loop() }
        }
        self.panic.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Takes ranges until none is left. A panic ends the round for everyone and is kept for the caller.
    fn take_ranges(&self, task: &Task) {
        IN_TASK.set(true);
        let result = catch_unwind(AssertUnwindSafe(|| {
            loop {
                let i = self.next.0.fetch_add(1, Ordering::Relaxed);
                if i >= task.n_ranges {
                    break;
                }
                let start = i * task.step;
                (task.f)(start..task.n.min(start + task.step));
            }
        }));
        IN_TASK.set(false);
        if let Err(payload) = result {
            self.next.0.store(task.n_ranges, Ordering::Relaxed);
            self.panic.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(payload);
        }
    }

    /// Wakes up to `n` parked workers. Each wakes two more when it joins, so that waking many takes few steps.
    fn wake(&self, mut n: usize) {
        for (index, asleep) in self.asleep.iter().enumerate() {
            if n == 0 {
                return;
            }
            if asleep.0.load(Ordering::SeqCst) && asleep.0.swap(false, Ordering::SeqCst) {
                let sleepers = self.sleepers.lock().unwrap_or_else(PoisonError::into_inner);
                if let Some(thread) = sleepers.get(index) {
                    thread.unpark();
                    n -= 1;
                }
            }
        }
    }

    /// A worker's life.
    fn work(&self, index: usize) {
        let mut seen = 0;
        while self.wait_for_round(index, &mut seen) {
            let state = self.state.0.load(Ordering::Relaxed);
            let join = |s| (s & OPEN != 0 && s / GENERATION == seen).then_some(s + 1);
            if self.state.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, join).is_err() {
                debug_assert!(state / GENERATION >= seen);
                continue; // closed before we came
            }
            // SAFETY: this thread is counted in an open round, so the task is published and stays until it leaves.
            let task = unsafe { *self.task.get() };
            if self.next.0.load(Ordering::Relaxed) < task.n_ranges {
                self.wake(2);
            }
            self.take_ranges(&task);
            self.state.0.fetch_sub(1, Ordering::Release);
        }
    }

    /// Waits for an open round newer than `seen` (which it updates); false means stop.
    fn wait_for_round(&self, index: usize, seen: &mut u64) -> bool {
        // Some(true): a round; Some(false): stop.
        let look = |seen: &mut u64| {
            let state = self.state.0.load(Ordering::SeqCst);
            if state & STOP != 0 {
                return Some(false);
            }
            if state & OPEN == 0 || state / GENERATION == *seen {
                return None;
            }
            *seen = state / GENERATION;
            Some(true)
        };
        let mut start = None;
        loop {
            for _ in 0..SPIN_BURST {
                if let Some(go) = look(seen) {
                    return go;
                }
                std::hint::spin_loop();
            }
            if start.get_or_insert_with(Instant::now).elapsed() < SPIN {
                continue;
            }
            let asleep = &self.asleep[index].0;
            asleep.store(true, Ordering::SeqCst);
            // The last look: a round opened before `asleep` was visible wakes nobody.
            while asleep.load(Ordering::SeqCst) {
                if let Some(go) = look(seen) {
                    asleep.store(false, Ordering::SeqCst);
                    return go;
                }
                thread::park();
            }
            start = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU32;

    fn check_covers(pool: &Pool, n: usize, grain: usize) {
        let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
        pool.run(n, grain, &|range| {
            assert!(range.len() >= grain.min(n) || range.end == n, "{range:?} of {n}, grain {grain}");
            for i in range {
                counts[i].fetch_add(1, Ordering::Relaxed);
            }
        });
        assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "n {n}, grain {grain}");
    }

    #[test]
    fn every_index_once() {
        for threads in [1, 2, 3, 7] {
            let pool = Pool::new(threads);
            assert_eq!(pool.threads(), threads);
            for n in [0, 1, 2, 3, 17, 100, 1000] {
                for grain in [0, 1, 2, 5, 64, 10_000] {
                    check_covers(&pool, n, grain);
                }
            }
        }
    }

    #[test]
    fn many_rounds_with_and_without_pauses() {
        let pool = Pool::new(4);
        let total = AtomicUsize::new(0);
        for round in 0..3000usize {
            pool.run(16, 1, &|range| {
                for i in range {
                    // Uneven: some ranges are a hundred times longer.
                    let steps = if i == round % 16 { 2000 } else { 20 };
                    let sum: usize = std::hint::black_box((0..steps).sum());
                    total.fetch_add(usize::from(sum > 0), Ordering::Relaxed);
                }
            });
            if round % 500 == 0 {
                thread::sleep(Duration::from_millis(2)); // workers park
            }
        }
        assert_eq!(total.load(Ordering::Relaxed), 3000 * 16);
    }

    #[test]
    fn parked_workers_take_part_again() {
        let pool = Pool::new(3);
        thread::sleep(Duration::from_millis(20));
        let ids = Mutex::new(std::collections::HashSet::new());
        // Each range waits until another thread has come (or ten seconds): a lost wake-up fails the test.
        let start = Instant::now();
        pool.run(3, 1, &|_| {
            ids.lock().unwrap().insert(thread::current().id());
            while ids.lock().unwrap().len() < 3 && start.elapsed() < Duration::from_secs(10) {
                thread::yield_now();
            }
        });
        assert_eq!(ids.lock().unwrap().len(), 3);
    }

    #[test]
    fn nested_runs_are_inline() {
        let pool = Pool::new(3);
        let total = AtomicUsize::new(0);
        pool.run(12, 1, &|outer| {
            let here = thread::current().id();
            pool.run(100, 1, &|inner| {
                assert_eq!(inner, 0..100);
                assert_eq!(thread::current().id(), here);
                total.fetch_add(inner.len() * outer.len(), Ordering::Relaxed);
            });
        });
        assert_eq!(total.load(Ordering::Relaxed), 1200);
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_survives() {
        let pool = Pool::new(4);
        for bad in [0, 7, 31] {
            let result = catch_unwind(AssertUnwindSafe(|| {
                pool.run(32, 1, &|range| assert!(!range.contains(&bad), "index {bad}"));
            }));
            let payload = result.expect_err("the panic is passed on");
            assert_eq!(payload.downcast_ref::<String>().map(String::as_str), Some(&*format!("index {bad}")));
            check_covers(&pool, 1000, 1);
        }
    }

    #[test]
    fn callers_on_several_threads_take_turns() {
        let pool = Pool::new(2);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| check_covers(&pool, 64, 1)));
            }
        });
    }
}
