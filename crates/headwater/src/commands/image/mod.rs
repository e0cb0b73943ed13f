//! `headwater image`: work on disk images, straight on the files.
use std::path::Path;

use diskimage::chain::Parents;
use diskimage::{Format, Image, OpenOptions};

use super::Answer;
use crate::cli::{ImageArgs, ImageOptions, ImageVerb, Output};

mod check;
mod compact;
mod compare;
mod convert;
mod create;
mod entries;
mod info;
mod map;
mod merge;
mod names;
mod plan;
mod rebase;
mod resize;
mod snapshot;
mod target;
mod work;

/// Runs the command; what it prints.
///
/// # Errors
/// In words for the administrator.
pub async fn run(args: ImageArgs) -> anyhow::Result<Answer> {
    let options = args.options;
    match args.verb {
        ImageVerb::Create(args) => create::run(&args, &options).map(Answer::text),
        ImageVerb::Info(args) => info::run(&args, &options).map(Answer::text),
        ImageVerb::Map(args) => map::run(&args, &options).map(Answer::text),
        ImageVerb::Entries(args) => entries::run(&args, &options).map(Answer::text),
        ImageVerb::Check(args) => check::run(&args, &options),
        ImageVerb::Convert(args) => convert::run(args, options).await.map(Answer::text),
        ImageVerb::Merge(args) => merge::run(args, options).await.map(Answer::text),
        ImageVerb::Compare(args) => compare::run(args, options).await,
        ImageVerb::Compact(args) => compact::run(args, options).await.map(Answer::text),
        ImageVerb::Rebase(args) => rebase::run(args, options).await.map(Answer::text),
        ImageVerb::Resize(args) => resize::run(&args, &options).map(Answer::text),
        ImageVerb::Snapshot(args) => snapshot::run(&args, &options).map(Answer::text),
    }
}

/// How an image is opened.
fn reading(format: Option<Format>, options: &ImageOptions) -> OpenOptions {
    let parents = options.store.clone().map_or_else(Parents::default, Parents::In);
    OpenOptions { format, parents, backing_files: false }
}

/// Opens an image for reading, with its parents.
fn open(path: &Path, format: Option<Format>, options: &ImageOptions) -> anyhow::Result<Image> {
    Ok(Image::open(path, reading(format, options))?)
}

/// What is said of a file that was made or changed: nothing to people, its name to programs.
fn print_done(file: &Path, options: &ImageOptions) -> anyhow::Result<String> {
    let answer = serde_json::json!({ "file": file.display().to_string() });
    print(&answer, options, |_| String::new())
}

/// The answer in the form that was asked for.
fn print<T: serde::Serialize>(
    answer: &T,
    options: &ImageOptions,
    text: impl Fn(&T) -> String,
) -> anyhow::Result<String> {
    match options.output {
        Output::Table => Ok(text(answer)),
        Output::Json => Ok(serde_json::to_string_pretty(answer)? + "\n"),
    }
}
