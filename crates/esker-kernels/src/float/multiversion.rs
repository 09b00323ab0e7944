//! One body, compiled for each instruction set.
//!
//! The choice changes the time, never a bit of the result: an operation's body is written once over the sixteen
//! lanes of [`Vector`](super::vector::Vector) and instantiated by [`multiversion!`].

use crate::isa::{Isa, active};

/// The instruction set that an operation called by this thread uses; always one that is available.
#[inline]
pub(super) fn current() -> Isa {
    #[cfg(test)]
    if let Some(isa) = CHOSEN.get() {
        return isa;
    }
    active()
}

#[cfg(test)]
thread_local! {
    static CHOSEN: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) };
}

/// Runs `f` with the operations that it calls from this thread using `isa`, for tests that compare.
#[cfg(test)]
pub(super) fn with_isa<R>(isa: Isa, f: impl FnOnce() -> R) -> R {
    assert!(isa.is_available());
    let before = CHOSEN.replace(Some(isa));
    let result = f();
    CHOSEN.set(before);
    result
}

/// `fn name = body(args);` defines `name(isa, args)`, which calls `body::<V>(args)` compiled for `isa`; `isa` must come
/// from [`current`].
///
/// `body` and everything it calls must be `#[inline(always)]`, so that it is compiled with the features of the
/// function it ends up in.
macro_rules! multiversion {
    ($($vis:vis fn $name:ident = $body:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)+) => {$(
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            debug_assert!(isa.is_available());
            match isa {
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx512 => {
                    #[allow(clippy::too_many_arguments)]
                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                    fn run($($arg: $ty),*) $(-> $ret)? {
                        $body::<$crate::float::vector::Avx512>($($arg),*)
                    }
                    // SAFETY: `current` returns only what the CPU was seen to have.
                    unsafe { run($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::isa::Isa::Avx2 | $crate::isa::Isa::AvxVnni => {
                    #[allow(clippy::too_many_arguments)]
                    #[target_feature(enable = "avx2,fma,f16c")]
                    fn run($($arg: $ty),*) $(-> $ret)? {
                        $body::<$crate::float::vector::Avx2>($($arg),*)
                    }
                    // SAFETY: `current` returns only what the CPU was seen to have.
                    unsafe { run($($arg),*) }
                }
                #[cfg(target_arch = "aarch64")]
                $crate::isa::Isa::Neon => $body::<$crate::float::vector::Neon>($($arg),*),
                _ => $body::<$crate::float::vector::Array>($($arg),*),
            }
        }
    )+};
}
pub(super) use multiversion;
