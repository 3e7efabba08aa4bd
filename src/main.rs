//! The `stratum` executable: everything is in the library, so that tests and a second front end use the same code.

fn main() -> std::process::ExitCode {
    stratum::cli::main()
}
