//! The words of GRUB's script language: quotes, variables, comments (GRUB manual, "Writing full configuration files directly").

/// The longest text of one word, after variables were put in.
pub(super) const MAX_WORD_BYTES: usize = 64 << 10;

/// A piece of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Variable(String),
}

/// What a script is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(Vec<Piece>),
    /// The end of a line, or `;`.
    End,
    Open,
    Close,
}

/// Cuts a script into tokens. Whatever is not closed ends with the text.
pub(super) fn tokens(text: &str) -> Vec<Token> {
    let mut reader = Reader { rest: text.chars().peekable(), tokens: Vec::new() };
    while let Some(c) = reader.rest.next() {
        match c {
            '\n' | ';' => reader.tokens.push(Token::End),
            '\\' if reader.rest.next_if_eq(&'\n').is_some() => {}
            '#' => while reader.rest.next_if(|&c| c != '\n').is_some() {},
            c if c.is_whitespace() => {}
            c => reader.word(c),
        }
    }
    reader.tokens.push(Token::End);
    reader.tokens
}

struct Reader<'a> {
    rest: std::iter::Peekable<std::str::Chars<'a>>,
    tokens: Vec<Token>,
}

impl Reader<'_> {
    /// A word that begins with `first`.
    fn word(&mut self, first: char) {
        let mut pieces = Vec::new();
        let mut next = Some(first);
        while let Some(c) = next {
            match c {
                '\'' => {
                    let mut text = String::new();
                    while let Some(c) = self.rest.next().filter(|&c| c != '\'') {
                        text.push(c);
                    }
                    pieces.push(Piece::Text(text));
                }
                '"' => self.quoted(&mut pieces),
                '$' => pieces.push(self.variable()),
                '\\' => match self.rest.next() {
                    Some('\n') | None => {}
                    Some(c) => push(&mut pieces, c),
                },
                c => push(&mut pieces, c),
            }
            next = self.rest.next_if(|&c| !c.is_whitespace() && c != ';');
        }
        self.tokens.push(match pieces.as_slice() {
            [Piece::Text(text)] if text == "{" && first == '{' => Token::Open,
            [Piece::Text(text)] if text == "}" && first == '}' => Token::Close,
            _ => Token::Word(pieces),
        });
    }

    /// What stands between double quotes: variables are put in, a backslash quotes `$`, `"` and itself.
    fn quoted(&mut self, pieces: &mut Vec<Piece>) {
        pieces.push(Piece::Text(String::new()));
        while let Some(c) = self.rest.next().filter(|&c| c != '"') {
            match c {
                '$' => pieces.push(self.variable()),
                '\\' => match self.rest.next_if(|c| "$\"\\\n".contains(*c)) {
                    Some('\n') => {}
                    Some(c) => push(pieces, c),
                    None => push(pieces, '\\'),
                },
                c => push(pieces, c),
            }
        }
    }

    /// The name behind a `$`, in braces or bare.
    fn variable(&mut self) -> Piece {
        let braces = self.rest.next_if_eq(&'{').is_some();
        let mut name = String::new();
        let part = |c: &char| {
            if braces { *c != '}' && *c != '\n' } else { c.is_ascii_alphanumeric() || "_?@*#".contains(*c) }
        };
        while let Some(c) = self.rest.next_if(part) {
            name.push(c);
        }
        if braces {
            self.rest.next_if_eq(&'}');
        }
        if name.is_empty() && !braces { Piece::Text("$".to_owned()) } else { Piece::Variable(name) }
    }
}

fn push(pieces: &mut Vec<Piece>, c: char) {
    match pieces.last_mut() {
        Some(Piece::Text(text)) => text.push(c),
        _ => pieces.push(Piece::Text(c.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Piece {
        Piece::Text(text.to_owned())
    }

    #[test]
    fn quotes_variables_and_comments_are_read_as_grub_does() {
        let variable = |name: &str| Piece::Variable(name.to_owned());
        assert_eq!(
            tokens("set a='b c'\"$d\"e # no\nx \\\n y;{ }"),
            [
                Token::Word(vec![text("set")]),
                Token::Word(vec![text("a="), text("b c"), text(""), variable("d"), text("e")]),
                Token::End,
                Token::Word(vec![text("x")]),
                Token::Word(vec![text("y")]),
                Token::End,
                Token::Open,
                Token::Close,
                Token::End,
            ]
        );
        assert_eq!(
            tokens("${a}b\"\\$\""),
            [Token::Word(vec![variable("a"), text("b"), text("$")]), Token::End]
        );
    }
}
