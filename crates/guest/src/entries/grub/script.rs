//! Carries out a script of GRUB as far as it makes a menu.
use std::collections::BTreeMap;

use super::words::{MAX_WORD_BYTES, Piece, Token, tokens};
use crate::entries::{Volume, absolute};
use crate::partitions::PartitionNumber;

/// The most commands that are carried out: menus have some hundreds.
const MAX_COMMANDS: u32 = 20_000;
/// The deepest submenu.
const MAX_DEPTH: usize = 16;
/// The most entries of a menu.
const MAX_ITEMS: usize = 256;
/// The most variables.
const MAX_VARIABLES: usize = 1024;

/// What GRUB 2.12 says of itself, as far as menus ask.
const BUILT_IN: [(&str, &str); 7] = [
    ("feature_menuentry_id", "y"),
    ("feature_menuentry_options", "y"),
    ("feature_platform_search_hint", "y"),
    ("feature_default_font_path", "y"),
    ("feature_timeout_style", "y"),
    ("grub_platform", "pc"),
    ("grub_cpu", "x86_64"),
];

/// A file that a command names.
pub(super) type Place = (PartitionNumber, String);

/// One step of the way through submenus to an entry.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) index: usize,
    pub(super) title: String,
    pub(super) id: Option<String>,
}

/// An entry of the menu.
#[derive(Debug)]
pub(super) struct Item {
    /// The submenus that it stands in, then itself; empty where the script boots without a menu.
    pub(super) path: Vec<Step>,
    pub(super) kernel: Option<Place>,
    pub(super) initrds: Vec<Place>,
    pub(super) options: String,
}

/// What a script leaves behind.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) items: Vec<Item>,
    /// The variable `default`.
    pub(super) default: String,
}

/// Carries out `text`, which lies in `directory` of `volume`, with the variables of the environment block.
pub(super) fn run(
    text: &str,
    volume: &Volume,
    volumes: &[Volume],
    directory: &str,
    saved: Vec<(String, String)>,
) -> Outcome {
    let root = device_name(volume.number);
    let mut variables: BTreeMap<String, String> =
        BUILT_IN.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
    variables.insert("prefix".to_owned(), format!("({root}){directory}"));
    variables.insert("root".to_owned(), root);
    let mut script =
        Script { volumes, variables, saved, items: Vec::new(), in_entry: false, budget: MAX_COMMANDS };
    let tokens = tokens(text);
    script.menu(&tokens, &[]);
    let default = script.variables.remove("default").unwrap_or_default();
    Outcome { items: script.items, default }
}

/// A partition as GRUB names it. Which kind of table it is in matters to no one here.
fn device_name(number: PartitionNumber) -> String {
    if number == PartitionNumber::WHOLE_DISK { "hd0".to_owned() } else { format!("hd0,{}", number.0) }
}

struct Script<'a> {
    volumes: &'a [Volume],
    variables: BTreeMap<String, String>,
    saved: Vec<(String, String)>,
    items: Vec<Item>,
    /// Whether the commands that are carried out are those of an entry.
    in_entry: bool,
    budget: u32,
}

/// A `menuentry` or `submenu`: its words, and what stands between its braces.
struct Defined<'t> {
    words: Vec<String>,
    body: &'t [Token],
}

/// An `if` or a loop that has been begun.
struct Branch {
    /// Whether what is around it is carried out.
    outer: bool,
    /// Whether one of its branches was taken.
    taken: bool,
    /// Whether the commands here are carried out.
    active: bool,
}

impl Script<'_> {
    /// Carries out the commands of the whole script, or of a submenu, then each of its entries: as GRUB does, which looks
    /// into an entry when it is chosen.
    fn menu(&mut self, tokens: &[Token], above: &[Step]) {
        for (index, Defined { words, body }) in self.commands(tokens).into_iter().enumerate() {
            let Some((command, rest)) = words.split_first() else { continue };
            if above.len() >= MAX_DEPTH || self.items.len() >= MAX_ITEMS {
                return;
            }
            let (title, id) = title_and_id(rest);
            let path: Vec<Step> = above.iter().cloned().chain([Step { index, title, id }]).collect();
            let outside = self.variables.clone();
            if command == "submenu" {
                self.menu(body, &path);
            } else {
                self.items.push(Item { path, kernel: None, initrds: Vec::new(), options: String::new() });
                // A menu inside an entry is none.
                self.in_entry = true;
                self.commands(body);
                self.in_entry = false;
            }
            self.variables = outside;
        }
    }

    /// Carries out commands, and gives the entries and submenus that they define.
    fn commands<'t>(&mut self, tokens: &'t [Token]) -> Vec<Defined<'t>> {
        let mut branches: Vec<Branch> = Vec::new();
        let mut defined = Vec::new();
        let mut status = true;
        let mut rest = tokens;
        while let Some((line, after)) = next_command(rest) {
            rest = after;
            let Some(budget) = self.budget.checked_sub(1) else { break };
            self.budget = budget;
            let mut words = self.expand(line);
            let body = matches!(rest.first(), Some(Token::Open)).then(|| {
                let (body, after) = braces(rest);
                rest = after;
                body
            });
            while let Some(keyword) = words.first().and_then(|word| Keyword::of(word)) {
                words.remove(0);
                keyword.apply(&mut branches, status, &mut words);
            }
            if !branches.last().is_none_or(|branch| branch.active) {
                continue;
            }
            match (words.first().map(String::as_str), body) {
                (Some("menuentry" | "submenu"), Some(body)) => defined.push(Defined { words, body }),
                // What a function does is not known here; those of Debian's menu set the screen up.
                (Some("function"), Some(_)) | (None, _) => {}
                _ => status = self.command(&words),
            }
        }
        defined
    }

    /// Puts variables in.
    fn expand(&self, line: &[Token]) -> Vec<String> {
        let word = |token: &Token| {
            let Token::Word(pieces) = token else { return None };
            let mut text = String::new();
            for piece in pieces {
                let piece = match piece {
                    Piece::Text(text) => text,
                    Piece::Variable(name) => self.variables.get(name).map_or("", String::as_str),
                };
                if text.len().saturating_add(piece.len()) <= MAX_WORD_BYTES {
                    text.push_str(piece);
                }
            }
            // A variable that is empty and not in quotes is no word.
            let bare = pieces.iter().all(|piece| matches!(piece, Piece::Variable(_)));
            (!text.is_empty() || !bare).then_some(text)
        };
        line.iter().filter_map(word).collect()
    }

    /// Carries out one command and says whether it succeeded. What does not bear on the menu succeeds.
    fn command(&mut self, words: &[String]) -> bool {
        let Some((command, arguments)) = words.split_first() else { return true };
        match command.as_str() {
            "!" => return !self.command(arguments),
            "[" => return self.test(arguments.strip_suffix(&["]".to_owned()]).unwrap_or(arguments)),
            "test" => return self.test(arguments),
            "false" => return false,
            "set" => self.assign(arguments.first().map_or("", String::as_str)),
            "load_env" => {
                for (key, value) in self.saved.clone() {
                    self.insert(&key, value);
                }
            }
            "search" | "search.fs_uuid" | "search.fs_label" | "search.file" => {
                return self.search(command, arguments);
            }
            "linux" | "linux16" | "linuxefi" => {
                let Some((kernel, options)) = arguments.split_first() else { return false };
                let place = self.place(kernel);
                if let Some(item) = self.item() {
                    item.kernel = place;
                    item.options = options.join(" ");
                }
            }
            "initrd" | "initrd16" | "initrdefi" => {
                let places: Vec<Place> = arguments.iter().filter_map(|path| self.place(path)).collect();
                if let Some(item) = self.item() {
                    item.initrds.extend(places);
                }
            }
            other if is_assignment(other) => self.assign(other),
            _ => {}
        }
        true
    }

    /// What a kernel is loaded for: the entry, or the script itself, which then boots without a menu.
    fn item(&mut self) -> Option<&mut Item> {
        if !self.in_entry && self.items.first().is_none_or(|item| !item.path.is_empty()) {
            let item = Item { path: Vec::new(), kernel: None, initrds: Vec::new(), options: String::new() };
            self.items.insert(0, item);
        }
        if self.in_entry { self.items.last_mut() } else { self.items.first_mut() }
    }

    fn assign(&mut self, text: &str) {
        if let Some((name, value)) = text.split_once('=') {
            self.insert(name, value.to_owned());
        }
    }

    fn insert(&mut self, name: &str, value: String) {
        if self.variables.len() < MAX_VARIABLES || self.variables.contains_key(name) {
            self.variables.insert(name.to_owned(), value);
        }
    }

    /// GRUB manual, "test". What is not known is false.
    fn test(&self, words: &[String]) -> bool {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(or) = words.iter().position(|&word| word == "-o") {
            let (left, right) = words.split_at_checked(or).unwrap_or_default();
            return self.all(left) || self.all(right.get(1..).unwrap_or_default());
        }
        self.all(&words)
    }

    fn all(&self, words: &[&str]) -> bool {
        words.split(|&word| word == "-a").all(|words| self.one(words))
    }

    fn one(&self, words: &[&str]) -> bool {
        let number = |text: &str| text.parse::<i64>().ok();
        match *words {
            ["!", ref rest @ ..] => !self.one(rest),
            [word] => !word.is_empty(),
            ["-n", word] => !word.is_empty(),
            ["-z", word] => word.is_empty(),
            ["-e" | "-f" | "-s", path] => {
                self.volume_and_path(path).is_some_and(|(volume, path)| volume.holds(&path))
            }
            [a, "=" | "==", b] => a == b,
            [a, "!=", b] => a != b,
            [a, "-eq", b] => number(a) == number(b),
            [a, "-ne", b] => number(a) != number(b),
            [a, "-lt", b] => number(a) < number(b),
            [a, "-gt", b] => number(a) > number(b),
            _ => false,
        }
    }

    /// GRUB manual, "search": finds the volume of that UUID or label, or with that file, and names it in a variable.
    fn search(&mut self, command: &str, arguments: &[String]) -> bool {
        let mut variable = "root".to_owned();
        let mut by = match command {
            "search.fs_uuid" => 'u',
            "search.fs_label" => 'l',
            _ => 'f',
        };
        let mut names = Vec::new();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-u" | "--fs-uuid" => by = 'u',
                "-l" | "--label" => by = 'l',
                "-f" | "--file" => by = 'f',
                "-s" | "--set" => {}
                "--hint" | "-h" => drop(words.next()),
                word => match word.strip_prefix("--set=") {
                    Some(name) => variable = name.to_owned(),
                    None if word.starts_with('-') => {}
                    None => names.push(word),
                },
            }
        }
        // `--set root NAME` and `search.fs_uuid NAME root`: two names, of which one is the variable.
        let wanted = match (names.as_slice(), command) {
            ([wanted, name, ..], "search.fs_uuid" | "search.fs_label" | "search.file") => {
                variable = (*name).to_owned();
                *wanted
            }
            ([name, wanted, ..], _) => {
                variable = (*name).to_owned();
                *wanted
            }
            ([wanted], _) => *wanted,
            ([], _) => return false,
        };
        let found = self.volumes.iter().find(|volume| match by {
            'u' => volume.system.uuid().eq_ignore_ascii_case(wanted),
            'l' => volume.system.label() == wanted,
            _ => volume.holds(wanted),
        });
        let Some(number) = found.map(|volume| volume.number) else { return false };
        self.insert(&variable, device_name(number));
        true
    }

    fn place(&self, path: &str) -> Option<Place> {
        let (volume, path) = self.volume_and_path(path)?;
        Some((volume.number, absolute(&path)))
    }

    /// Where a path leads: `(hd0,gpt2)/boot/x`, or `/boot/x` on the volume that `root` names.
    fn volume_and_path(&self, path: &str) -> Option<(&Volume, String)> {
        let (device, path) = match path.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
            Some((device, path)) => (device, path),
            None => (self.variables.get("root")?.as_str(), path),
        };
        // `hd0,gpt2`, `hd0,msdos5`, `hd0,2`: the disk is the only one there is.
        let number = device
            .split_once(',')
            .map_or("0", |(_, part)| part.trim_start_matches(|c: char| c.is_ascii_alphabetic()));
        let number = PartitionNumber(number.parse().ok()?);
        let volume = self.volumes.iter().find(|volume| volume.number == number)?;
        Some((volume, path.to_owned()))
    }
}

/// Words that steer.
#[derive(Clone, Copy)]
enum Keyword {
    If,
    Elif,
    Then,
    Else,
    End,
    For,
}

impl Keyword {
    fn of(word: &str) -> Option<Self> {
        Some(match word {
            "if" | "while" | "until" => Self::If,
            "elif" => Self::Elif,
            "then" | "do" => Self::Then,
            "else" => Self::Else,
            "fi" | "done" => Self::End,
            "for" => Self::For,
            _ => return None,
        })
    }

    /// A loop is gone through once, one over a list not at all.
    fn apply(self, branches: &mut Vec<Branch>, status: bool, words: &mut Vec<String>) {
        let active = branches.last().is_none_or(|branch| branch.active);
        match (self, branches.last_mut()) {
            (Self::If, _) => branches.push(Branch { outer: active, taken: false, active }),
            (Self::For, _) => {
                words.clear();
                branches.push(Branch { outer: false, taken: true, active: false });
            }
            (Self::Elif | Self::Else, Some(branch)) => {
                branch.active = branch.outer && !branch.taken;
                branch.taken |= matches!(self, Self::Else);
            }
            (Self::Then, Some(branch)) => {
                branch.active = branch.active && !branch.taken && status;
                branch.taken |= branch.active;
            }
            (Self::End, _) => drop(branches.pop()),
            (_, None) => {}
        }
    }
}

/// The words up to the end of a command, and what comes behind it: a body in braces stays there.
fn next_command(tokens: &[Token]) -> Option<(&[Token], &[Token])> {
    let mut tokens = tokens;
    while let Some((Token::End | Token::Close, rest)) = tokens.split_first() {
        tokens = rest;
    }
    if let Some(Token::Open) = tokens.first() {
        // A group without a command: its commands count as if they stood there.
        return tokens.get(1..).map(|rest| (&[] as &[Token], rest));
    }
    let end = tokens.iter().position(|token| !matches!(token, Token::Word(_)))?;
    tokens.split_at_checked(end)
}

/// What stands between the brace that `tokens` begins with and the one that belongs to it, and what comes behind.
fn braces(tokens: &[Token]) -> (&[Token], &[Token]) {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate() {
        match token {
            Token::Open => depth = depth.saturating_add(1),
            Token::Close => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            let (body, after) = tokens.split_at_checked(index).unwrap_or_default();
            return (body.get(1..).unwrap_or_default(), after);
        }
    }
    (tokens.get(1..).unwrap_or_default(), &[])
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The title and `--id` of a `menuentry` or `submenu`.
fn title_and_id(words: &[String]) -> (String, Option<String>) {
    let mut title = None;
    let mut id = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--id" => id = words.next().cloned(),
            "--class" | "--users" | "--hotkey" | "--source" => drop(words.next()),
            word => match word.strip_prefix("--id=") {
                Some(name) => id = Some(name.to_owned()),
                None if word.starts_with("--") => {}
                None => title = title.or_else(|| Some(word.to_owned())),
            },
        }
    }
    (title.unwrap_or_default(), id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutate::Mutator;

    fn outcome(text: &str) -> Outcome {
        let saved = vec![("saved_entry".to_owned(), "b".to_owned())];
        let mut script = Script {
            volumes: &[],
            variables: BTreeMap::new(),
            saved,
            items: Vec::new(),
            in_entry: false,
            budget: MAX_COMMANDS,
        };
        script.menu(&tokens(text), &[]);
        let default = script.variables.remove("default").unwrap_or_default();
        Outcome { items: script.items, default }
    }

    #[test]
    fn branches_are_taken_as_their_conditions_say() {
        for (text, want) in [
            (
                "if [ a = b ]; then set default=1; elif [ -n x ]; then set default=2; else set default=3; fi",
                "2",
            ),
            ("if false; then set default=1; else if ! false; then set default=2; fi; fi", "2"),
            ("if false; then if true; then set default=1; else set default=4; fi; fi", ""),
            ("if [ a = a -a b = c -o d = d ]\nthen default=5\nfi", "5"),
            ("while true; do set default=6; done", "6"),
            ("for x in 1 2; do set default=7; done", ""),
            ("load_env; set default=\"${saved_entry}\"", "b"),
            ("function f { set default=8; }; set other=1", ""),
            ("if [ $nothing ]; then set default=9; fi", ""),
        ] {
            assert_eq!(outcome(text).default, want, "{text}");
        }
    }

    #[test]
    fn script_that_boots_by_itself_is_an_entry_before_those_of_its_menu() {
        let outcome = outcome("menuentry a { linux /a }\nlinux /b quiet\ninitrd /c\nboot\n");
        let options: Vec<&str> = outcome.items.iter().map(|item| item.options.as_str()).collect();
        assert_eq!(options, ["quiet", ""]);
        assert!(outcome.items[0].path.is_empty());
    }

    #[test]
    fn menus_in_menus_without_end_are_cut_off() {
        let text = "submenu x { ".repeat(5000);
        assert!(outcome(&text).items.is_empty());
        assert_eq!(outcome(&"menuentry x { linux /a }\n".repeat(1000)).items.len(), MAX_ITEMS);
    }

    #[test]
    fn variables_that_double_do_not_grow_without_end() {
        let text = format!("a=xxxxxxxx\n{}", "a=$a$a\n".repeat(10_000));
        outcome(&text);
    }

    #[test]
    fn damaged_menus_are_carried_out_without_a_panic() {
        let seeds = vec![
            b"if [ x$a = x ]; then set b=\"c\"; else search --set=root --file /k; fi\n".to_vec(),
            b"submenu 'S' --id s { menuentry \"a $b\" --id a { linux ($root)/k ro ${c}\ninitrd /k } }\n"
                .to_vec(),
        ];
        Mutator::new(seeds, 4096).run(3000, |bytes| {
            outcome(&String::from_utf8_lossy(bytes));
        });
    }
}
