//! Which instruction set an operation runs on, asked of the CPU once per process.
//!
//! The choice changes the time, never a bit of the result: an operation's body is written once over the sixteen
//! lanes of [`Vector`](super::vector::Vector) and instantiated per instruction set by `multiversion!`.

use std::cell::Cell;
use std::sync::OnceLock;

/// An instruction set that this CPU has: a value of any kind but the baseline exists only after detection, which is
/// what makes calling its instantiation sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// What every CPU of the target has: SSE2 without fma on x86-64 (slow, but the same bits).
    #[cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "NEON is part of the aarch64 baseline"))]
    Baseline,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "aarch64")]
    Neon,
}

thread_local! {
    static CHOSEN: Cell<Option<Isa>> = const { Cell::new(None) };
}

impl Isa {
    /// Every instruction set of this CPU that has an instantiation, best first.
    pub fn available() -> &'static [Isa] {
        static AVAILABLE: OnceLock<Vec<Isa>> = OnceLock::new();
        AVAILABLE.get_or_init(|| {
            let mut found = Vec::new();
            #[cfg(target_arch = "x86_64")]
            {
                use std::arch::is_x86_feature_detected as has;
                let avx2 = has!("avx2") && has!("fma") && has!("f16c");
                if avx2 && has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") {
                    found.push(Isa(Kind::Avx512));
                }
                if avx2 {
                    found.push(Isa(Kind::Avx2));
                }
            }
            #[cfg(target_arch = "aarch64")]
            found.push(Isa(Kind::Neon));
            #[cfg(not(target_arch = "aarch64"))]
            found.push(Isa(Kind::Baseline));
            found
        })
    }

    /// What an operation called by this thread uses: the best available, or the choice of [`Isa::with`].
    pub fn current() -> Isa {
        CHOSEN.get().unwrap_or_else(|| Isa::available()[0])
    }

    /// Runs `f` with the operations it calls from this thread using `self`; for comparing instruction sets.
    pub fn with<R>(self, f: impl FnOnce() -> R) -> R {
        struct Restore(Option<Isa>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CHOSEN.set(self.0);
            }
        }
        let _restore = Restore(CHOSEN.replace(Some(self)));
        f()
    }

    pub(super) fn kind(self) -> Kind {
        self.0
    }
}

/// `fn name = body(args);` defines `name(isa, args)`, which calls `body::<V>(args)` compiled for `isa`.
///
/// `body` and everything it calls must be `#[inline(always)]`, so that it is compiled with the features of the
/// function it ends up in.
macro_rules! multiversion {
    ($($vis:vis fn $name:ident = $body:ident($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?;)+) => {$(
        #[allow(clippy::too_many_arguments)]
        $vis fn $name(isa: $crate::float::isa::Isa, $($arg: $ty),*) $(-> $ret)? {
            match isa.kind() {
                #[cfg(target_arch = "x86_64")]
                $crate::float::isa::Kind::Avx512 => {
                    #[allow(clippy::too_many_arguments)]
                    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                    fn run($($arg: $ty),*) $(-> $ret)? {
                        $body::<$crate::float::vector::Avx512>($($arg),*)
                    }
                    // SAFETY: an `Isa` of this kind exists only where these features were detected.
                    unsafe { run($($arg),*) }
                }
                #[cfg(target_arch = "x86_64")]
                $crate::float::isa::Kind::Avx2 => {
                    #[allow(clippy::too_many_arguments)]
                    #[target_feature(enable = "avx2,fma,f16c")]
                    fn run($($arg: $ty),*) $(-> $ret)? {
                        $body::<$crate::float::vector::Avx2>($($arg),*)
                    }
                    // SAFETY: an `Isa` of this kind exists only where these features were detected.
                    unsafe { run($($arg),*) }
                }
                #[cfg(target_arch = "aarch64")]
                $crate::float::isa::Kind::Neon => $body::<$crate::float::vector::Neon>($($arg),*),
                $crate::float::isa::Kind::Baseline => $body::<$crate::float::vector::Array>($($arg),*),
            }
        }
    )+};
}
pub(super) use multiversion;
