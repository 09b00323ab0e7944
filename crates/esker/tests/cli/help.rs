//! Help texts.

use crate::support::{assert_run, run, stdout};
use std::ops::Range;
use std::process::Output;

/// What a command's help says beside the options that many commands have. These are those of `run -h` or `chat --help`, whose
/// snapshots show them in full.
fn own(args: &[&str]) -> Output {
    let mut output = run(args);
    let all: &[&str] = if args.contains(&"-h") { &["run", "-h"] } else { &["chat", "--help"] };
    let reference = stdout(all);
    let mut text = String::from_utf8(output.stdout).expect("UTF-8");
    for heading in ["Engine options:\n", "Memory options:\n", "Global options:\n"] {
        let Some(here) = section(&text, heading) else { continue };
        let there = section(&reference, heading).expect("it has all of them");
        assert_eq!(text[here.clone()], reference[there], "{args:?}");
        text.replace_range(here, &format!("{heading}  as of `{}`", all.join(" ")));
    }
    output.stdout = text.into_bytes();
    output
}

/// Where a section is: its heading and the indented lines below.
fn section(text: &str, heading: &str) -> Option<Range<usize>> {
    let start = text.find(heading)?;
    let lines = text[start..].split_inclusive('\n').skip(1);
    let below = lines.take_while(|line| line.starts_with(' ') || line.trim().is_empty());
    let len = heading.len() + below.map(str::len).sum::<usize>();
    Some(start..start + text[start..start + len].trim_end().len())
}

#[test]
fn program() {
    assert_run!(own(&["--help"]), @r#"
    exit code: 0
    --- stdout ---
    Runs Mixture-of-Experts language models that are bigger than memory

    Esker runs language models from GGUF files. Only data goes to standard output; notes, progress,
    speed and errors go to standard error.

    Usage: esker [OPTIONS] <COMMAND>

    Commands:
      run          Complete a text
      chat         Talk with a model
      serve        Serve a model to programs: the APIs of OpenAI and Anthropic, and a page at `/`
      plan         Show whether a model fits, how memory is laid out, and what speed to expect
      inspect      Show what a GGUF file holds
      tokenize     Turn text into token ids
      detokenize   Turn token ids into text
      logits       Compute the logits of given tokens
      repack       Lay the experts of a model out for quick reading, or undo that
      bench        Write models of random weights, to measure speed with
      completions  Print a shell completion script
      man          Print the manual page, or write those of all commands

    Options:
      -h, --help
              Print help (see a summary with '-h')

      -V, --version
              Print version

    Global options:
      as of `chat --help`

    Model:
      MODEL is the path of a GGUF file; of a split set, of its first file.
      Without it a small demo model is used, so that commands can be tried at
      once: `esker-moe-64m-small.gguf`. It is for trying and testing: it
      writes text, but knows nothing. It is looked for in
        - the directory `$ESKER_MODELS`
        - `models` in the current directory and those above it
        - `models` in the directory of the program and those above it
        - `models` in the source tree that the program was built from

    Examples:
      esker run -p 'Once upon a time' -n 100
      esker chat model.gguf
      esker serve model.gguf
      esker plan model.gguf --memory 6G

    Exit codes:
      0    success, also when the reader of a pipe has gone
      1    an error
      2    wrong usage
      130  interrupted by Ctrl-C

    Environment:
      ESKER_API_KEY   key that clients of `esker serve` have to present
      ESKER_MODELS    directory of the demo model
      NO_COLOR        no colours, unless `--color always` is given
      XDG_CACHE_HOME  where measurements of disks are kept
                      [default: ~/.cache]
      XDG_STATE_HOME  where `esker chat` keeps the history of its input
                      [default: ~/.local/state]
    --- stderr ---
    "#);
}

#[test]
fn run_in_short() {
    assert_run!(run(&["run", "-h"]), @r#"
    exit code: 0
    --- stdout ---
    Complete a text

    Usage: esker run [OPTIONS] [MODEL]

    Arguments:
      [MODEL]  GGUF file; a small demo model if left out

    Options:
      -p, --prompt <TEXT>  Text to continue or to answer
      -f, --file <FILE>    Read the prompt from FILE (`-`: standard input), without its last newline
          --chat           Answer the prompt as one turn of a conversation, by the chat template of the
                           model
          --special        Recognise control tokens such as `<|im_end|>` in the prompt
          --json           Print one JSON object at the end, and nothing else, on standard output
          --stats          Show at the end what was counted: lookups of experts, reads, waiting, memory;
                           with `-v` by layer
          --profile        Show at the end where the time went: every operation, waiting for reads,
                           sampling
      -h, --help           Print help (see more with '--help')

    Conversation options:
      -s, --system <TEXT>              System message
          --chat-template <FILE>       Use the Jinja template in FILE, not the model's own
          --template-arg <NAME=VALUE>  Give the template a variable; VALUE is JSON, or else text. May be
                                       repeated

    Sampling options:
          --temp <T>               Temperature; 0 picks the likeliest token always [default: 0.7]
                                   [alias: --temperature]
          --greedy                 Pick the likeliest token always: `--temp 0`
          --top-k <K>              Keep the K likeliest tokens; 0 keeps all [default: 40]
          --top-p <P>              Keep the likeliest tokens whose probabilities reach this sum; 1 keeps
                                   all [default: 0.95]
          --min-p <P>              Drop tokens less likely than this share of the likeliest; 0 drops
                                   none [default: 0.05]
          --typical-p <P>          Keep the tokens of the most typical surprise up to this sum of
                                   probabilities; 1 keeps all [default: 1]
          --repeat-penalty <R>     Divide the positive and multiply the negative logits of recent tokens
                                   by this; 1 changes none [default: 1]
          --presence-penalty <X>   Subtract this from the logits of recent tokens, once [default: 0]
          --frequency-penalty <X>  Subtract this from the logits of recent tokens for each time that
                                   they occur [default: 0]
          --penalty-last-n <N>     How many tokens are recent [default: 64]
          --logit-bias <ID=X>      Add X to the logit of a token; `-inf` forbids it. May be repeated
          --seed <N>               Seed of the draw: the same seed, options and prompt give the same
                                   text [default: random]
      -n, --max-tokens <N>         Stop at most after N new tokens [default: when the model ends or the
                                   context is full]
          --stop <TEXT>            Stop before this text, which is not printed. May be repeated
          --ignore-eos             Go on when the model ends its text
          --show-special           Show the control tokens that the model writes

    Engine options:
      -t, --threads <N>      Threads that compute [default: as many as there are physical cores]
          --cpu-mask <LIST>  Processors to run on, such as `0-3,8` [default: all that the program may
                             use]
      -c, --context <N>      Tokens that a sequence has room for [default: 4096, or what the model was
                             trained for if that is less; `logits`: as many as are given]
          --chunk <N>        Tokens of a prompt that are processed at a time [default: 512; `logits`:
                             128]
          --kv-type <TYPE>   Number type of the KV cache [default: f16; `logits`: f32] [possible values:
                             f16, f32]

    Memory options:
      -m, --memory <SIZE>      Memory that the program may take in all, such as `6G`; `all`: the whole
                               model; `auto`: what is free [default: auto]
          --policy <NAME>      Which experts stay in memory [default: protected-lru] [possible values:
                               lru, lfu, ema, near-pick-ema, inverse-router-ema, protected-lru, s3-fifo]
          --no-read-ahead      Do not read experts ahead that the next layer will probably choose
          --route-bias <X>     Prefer experts that are in memory: add this share of the range of a
                               layer's router logits to theirs [default: 0]
          --route-protect <N>  With `--route-bias`: the first N experts of a token are chosen by the
                               router alone [default: 3]
          --io <HOW>           What carries out the reads [default: auto] [possible values: auto, uring,
                               pool]
          --no-direct-io       Read by way of the page cache of the system
          --reads-max <N>      Transfers at the disk at a time, at most [default: what it is best at,
                               measured once for a file]

    Global options:
      -v, --verbose       Say more on standard error
      -q, --quiet         Say nothing but errors on standard error
          --color <WHEN>  When to use colours [default: auto] [possible values: auto, always, never]
    --- stderr ---
    "#);
}

#[test]
fn chat() {
    assert_run!(run(&["chat", "--help"]), @r#"
    exit code: 0
    --- stdout ---
    Talk with a model

    A conversation line by line, by the chat template of the model. Standard input can be a terminal,
    with editing and history, or a pipe, whose lines are one turn each.

    Usage: esker chat [OPTIONS] [MODEL]

    Arguments:
      [MODEL]
              GGUF file; a small demo model if left out

    Options:
          --load <FILE>
              Go on with a conversation that `/save` wrote

          --no-history
              Neither read nor write the history of input lines

          --stats
              Show at the end what was counted, as `/stats` does at any time

      -h, --help
              Print help (see a summary with '-h')

    Conversation options:
      -s, --system <TEXT>
              System message

          --chat-template <FILE>
              Use the Jinja template in FILE, not the model's own

          --template-arg <NAME=VALUE>
              Give the template a variable; VALUE is JSON, or else text. May be repeated
              
              For example `--template-arg enable_thinking=false`.

    Sampling options:
          --temp <T>
              Temperature; 0 picks the likeliest token always
              
              [default: 0.7]
              [alias: --temperature]

          --greedy
              Pick the likeliest token always: `--temp 0`

          --top-k <K>
              Keep the K likeliest tokens; 0 keeps all
              
              [default: 40]

          --top-p <P>
              Keep the likeliest tokens whose probabilities reach this sum; 1 keeps all
              
              [default: 0.95]

          --min-p <P>
              Drop tokens less likely than this share of the likeliest; 0 drops none
              
              [default: 0.05]

          --typical-p <P>
              Keep the tokens of the most typical surprise up to this sum of probabilities; 1 keeps all
              
              [default: 1]

          --repeat-penalty <R>
              Divide the positive and multiply the negative logits of recent tokens by this; 1 changes
              none
              
              [default: 1]

          --presence-penalty <X>
              Subtract this from the logits of recent tokens, once
              
              [default: 0]

          --frequency-penalty <X>
              Subtract this from the logits of recent tokens for each time that they occur
              
              [default: 0]

          --penalty-last-n <N>
              How many tokens are recent
              
              [default: 64]

          --logit-bias <ID=X>
              Add X to the logit of a token; `-inf` forbids it. May be repeated

          --seed <N>
              Seed of the draw: the same seed, options and prompt give the same text [default: random]

      -n, --max-tokens <N>
              Stop at most after N new tokens [default: when the model ends or the context is full]

          --stop <TEXT>
              Stop before this text, which is not printed. May be repeated

          --ignore-eos
              Go on when the model ends its text

          --show-special
              Show the control tokens that the model writes

    Engine options:
      -t, --threads <N>
              Threads that compute [default: as many as there are physical cores]

          --cpu-mask <LIST>
              Processors to run on, such as `0-3,8` [default: all that the program may use]
              
              For machines with efficiency cores or several memory nodes: keeps the program on the fast
              cores, or on those beside the memory. The default of `--threads` then counts these. Linux
              only.

      -c, --context <N>
              Tokens that a sequence has room for [default: 4096, or what the model was trained for if
              that is less; `logits`: as many as are given]

          --chunk <N>
              Tokens of a prompt that are processed at a time [default: 512; `logits`: 128]

          --kv-type <TYPE>
              Number type of the KV cache [default: f16; `logits`: f32]

              Possible values:
              - f16: Half the memory and bandwidth
              - f32: Exact

    Memory options:
      -m, --memory <SIZE>
              Memory that the program may take in all, such as `6G`; `all`: the whole model; `auto`:
              what is free
              
              K, M, G and T are units of 1024. Experts that do not fit stay on the disk and are read
              when they are needed. `auto` holds the whole model if it fits into what is free now, else
              takes a budget of what is free less a reserve. A budget that is too small is refused, with
              what would do.
              
              [default: auto]

          --policy <NAME>
              Which experts stay in memory
              
              [default: protected-lru]
              [possible values: lru, lfu, ema, near-pick-ema, inverse-router-ema, protected-lru,
              s3-fifo]

          --no-read-ahead
              Do not read experts ahead that the next layer will probably choose

          --route-bias <X>
              Prefer experts that are in memory: add this share of the range of a layer's router logits
              to theirs
              
              Cache-aware routing reads less and changes the text. 0 is off.
              
              [default: 0]

          --route-protect <N>
              With `--route-bias`: the first N experts of a token are chosen by the router alone
              
              [default: 3]

          --io <HOW>
              What carries out the reads
              
              Changes speed only. A thread begins the disk's next transfer when one is done; io_uring
              waits until the thread that computes comes by. Measured on two cores, threads decode 8 %
              faster.

              Possible values:
              - auto:  The faster of the two as measured: threads
              - uring: io_uring of Linux, or an error where the system has or permits none
              - pool:  Threads, each with one transfer at a time
              
              [default: auto]

          --no-direct-io
              Read by way of the page cache of the system

          --reads-max <N>
              Transfers at the disk at a time, at most [default: what it is best at, measured once for a
              file]

    Global options:
      -v, --verbose
              Say more on standard error

      -q, --quiet
              Say nothing but errors on standard error

          --color <WHEN>
              When to use colours

              Possible values:
              - auto:   On terminals, unless `NO_COLOR` is set
              - always: Always
              - never:  Never
              
              [default: auto]

    Input:
      Enter sends the message. Alt-Enter begins a new line, and so does Enter
      after a backslash; a text that begins with """ goes on until """.
      Ctrl-C ends an answer, not the conversation; Ctrl-D leaves. Lines that
      begin with `/` are commands: /help lists them. `//` sends a text that
      begins with `/`.

    Examples:
      esker chat
      esker chat model.gguf --system 'Answer in French.' --temp 0.3
      printf '%s\n' 'I am Ada.' 'Who am I?' | esker chat model.gguf --greedy
    --- stderr ---
    "#);
}

#[test]
fn inspect() {
    assert_run!(own(&["inspect", "--help"]), @r#"
    exit code: 0
    --- stdout ---
    Show what a GGUF file holds

    Architecture, parameters, sizes per layer and per expert, tensor types. Only the header is read, so
    this is quick for files of any size, and works for architectures that cannot be run. Of a repacked
    file the model is shown; `--tensors` lists what is in the file.

    Usage: esker inspect [OPTIONS] [MODEL]

    Arguments:
      [MODEL]
              GGUF file; a small demo model if left out

    Options:
          --tensors
              List all tensors

          --metadata
              List all metadata, long values abbreviated

          --json
              Print one JSON object on standard output
              
              Sizes are in bytes. With `--metadata`, arrays of more than 64 elements become an object
              with `type`, `length` and the `first` 8.

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      as of `chat --help`

    Examples:
      esker inspect model.gguf
      esker inspect model.gguf --metadata --tensors
      esker inspect model.gguf --json | jq .experts
    --- stderr ---
    "#);
}

#[test]
fn tokenize_in_short() {
    assert_run!(own(&["tokenize", "-h"]), @r#"
    exit code: 0
    --- stdout ---
    Turn text into token ids

    Usage: esker tokenize [OPTIONS] [MODEL] [TEXT]

    Arguments:
      [MODEL]  GGUF file; a small demo model if left out
      [TEXT]   Text; standard input if neither this nor `--file` is given

    Options:
      -f, --file <FILE>  Read the text from FILE (`-`: standard input), every byte of it
          --special      Recognise control tokens such as `<|im_end|>` in the text
          --no-bos       Do not begin with a BOS token, even if the model asks for one
          --pieces       One token a line: its id and its text
          --json         Print one JSON object: `tokens` (ids), `pieces` (texts), `count`
      -h, --help         Print help (see more with '--help')

    Global options:
      as of `run -h`
    --- stderr ---
    "#);
}

#[test]
fn detokenize_in_short() {
    assert_run!(own(&["detokenize", "-h"]), @r#"
    exit code: 0
    --- stdout ---
    Turn token ids into text

    Usage: esker detokenize [OPTIONS] [MODEL|ID]...

    Arguments:
      [MODEL|ID]...  GGUF file (a small demo model if left out), then token ids; they are read from
                     standard input if none is given

    Options:
          --special  Show control tokens by their names
      -h, --help     Print help (see more with '--help')

    Global options:
      as of `run -h`
    --- stderr ---
    "#);
}

#[test]
fn logits_in_short() {
    assert_run!(own(&["logits", "-h"]), @r#"
    exit code: 0
    --- stdout ---
    Compute the logits of given tokens

    Usage: esker logits [OPTIONS] --tokens <FILE> [MODEL]

    Arguments:
      [MODEL]  GGUF file; a small demo model if left out

    Options:
          --tokens <FILE>   Token ids: a JSON list, or numbers separated by spaces or newlines, with `#`
                            comments (`-`: standard input)
          --step            Feed one token at a time, as in decoding; the result is the same to the bit
      -o, --out <FILE.npy>  Write the array to FILE.npy [default: standard output, if that is not a
                            terminal]
          --json            Print a summary as one JSON object on standard output; the array is then
                            written only with `--out`
      -h, --help            Print help (see more with '--help')

    Engine options:
      as of `run -h`

    Memory options:
      as of `run -h`

    Global options:
      as of `run -h`
    --- stderr ---
    "#);
}

/// Lines that are wrapped by hand must not be wrapped again, also where a column or two is lost.
#[test]
fn every_help_has_examples_that_fit_a_terminal() {
    for command in [
        "run",
        "chat",
        "serve",
        "plan",
        "inspect",
        "tokenize",
        "detokenize",
        "logits",
        "repack",
        "completions",
        "man",
    ] {
        let help = stdout(&[command, "--help"]);
        let (_, after) = help.split_once("\nGlobal options:").expect("global options");
        assert!(help.contains("\nExamples:\n"), "{command}");
        for line in after.lines() {
            assert!(line.chars().count() <= 100, "{command}: {line}");
        }
    }
}

#[test]
fn without_a_command_help_is_an_error() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    assert!(String::from_utf8_lossy(&output.stderr).contains("Usage: esker"));
}

#[test]
fn plan() {
    assert_run!(own(&["plan", "-h"]), @r#"
    exit code: 0
    --- stdout ---
    Show whether a model fits, how memory is laid out, and what speed to expect

    Usage: esker plan [OPTIONS] [MODEL]

    Arguments:
      [MODEL]  GGUF file; a small demo model if left out

    Options:
          --no-measure        Do not measure memory and disk, and leave the speed out
          --json              Print one JSON object on standard output; sizes are in bytes
          --sessions <N>      Sequences that are computed at a time: `--slots` of `esker serve`
                              [default: 1]
          --snapshots <SIZE>  Memory for snapshots of conversations, such as `64M`: `--snapshot-memory`
                              of `esker serve`
      -h, --help              Print help (see more with '--help')

    Engine options:
      as of `run -h`

    Memory options:
      as of `run -h`

    Global options:
      as of `run -h`
    --- stderr ---
    "#);
}

#[test]
fn repack() {
    assert_run!(own(&["repack", "--help"]), @r#"
    exit code: 0
    --- stdout ---
    Lay the experts of a model out for quick reading, or undo that

    Writes a model whose experts lie one after the other, each on pages of its own and with a checksum:
    one read brings an expert from the disk, where three do otherwise, and damage is noticed. All else
    is as it was, and so is every result. The file of a split set is the first one; the result is one
    file.

    Usage: esker repack [OPTIONS] <MODEL> [OUT]

    Arguments:
      <MODEL>
              GGUF file; with `--undo` and `--verify`, one that was repacked

      [OUT]
              File to write

    Options:
          --undo
              Write the model that was repacked again

          --verify
              Read all experts and compare their checksums; write nothing

          --force
              Put the result in the place of a file that exists

          --json
              Print one JSON object on standard output; sizes are in bytes

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      as of `chat --help`

    Examples:
      esker repack model.gguf model-packed.gguf
      esker run model-packed.gguf --memory 6G -p 'Once upon a time'
      esker repack --verify model-packed.gguf
      esker repack --undo model-packed.gguf model.gguf

    The result appears when it is complete: after an error, or Ctrl-C, nothing
    has changed at OUT. What `--undo` writes is compared with the SHA-256 of the
    file that was repacked, where its bytes can be the same: those of a split
    set, or of a file with another order or padding, become an equal model in
    one file.
    --- stderr ---
    "#);
}

#[test]
fn bench() {
    assert_run!(own(&["bench", "synth", "--help"]), @r#"
    exit code: 0
    --- stdout ---
    Write a model of random weights with the geometry of a real one

    Speed, memory and disk traffic depend on shapes, types and sizes, and these are those of the real
    model: they can be measured without its weights. The same geometry, options and seed give the same
    bytes on every machine.

    Usage: esker bench synth [OPTIONS] [GEOMETRY] [OUT]

    Arguments:
      [GEOMETRY]
              The real model whose shapes it gets
              
              [possible values: qwen3-30b-a3b, qwen3-next-80b, qwen3.8-flash-next, tiny-qwen3moe,
              tiny-qwen3next, tiny-qwen4exp]

      [OUT]
              GGUF file to write

    Options:
          --list
              Show the geometries and recipes, with sizes, and write nothing

          --layers <N>
              Only the first N layers, for a smaller file [default: all]

          --quant <RECIPE>
              Which tensors have which types

              Possible values:
              - q4_k: Experts Q4_K, down projections Q6_K; dense Q4_K, values and output Q6_K
              - q2_0: Experts Q2_0; everything else Q8_0
              - iq3:  Experts IQ3_S, down projections IQ4_NL; dense Q5_K, embedding and tables IQ4_XS
              - q8_0: Everything Q8_0
              - f16:  Everything F16
              
              [default: q4_k]

          --seed <N>
              Another seed gives other weights, in a file of the same size
              
              [default: 0]

          --ngram-rows <N>
              Rows of the n-gram table, about, where the model has one (`qwen4exp`); the released model
              has 320 million [default: 2 million]

          --force
              Put the result in the place of a file that exists

          --json
              Print one JSON object on standard output; sizes are in bytes

      -h, --help
              Print help (see a summary with '-h')

    Global options:
      as of `chat --help`

    What it is not good for:
      The text means nothing. Routing is nearly uniform: a token has as many experts
      in common with the one before as chance has it. That is the worst case for
      a cache: a hit rate is about the share of experts that fit, while trained
      models reuse experts far more. Experts follow from a token's id nearly
      alone, so measure with `--temp 1`: greedy text repeats itself. Read-ahead
      guesses better than with real weights.

    Examples:
      esker bench synth --list
      esker bench synth qwen3-30b-a3b synth.gguf --layers 8
      esker run synth.gguf --memory 2G -p x -n 200 --temp 1 --ignore-eos --stats
    --- stderr ---
    "#);
}
