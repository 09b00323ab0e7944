//! `esker chat`: a conversation, turn by turn.

mod command;
mod input;
mod message;
mod saved;

use crate::cli::{ChatArgs, set_value, settings};
use crate::conversation::{Conversation, Role};
use crate::failure::{Failure, INTERRUPTED};
use crate::generate::{finish_text, generate, speed};
use crate::model::Loaded;
use crate::output::{Console, Stdout, units};
use crate::statistics::{Statistics, Work};
use command::Command;
use esker_engine::{EngineOptions, Finish, GenerateOptions, GenerationStats, Session};
use esker_text::Tokenizer;
use input::{Input, Turn};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

pub fn chat(args: &ChatArgs, console: &Console) -> Result<ExitCode, Failure> {
    let mut options = args.generation.options().map_err(|e| Failure::from(&e))?;
    let model = Loaded::new(console, args.model.as_deref(), &args.engine, EngineOptions::default())?;
    let tokenizer = model.tokenizer(console)?;
    let conversation = Conversation::new(console, &tokenizer, &args.template)?;
    options.stop.extend(conversation.stop_texts(&tokenizer));
    let mut input = Input::new(!args.no_history)?;
    let session = model.engine.new_session();
    let mut chat = Chat {
        console,
        stdout: console.stdout(),
        model,
        tokenizer,
        session,
        conversation,
        options,
        drawn: 0,
        file: None,
        last: None,
        work: Work::default(),
        from_terminal: input.is_terminal(),
    };
    if let Some(path) = &args.load {
        chat.load(path)?;
        // The command line has the last word.
        if let Some(text) = &args.template.system {
            chat.conversation.set_system(Some(text.clone()));
        }
    }
    if chat.from_terminal {
        console.line(format_args!("{}: /help lists the commands, Ctrl-D leaves", chat.model.name()));
    }
    let code = chat.turns(&mut input)?;
    if args.stats {
        chat.show_statistics();
    }
    Ok(code)
}

/// What follows a turn.
enum Next {
    Continue,
    Exit,
    Interrupted,
}

struct Chat<'a> {
    console: &'a Console,
    stdout: Stdout,
    model: Loaded,
    tokenizer: Arc<Tokenizer>,
    session: Session,
    conversation: Conversation,
    options: GenerateOptions,
    /// Answers so far: each has its own seed, so that the same question can be answered in another way.
    drawn: u64,
    /// Where this conversation was saved or loaded: only this file is written over.
    file: Option<PathBuf>,
    last: Option<(GenerationStats, Finish)>,
    /// Of all answers.
    work: Work,
    from_terminal: bool,
}

impl Chat<'_> {
    /// Takes turns until there are no more.
    fn turns(&mut self, input: &mut Input) -> Result<ExitCode, Failure> {
        loop {
            let turn = match input.next()? {
                Turn::End => return Ok(ExitCode::SUCCESS),
                Turn::Interrupted => {
                    self.console.line("Ctrl-D or /exit leaves");
                    continue;
                }
                Turn::Text(text) => self.turn(&text),
            };
            match turn {
                Ok(Next::Continue) => {}
                Ok(Next::Exit) => return Ok(ExitCode::SUCCESS),
                Ok(Next::Interrupted) => return Ok(ExitCode::from(INTERRUPTED)),
                // A person can try something else; a script had better stop.
                Err(failure) if self.from_terminal && !failure.is_broken_pipe() => {
                    self.console.failure(&failure);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn turn(&mut self, text: &str) -> Result<Next, Failure> {
        if text.trim().is_empty() {
            return Ok(Next::Continue);
        }
        match command::parse(text) {
            Some(Ok(command)) => self.command(command),
            Some(Err(problem)) => Err(Failure::new(problem)),
            None => {
                let message = message::unwrap(text);
                let message = message.strip_prefix("//").map_or(message.clone(), |rest| format!("/{rest}"));
                self.conversation.say(Role::User, message);
                self.answer()
            }
        }
    }

    /// Answers the last message, or takes it back if that fails.
    fn answer(&mut self) -> Result<Next, Failure> {
        let answered = self.try_answer();
        if answered.is_err() {
            self.conversation.messages.pop();
        }
        answered
    }

    fn try_answer(&mut self) -> Result<Next, Failure> {
        let prompt = self.conversation.prompt(&self.tokenizer)?;
        let mut options = self.options.clone();
        options.sampling.seed = options.sampling.seed.wrapping_add(self.drawn);
        let stdout = &mut self.stdout;
        let answer =
            generate(self.console, &mut self.model, &mut self.session, &prompt.tokens, &options, |piece| {
                stdout.text(piece)
            })?;
        self.drawn += 1;
        let generation = &answer.generation;
        self.last = Some((generation.stats, generation.finish));
        self.work.add(&generation.stats, self.session.tokens().len());
        self.conversation.answered(&self.tokenizer, prompt, &answer.text, &generation.tokens);
        if !answer.text.ends_with('\n') {
            self.stdout.text("\n")?;
        }
        match generation.finish {
            Finish::ContextFull => {
                self.console.warning("the context is full, the answer is not complete; `/clear` begins anew");
            }
            Finish::Cancelled | Finish::MaxTokens => {
                self.console
                    .note(format_args!("{}, the answer is not complete", finish_text(generation.finish)));
            }
            Finish::EndOfText | Finish::StopString => {}
        }
        self.console.detail(speed(&generation.stats));
        Ok(if answer.interrupted && !self.from_terminal { Next::Interrupted } else { Next::Continue })
    }

    fn command(&mut self, command: Command) -> Result<Next, Failure> {
        match command {
            Command::Help => self.console.line(command::help()),
            Command::Clear => self.conversation.clear(),
            Command::System(text) => {
                self.conversation.clear();
                self.conversation.set_system(text);
            }
            Command::Save(path) => self.save(path)?,
            Command::Load(path) => self.load(&path)?,
            Command::Set(None) => {
                let settings = settings(&self.options);
                let width = settings.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
                let lines: Vec<String> =
                    settings.iter().map(|(name, value)| format!("  {name:width$}  {value}")).collect();
                self.console.line(lines.join("\n"));
            }
            Command::Set(Some((name, value))) => {
                set_value(&mut self.options, &name, &value).map_err(Failure::new)?;
                if name == "seed" {
                    self.drawn = 0;
                }
            }
            Command::Regenerate => {
                if !self.conversation.drop_answer() {
                    return Err(Failure::new("there is no answer yet"));
                }
                return self.answer();
            }
            Command::Undo => {
                if !self.conversation.drop_answer() {
                    return Err(Failure::new("there is no answer yet"));
                }
                self.conversation.messages.pop();
            }
            Command::Stats => match &self.last {
                Some((stats, finish)) => {
                    let used = self.session.tokens().len();
                    let room = self.session.capacity();
                    self.console.line(format_args!("{}; {}", speed(stats), finish_text(*finish)));
                    self.console.line(format_args!("context: {used} of {room} tokens"));
                    self.console.line(units::sentence(self.model.engine.memory_note()));
                    self.show_statistics();
                }
                None => return Err(Failure::new("there is no answer yet")),
            },
            Command::Exit => return Ok(Next::Exit),
        }
        Ok(Next::Continue)
    }

    /// Of the whole conversation.
    fn show_statistics(&self) {
        let statistics = Statistics::new(&self.model.engine, self.work);
        self.console.table(&statistics.table(self.console.is_verbose()));
    }

    fn save(&mut self, path: PathBuf) -> Result<(), Failure> {
        if path.exists() && self.file.as_ref() != Some(&path) {
            return Err(Failure::new(format_args!(
                "`{}` exists, and is not this conversation's file",
                path.display()
            )));
        }
        saved::save(&path, &self.conversation.messages)?;
        self.console.line(format_args!("saved {} messages", self.conversation.messages.len()));
        self.file = Some(path);
        Ok(())
    }

    fn load(&mut self, path: &Path) -> Result<(), Failure> {
        let messages = saved::load(path)?;
        self.console.line(format_args!("loaded {} messages", messages.len()));
        self.conversation.replace(messages);
        self.file = Some(path.to_owned());
        Ok(())
    }
}
