//! Log-probabilities as the model gave them, before anything that a sampler does.

/// A token and the logarithm of its probability.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Logprob {
    /// The token.
    pub token: u32,
    /// Natural logarithm of its probability.
    pub logprob: f32,
}

/// What is reported of one drawn token.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token that was drawn.
    pub drawn: Logprob,
    /// The likeliest tokens, likeliest first; ties go to the lower id.
    pub top: Vec<Logprob>,
}

/// Log-probabilities of `drawn` and of the `n_top` likeliest tokens, from the raw distribution: the softmax of `logits`
/// (`[n_vocab]`) without bias, penalties, temperature or filters.
///
/// # Panics
/// If `drawn` is not below the number of logits.
pub fn logprobs(logits: &[f32], drawn: u32, n_top: usize) -> Logprobs {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let log_sum = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum::<f64>().ln() + max;
    let of = |token: u32| {
        let logprob = (f64::from(logits[token as usize]) - log_sum) as f32;
        Logprob { token, logprob }
    };
    let mut top = vec![0; n_top.min(logits.len())];
    esker_ops::top_k(logits, &mut top);
    Logprobs { drawn: of(drawn), top: top.into_iter().map(of).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_the_raw_logits() {
        let logits = [1.0, 3.0, 3.0, -1.0, f32::NEG_INFINITY];
        let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
        let got = logprobs(&logits, 3, 3);
        assert_eq!(got.top.iter().map(|t| t.token).collect::<Vec<_>>(), [1, 2, 0], "ties by id");
        for Logprob { token, logprob } in got.top.iter().chain([&got.drawn]) {
            let expected = f64::from(logits[*token as usize]) - sum.ln();
            assert!((f64::from(*logprob) - expected).abs() < 1e-6, "{token}: {logprob}, expected {expected}");
        }
        assert_eq!(got.drawn.token, 3);
        assert_eq!(logprobs(&logits, 4, 0).drawn.logprob, f32::NEG_INFINITY);
        assert_eq!(logprobs(&logits, 0, 99).top.len(), 5, "no more than there are");
        // Logits far from zero overflow nothing.
        assert_eq!(logprobs(&[1e4, 1e4], 0, 1).drawn.logprob, -(2f32.ln()));
    }
}
