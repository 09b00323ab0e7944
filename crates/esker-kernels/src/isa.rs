//! Instruction sets: which ones this build has code for, which one this process uses.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};

/// A variant of the kernels. All variants return the same bits; they differ in speed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isa {
    /// Plain Rust, the definition.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C (2013 and later).
    Avx2,
    /// AVX2 and AVX-VNNI (Intel from Alder Lake and AMD from Zen 5 on).
    AvxVnni,
    /// x86-64 with AVX-512 F, BW, DQ, VL and VNNI (Cascade Lake, Ice Lake, Zen 4 and later).
    Avx512,
    /// AArch64 with Advanced SIMD (always there).
    Neon,
}

impl Isa {
    /// All variants, best first within an architecture.
    pub const ALL: [Isa; 5] = [Isa::Avx512, Isa::AvxVnni, Isa::Avx2, Isa::Neon, Isa::Scalar];

    /// True if this build and this CPU have it.
    pub fn is_available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => {
                is_x86_feature_detected!("avx2")
                    && is_x86_feature_detected!("fma")
                    && is_x86_feature_detected!("f16c")
            }
            #[cfg(target_arch = "x86_64")]
            Isa::AvxVnni => Isa::Avx2.is_available() && is_x86_feature_detected!("avxvnni"),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => {
                Isa::Avx2.is_available()
                    && is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512vnni")
            }
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => true,
            #[allow(unreachable_patterns)]
            _ => false,
        }
    }

    /// The variants that can run here, best first; `Scalar` is always the last.
    pub fn available() -> impl Iterator<Item = Isa> {
        Isa::ALL.into_iter().filter(|isa| isa.is_available())
    }

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::AvxVnni => "avxvnni",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that is no instruction set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown instruction set `{name}` (known: avx512, avxvnni, avx2, neon, scalar)")]
pub struct UnknownIsa {
    /// The name as given.
    pub name: String,
}

impl FromStr for Isa {
    type Err = UnknownIsa;

    fn from_str(name: &str) -> Result<Isa, UnknownIsa> {
        let found = Isa::ALL.into_iter().find(|isa| isa.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownIsa { name: name.to_owned() })
    }
}

/// An instruction set was asked for that this build or this CPU lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the instruction set {isa} is not available on this machine (best here: {best})")]
pub struct IsaUnavailable {
    /// What was asked for.
    pub isa: Isa,
    /// The best one available.
    pub best: Isa,
}

/// 0: not yet chosen; otherwise the variant's index in `Isa::ALL` plus 1.
static ACTIVE: AtomicU8 = AtomicU8::new(0);

/// The variant in use: the best one available, detected at the first call, unless [`force_isa`] chose another.
#[inline]
pub fn active() -> Isa {
    match ACTIVE.load(Ordering::Relaxed) {
        0 => choose(),
        i => Isa::ALL[usize::from(i) - 1],
    }
}

#[cold]
fn choose() -> Isa {
    let best = Isa::available().next().expect("Scalar is always available");
    // If someone forces a variant meanwhile, that choice stays.
    let _ = ACTIVE.compare_exchange(0, code(best), Ordering::Relaxed, Ordering::Relaxed);
    active()
}

fn code(isa: Isa) -> u8 {
    1 + Isa::ALL.iter().position(|&i| i == isa).expect("every variant is listed") as u8
}

/// Chooses the variant for the whole process from now on. Results do not change, only speed.
///
/// # Errors
/// If it is not available.
pub fn force_isa(isa: Isa) -> Result<(), IsaUnavailable> {
    if !isa.is_available() {
        let best = Isa::available().next().expect("Scalar is always available");
        return Err(IsaUnavailable { isa, best });
    }
    ACTIVE.store(code(isa), Ordering::Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back() {
        for isa in Isa::ALL {
            assert_eq!(isa.name().to_uppercase().parse(), Ok(isa));
            assert_eq!(Isa::ALL[usize::from(code(isa)) - 1], isa);
        }
        assert!("sse9".parse::<Isa>().unwrap_err().to_string().contains("sse9"));
    }

    #[test]
    fn the_active_one_is_available() {
        assert!(active().is_available());
        let missing = Isa::ALL.into_iter().find(|isa| !isa.is_available());
        if let Some(isa) = missing {
            assert_eq!(force_isa(isa).unwrap_err().isa, isa);
        }
    }
}
