//! A template as instructions of the engine, changed so that it keeps within limits and does what Python does.
//!
//! The engine's fuel pays for steps and for text, but lists can be shared: `x = [x, x]` sixty times is cheap to
//! build and never ends when it is walked, and a list nested a hundred thousand times overflows the stack when it
//! is dropped. So what builds a container, and what stores a value in a variable, goes through [`operators`], which
//! bounds size and depth. The same way `+`, `*`, `%`, `~` and slices get Python's meaning.
//!
//! [`operators`]: super::operators

use std::collections::BTreeMap;

use minijinja::machinery::{CodeGenerator, Instruction, Instructions, Token, ast, parse, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Error, ErrorKind};

use super::operators::{
    self, ADD, CONCAT, EQUAL, GREATER, GREATER_OR_EQUAL, IN, LESS, LESS_OR_EQUAL, LIST, MAP, MULTIPLY,
    REMAINDER, SLICE, STORE, TUPLE, UNEQUAL,
};

/// A compiled template; borrows its source.
pub(super) struct Program<'s> {
    pub(super) instructions: Instructions<'s>,
    pub(super) blocks: BTreeMap<&'s str, Instructions<'s>>,
}

/// Most macros in a template. They can hold on to each other, and are dropped one inside the other.
const MAX_MACROS: usize = 1000;

/// Most tokens between `{{` and `}}`, or `{%` and `%}`; published templates stay below 200.
const MAX_TAG_TOKENS: usize = 2000;

/// Most `elif` in a template; they can be one chain.
const MAX_BRANCHES: usize = 500;

impl<'s> Program<'s> {
    /// Compiles `source`; the error has a line.
    pub(super) fn new(source: &'s str, syntax: SyntaxConfig) -> Result<Program<'s>, Error> {
        check_tags(source, &syntax)?;
        let tree: ast::Stmt<'s> = parse(source, super::NAME, syntax)?;
        let mut generator = CodeGenerator::new(super::NAME, source);
        generator.compile_stmt(&tree);
        let (instructions, blocks) = generator.finish();
        let mut macros = 0;
        Ok(Program {
            instructions: rewrite(&instructions, &mut macros)?,
            blocks: blocks
                .iter()
                .map(|(&name, block)| Ok((name, rewrite(block, &mut macros)?)))
                .collect::<Result<_, Error>>()?,
        })
    }
}

/// The parser reads chains (`a.b.c`, `1 + 1 + 1`) in a loop but makes a tree as deep as they are long, which is
/// compiled and dropped by recursion.
fn check_tags(source: &str, syntax: &SyntaxConfig) -> Result<(), Error> {
    let (mut in_tag, mut branches) = (0, 0);
    for token in tokenize(source, false, syntax.clone()) {
        let token = token?.0;
        in_tag = match token {
            Token::TemplateData(_) | Token::BlockStart | Token::VariableStart => 0,
            _ => in_tag + 1,
        };
        if in_tag > MAX_TAG_TOKENS {
            let reason = format!("a tag with more than {MAX_TAG_TOKENS} names, values and operators");
            return Err(Error::new(ErrorKind::SyntaxError, reason));
        }
        branches += usize::from(in_tag == 1 && matches!(token, Token::Ident("elif")));
        if branches > MAX_BRANCHES {
            let reason = format!("more than {MAX_BRANCHES} times `elif`");
            return Err(Error::new(ErrorKind::SyntaxError, reason));
        }
    }
    Ok(())
}

/// Replaces what needs a limit or another meaning by a call, and moves jumps along.
fn rewrite<'s>(old: &Instructions<'s>, macros: &mut usize) -> Result<Instructions<'s>, Error> {
    let mut replacements = Vec::new();
    let mut places = Vec::new();
    let mut place = 0u32;
    while let Some(instruction) = old.get(replacements.len() as u32) {
        let replacement = replace(instruction)?;
        *macros += usize::from(matches!(instruction, Instruction::BuildMacro(..)));
        places.push(place);
        place += replacement.len() as u32;
        replacements.push(replacement);
    }
    places.push(place);
    if *macros > MAX_MACROS {
        return Err(Error::new(ErrorKind::SyntaxError, format!("more than {MAX_MACROS} macros")));
    }
    let mut new = Instructions::new(old.name(), old.source());
    for (index, replacement) in replacements.into_iter().enumerate() {
        // Lines beyond 65,535 all count as the last.
        let line = old.get_line(index as u32).map_or(0, |line| u16::try_from(line).unwrap_or(u16::MAX));
        for mut instruction in replacement {
            if let Instruction::Jump(target)
            | Instruction::JumpIfFalse(target)
            | Instruction::JumpIfFalseOrPop(target)
            | Instruction::JumpIfTrueOrPop(target)
            | Instruction::Iterate(target)
            | Instruction::BuildMacro(_, target, _) = &mut instruction
            {
                *target = places[*target as usize];
            }
            new.add_with_line(instruction, line);
        }
    }
    Ok(new)
}

fn replace<'s>(instruction: &Instruction<'s>) -> Result<Vec<Instruction<'s>>, Error> {
    let call = |name, n: usize| {
        let n = u16::try_from(n).map_err(|_| {
            Error::new(ErrorKind::SyntaxError, format!("a list or map with more than {} items", u16::MAX))
        })?;
        Ok::<_, Error>(Instruction::CallFunction(name, Some(n)))
    };
    Ok(match instruction {
        Instruction::Add => vec![call(ADD, 2)?],
        Instruction::Mul => vec![call(MULTIPLY, 2)?],
        Instruction::Rem => vec![call(REMAINDER, 2)?],
        Instruction::StringConcat => vec![call(CONCAT, 2)?],
        Instruction::Slice => vec![call(SLICE, 4)?],
        Instruction::BuildList(Some(n)) => vec![call(LIST, *n)?],
        Instruction::BuildTuple(Some(n)) => vec![call(TUPLE, *n)?],
        Instruction::BuildMap(n) => vec![call(MAP, 2 * n)?],
        Instruction::Eq => vec![call(EQUAL, 2)?],
        Instruction::Ne => vec![call(UNEQUAL, 2)?],
        Instruction::Lt => vec![call(LESS, 2)?],
        Instruction::Lte => vec![call(LESS_OR_EQUAL, 2)?],
        Instruction::Gt => vec![call(GREATER, 2)?],
        Instruction::Gte => vec![call(GREATER_OR_EQUAL, 2)?],
        Instruction::In => vec![call(IN, 2)?],
        Instruction::StoreLocal(name) => vec![call(STORE, 1)?, Instruction::StoreLocal(name)],
        // The namespace is on top, the value below.
        Instruction::SetAttr(name) => {
            vec![Instruction::Swap, call(STORE, 1)?, Instruction::Swap, Instruction::SetAttr(name)]
        }
        other => vec![other.clone()],
    })
}

/// Runs a program; `root` holds the variables.
pub(super) fn run(
    program: &Program<'_>,
    env: &minijinja::Environment<'static>,
    root: Value,
    limits: operators::Limits,
) -> Result<String, Error> {
    let mut env = env.clone();
    env.set_fuel(Some(limits.fuel));
    operators::register(&mut env, limits);
    let mut output = String::new();
    minijinja::machinery::eval(
        &env,
        &program.instructions,
        root,
        &program.blocks,
        &mut minijinja::machinery::make_string_output(&mut output),
        minijinja::AutoEscape::None,
    )?;
    Ok(output)
}
