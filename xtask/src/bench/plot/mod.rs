//! `bench plot`: pictures and tables of archives.
//!
//! Takes archives into a folder, then draws all that lie there: pictures beside them, tables in the document of the
//! folder's name (`docs/performance.md` for `docs/performance`), between markers. The document's other text is left as it
//! is. What comes out depends on the archives alone, so a test can hold the document to them.

mod beside;
mod document;
mod svg;
mod tables;

use super::growth::{self, GrowthArchive};
use super::kernels::{self, KernelsArchive};
use super::stream::{self, StreamArchive};
use crate::peer::{archive as speed, summary};
use std::path::{Path, PathBuf};

/// Arguments of `bench plot`.
#[derive(clap::Args)]
pub(crate) struct PlotArguments {
    /// Archives to be added to those that are in the folder.
    #[arg(value_name = "FILE")]
    archives: Vec<PathBuf>,
    /// The folder for archives and pictures; the document lies beside it.
    #[arg(long, value_name = "FOLDER", default_value = "docs/performance")]
    out: PathBuf,
}

/// There is no picture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PlotError {
    /// A file.
    #[error("cannot {what} `{}`", path.display())]
    File { what: &'static str, path: PathBuf, source: std::io::Error },
    /// No JSON, or not of its format.
    #[error("`{}` is no archive", path.display())]
    Contents { path: PathBuf, source: serde_json::Error },
    /// A format that is not known.
    #[error("`{}` has format `{found}`, expected one of {}", path.display(), FORMATS.join(", "))]
    Format { path: PathBuf, found: String },
    /// The summary is not that of the raw part.
    #[error("`{}`: the summary inside is not what the raw part gives", path.display())]
    Summary { path: PathBuf },
    /// Two archives of one name.
    #[error("`{}` is there already with other contents: archives are never replaced", path.display())]
    Exists { path: PathBuf },
    /// It tells where files lie on some machine.
    #[error("`{}` names folders in its command line (`{argument}`): not to be published, measure again", path.display())]
    Folders { path: PathBuf, argument: String },
    /// The document.
    #[error("`{}` has no lines `{begin}` and `{end}`, in this order, for the table between them", path.display())]
    Markers { path: PathBuf, begin: String, end: String },
}

const FORMATS: [&str; 5] = [speed::FORMAT, speed::FORMAT_1, stream::FORMAT, growth::FORMAT, kernels::FORMAT];

/// An archive and its file's name.
struct Named<T> {
    /// Of the folder that it is in.
    folder: String,
    file: String,
    archive: T,
}

/// All archives of a folder, by kind and name.
#[derive(Default)]
struct Archives {
    speed: Vec<Named<speed::Archive>>,
    stream: Vec<Named<StreamArchive>>,
    growth: Vec<Named<GrowthArchive>>,
    kernels: Vec<Named<KernelsArchive>>,
}

/// What comes out: files with their names, and tables with those of their markers.
struct Drawn {
    pictures: Vec<(&'static str, String)>,
    tables: Vec<(&'static str, String)>,
}

/// Takes archives in, draws, writes.
///
/// # Errors
/// If a file is no archive, contradicts itself or is not fit to be published, or the document has no place for a table.
pub(crate) fn run(arguments: &PlotArguments) -> Result<(), PlotError> {
    let out = &arguments.out;
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source| PlotError::File { what, path, source }
    };
    std::fs::create_dir_all(out).map_err(failed("make", out))?;
    for path in &arguments.archives {
        let text = std::fs::read(path).map_err(failed("read", path))?;
        Archives::default().add(path, &text)?;
        let to = out.join(path.file_name().unwrap_or_default());
        match std::fs::read(&to) {
            Ok(there) if there == text => {}
            Ok(_) => return Err(PlotError::Exists { path: to }),
            Err(_) => std::fs::write(&to, &text).map_err(failed("write", &to))?,
        }
    }
    let drawn = Archives::of_folder(out)?.draw();
    for (name, picture) in &drawn.pictures {
        let path = out.join(name);
        std::fs::write(&path, picture).map_err(failed("write", &path))?;
    }
    let document = out.with_extension("md");
    let before = match std::fs::read_to_string(&document) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => document::skeleton(out),
        Err(e) => return Err(failed("read", &document)(e)),
    };
    let after = document::filled(&before, &drawn.tables, &document)?;
    std::fs::write(&document, after).map_err(failed("write", &document))?;
    println!("{} pictures and {} tables: {}", drawn.pictures.len(), drawn.tables.len(), document.display());
    Ok(())
}

impl Archives {
    fn of_folder(folder: &Path) -> Result<Archives, PlotError> {
        let failed = |source| PlotError::File { what: "read", path: folder.to_owned(), source };
        let entries = std::fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let mut paths: Vec<PathBuf> = entries.map_err(failed)?.into_iter().map(|e| e.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "json"));
        paths.sort();
        let mut archives = Archives::default();
        for path in paths {
            let text = std::fs::read(&path).map_err(|source| PlotError::File {
                what: "read",
                path: path.clone(),
                source,
            })?;
            archives.add(&path, &text)?;
        }
        Ok(archives)
    }

    fn add(&mut self, path: &Path, text: &[u8]) -> Result<(), PlotError> {
        #[derive(serde::Deserialize)]
        struct Format {
            format: String,
        }
        fn parsed<T: serde::de::DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T, PlotError> {
            serde_json::from_slice(text)
                .map_err(|source| PlotError::Contents { path: path.to_owned(), source })
        }
        let folder =
            path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy().into_owned();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Format { format } = parsed(path, text)?;
        let (command, is_right) = match format.as_str() {
            speed::FORMAT | speed::FORMAT_1 => {
                let archive: speed::Archive = parsed(path, text)?;
                let is_right = summary::summarize(&archive.raw) == archive.summary;
                let command = archive.raw.command.clone();
                self.speed.push(Named { folder, file, archive });
                (command, is_right)
            }
            stream::FORMAT => {
                let archive: StreamArchive = parsed(path, text)?;
                let is_right = stream::summarize(&archive.raw) == archive.summary;
                let command = archive.run.command.clone();
                self.stream.push(Named { folder, file, archive });
                (command, is_right)
            }
            growth::FORMAT => {
                let archive: GrowthArchive = parsed(path, text)?;
                let is_right = growth::summarize(&archive.raw) == archive.summary;
                let command = archive.run.command.clone();
                self.growth.push(Named { folder, file, archive });
                (command, is_right)
            }
            kernels::FORMAT => {
                let archive: KernelsArchive = parsed(path, text)?;
                let is_right = kernels::summarize(&archive.raw) == archive.summary;
                let command = archive.run.command.clone();
                self.kernels.push(Named { folder, file, archive });
                (command, is_right)
            }
            _ => return Err(PlotError::Format { path: path.to_owned(), found: format }),
        };
        if let Some(argument) = command.into_iter().find(|argument| argument.contains(['/', '\\'])) {
            return Err(PlotError::Folders { path: path.to_owned(), argument });
        }
        if is_right { Ok(()) } else { Err(PlotError::Summary { path: path.to_owned() }) }
    }

    /// Pictures of what there is, and all tables, those of what there is none of saying so.
    fn draw(&self) -> Drawn {
        let pictures = [
            ("speed.svg", beside::picture(&self.speed)),
            ("stream.svg", tables::stream_picture(&self.stream)),
            ("growth-decode.svg", tables::decode_picture(&self.growth)),
            ("growth-prefill.svg", tables::prefill_picture(&self.growth)),
            ("kernels.svg", tables::kernels_picture(&self.kernels)),
        ];
        let tables = vec![
            ("speed", beside::speed(&self.speed)),
            ("streamed", beside::streamed(&self.speed)),
            ("memory", beside::memory(&self.speed)),
            ("stream", tables::stream(&self.stream)),
            ("growth", tables::growth(&self.growth)),
            ("kernels", tables::products(&self.kernels)),
            ("operations", tables::operations(&self.kernels)),
            ("archives", tables::archives(self)),
        ];
        let pictures = pictures.into_iter().filter_map(|(name, picture)| Some((name, picture?))).collect();
        Drawn { pictures, tables }
    }
}

#[cfg(test)]
mod tests;
