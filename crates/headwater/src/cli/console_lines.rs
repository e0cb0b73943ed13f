//! The commands that the console shows are commands: each is read by this parser, and sets properties that there are.
use std::path::Path;

use clap::Parser as _;

use super::Cli;
use crate::commands::farm::nouns::CHANGEABLE;
use crate::config::{SettingKey, parse};

/// The words of a line, as a shell takes them apart: of quotation marks, the console writes single ones alone.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted, mut chars) = (Vec::new(), None::<String>, false, line.chars());
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            '\\' if !quoted => word.get_or_insert_default().extend(chars.next()),
            ' ' if !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    assert!(!quoted, "{line}");
    words.extend(word);
    words
}

#[test]
fn every_command_that_the_console_shows_is_understood() {
    let lines = web::every_command();
    assert!(lines.len() > 40, "{lines:?}");
    let settings = SettingKey::all(&parse("", Path::new("headwater.toml")).unwrap());
    for line in lines {
        let words = words(&line);
        if let Err(error) = Cli::try_parse_from(&words) {
            panic!("{line}: {error}");
        }
        let noun = CHANGEABLE.iter().find(|noun| words.get(1).is_some_and(|word| word == noun.word));
        let sets = words.get(2).is_some_and(|verb| ["create", "set", "blank"].contains(&verb.as_str()));
        for (key, _) in words.iter().skip(3).filter_map(|word| word.split_once('=')).filter(|_| sets) {
            let is_setting = words[1] == "setting" && settings.iter().any(|setting| setting.name() == key);
            let known = is_setting || noun.is_some_and(|noun| noun.field(key).is_some());
            assert!(known, "{line}: there is no property {key}");
        }
    }
}

#[test]
fn words_are_taken_apart_as_a_shell_does() {
    assert_eq!(words(r"a 'b c' d=e 'it'\''s' ''"), ["a", "b c", "d=e", "it's", ""]);
}
