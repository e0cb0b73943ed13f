//! The Headwater server and its command line.
use std::io::Write;
use std::process::ExitCode;

use headwater::cli::{Cli, Command, DoctorVerb, EXIT_VERDICT_NO, ServeArgs};
use headwater::commands::farm::{Asked, nouns};
use headwater::commands::{Answer, Verdict};
use headwater::config::{Config, DEFAULT_FILE, Problems};
use headwater::{commands, serve};

fn main() -> ExitCode {
    match run(Cli::read()) {
        Ok(answer) => {
            let mut stdout = std::io::stdout().lock();
            let printed = stdout.write_all(answer.text.as_bytes()).and_then(|()| stdout.flush());
            // A reader that has gone (head, less) is no error; a full disk is.
            if let Err(error) = printed
                && error.kind() != std::io::ErrorKind::BrokenPipe
            {
                eprintln!("headwater: the answer cannot be written to standard output: {error}");
                return ExitCode::FAILURE;
            }
            match answer.verdict {
                Verdict::Yes => ExitCode::SUCCESS,
                Verdict::No => ExitCode::from(EXIT_VERDICT_NO),
            }
        }
        // A reader that has gone (head, less) is no error.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<Problems>() {
                // Begins with the file's name already, one line for each problem.
                Some(problems) => eprintln!("{problems}"),
                None => eprintln!("headwater: {error:#}"),
            }
            ExitCode::FAILURE
        }
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn run(cli: Cli) -> anyhow::Result<Answer> {
    match cli.command {
        Command::Farm(args) => noun(Asked::Farm(args)),
        Command::Site(args) => noun(Asked::Plain(&nouns::SITE, args)),
        Command::Server(args) => noun(Asked::Server(args)),
        Command::Store(args) => noun(Asked::Store(args)),
        Command::Vdisk(args) => noun(Asked::Vdisk(args)),
        Command::Version(args) => noun(Asked::Version(args)),
        Command::Collection(args) => noun(Asked::Plain(&nouns::COLLECTION, args)),
        Command::Device(args) => noun(Asked::Device(args)),
        Command::View(args) => noun(Asked::View(args)),
        Command::WriteCache(args) => noun(Asked::WriteCache(args)),
        Command::Task(args) => noun(Asked::Task(args)),
        Command::Lock(args) => noun(Asked::Lock(args)),
        Command::User(args) => noun(Asked::User(args)),
        Command::Token(args) => noun(Asked::Token(args)),
        Command::Secret(args) => noun(Asked::Secret(args)),
        Command::Setting(args) => noun(Asked::Setting(args)),
        Command::Audit(args) => noun(Asked::Audit(args)),
        Command::Serve(args) => serve(&args).map(Answer::text),
        Command::Boots(args) => client(commands::boots::run(args)).map(Answer::text),
        Command::Stats(args) => client(commands::stats::run(args)).map(Answer::text),
        Command::Trace(args) => client(commands::trace::run(args)).map(Answer::text),
        Command::Status(args) => client(commands::status::run(args)).map(Answer::text),
        Command::Image(args) => client(commands::image::run(args)),
        Command::Init(args) => commands::init::run(&args).map(Answer::text),
        Command::Doctor(args) => match &args.verb {
            Some(DoctorVerb::Network(network)) => {
                client(commands::doctor::network::run(network, args.output)).map(Answer::text)
            }
            None => commands::doctor::run(&args),
        },
        Command::Backup(args) => commands::backup::run(&args).map(Answer::text),
        Command::Restore(args) => commands::backup::restore::run(&args).map(Answer::text),
        Command::Media(args) => commands::media::run(&args).map(Answer::text),
        Command::Generate(args) => commands::generate::run(&args).map(Answer::text),
    }
}

fn serve(args: &ServeArgs) -> anyhow::Result<String> {
    if args.print_default_config {
        return Ok(DEFAULT_FILE.to_owned());
    }
    let config = Config::load(&args.config)?;
    if args.check_config {
        serve::check(&config)?;
        return Ok(format!("{}: sound\n", args.config.display()));
    }
    serve::logging::start(&args.log, args.log_format)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(serve::run(config));
    // After a second signal work may still be under way; it must not hold up the end.
    runtime.shutdown_background();
    served.map(|()| String::new())
}

fn noun(asked: Asked) -> anyhow::Result<Answer> {
    client(commands::farm::run(asked)).map(Answer::text)
}

fn client<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(command)
}
