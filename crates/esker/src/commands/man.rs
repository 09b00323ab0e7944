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
    let subcommands: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    write_page(directory, "esker", command)?;
    for subcommand in subcommands {
        let name = format!("esker-{}", subcommand.get_name());
        write_page(directory, &name, subcommand.display_name(name.clone()))?;
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
