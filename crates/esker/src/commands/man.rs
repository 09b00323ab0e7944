//! `esker man`: manual pages.

use crate::cli::{Cli, ManArgs};
use crate::failure::Failure;
use crate::output::{Console, OutputFile};
use clap::CommandFactory;
use clap_mangen::Man;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

pub fn man(args: &ManArgs, console: &Console) -> Result<(), Failure> {
    let mut command = Cli::command();
    let Some(directory) = &args.dir else {
        let page = page(command).map_err(Failure::stdout)?;
        return console.stdout().bytes(&page);
    };
    fs::create_dir_all(directory).map_err(|e| Failure::file("make", directory, &e))?;
    // Gives each command its full name and the global options.
    command.build();
    write_pages(directory, "esker", &command)
}

/// The page of a command, and those of its own commands.
fn write_pages(directory: &Path, name: &str, command: &clap::Command) -> Result<(), Failure> {
    write_page(directory, name, command.clone().display_name(name.to_owned()))?;
    for subcommand in command.get_subcommands() {
        write_pages(directory, &format!("{name}-{}", subcommand.get_name()), subcommand)?;
    }
    Ok(())
}

fn write_page(directory: &Path, name: &str, command: clap::Command) -> Result<(), Failure> {
    let path = directory.join(format!("{name}.1"));
    let mut file = OutputFile::create(&path)?;
    let failed = |e: io::Error| Failure::file("write", &path, &e);
    let page = page(command).map_err(failed)?;
    file.write_all(&page).map_err(failed)?;
    file.finish()
}

fn page(command: clap::Command) -> io::Result<Vec<u8>> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page)?;
    Ok(page)
}
