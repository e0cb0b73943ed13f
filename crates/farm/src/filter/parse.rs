//! Reads filters: a tokenizer and a parser by recursive descent, with places in what they refuse.
use super::{Filter, MAX_DEPTH, MAX_FILTER_BYTES, MAX_TERMS, Operator, Term};

/// A filter that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the filter cannot be read at character {at}: {why}")]
pub struct BadFilter {
    /// The place, in characters, from 1 on.
    pub at: usize,
    /// What is wrong there, and what was expected.
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    Operator(Operator),
    Word(String),
    Quoted(String),
}

/// Characters of words. All others need quotation marks.
fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '*' | '?' | '/' | '@' | '#' | '+')
}

fn is_keyword(word: &str) -> bool {
    ["and", "or", "not"].iter().any(|keyword| word.eq_ignore_ascii_case(keyword))
}

/// Whether a value needs no quotation marks.
pub(super) fn is_plain_word(value: &str) -> bool {
    !value.is_empty() && value.chars().all(is_word_char) && !is_keyword(value)
}

pub(super) fn parse(text: &str) -> Result<Filter, BadFilter> {
    if text.len() > MAX_FILTER_BYTES {
        let why = format!("it has {} bytes; the limit is {MAX_FILTER_BYTES}", text.len());
        return Err(BadFilter { at: 1, why });
    }
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(Filter::Everything);
    }
    let end = text.chars().count().saturating_add(1);
    let mut parser = Parser { tokens: tokens.into_iter().peekable(), end, terms: 0 };
    let filter = parser.any(0)?;
    match parser.tokens.next() {
        None => Ok(filter),
        Some((at, _)) => Err(BadFilter { at, why: "expected \"and\", \"or\" or the end".to_owned() }),
    }
}

fn tokens(text: &str) -> Result<Vec<(usize, Token)>, BadFilter> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().enumerate().map(|(place, c)| (place.saturating_add(1), c)).peekable();
    while let Some((at, c)) = chars.next() {
        let token = match c {
            c if c.is_whitespace() => continue,
            '(' => Token::Open,
            ')' => Token::Close,
            '"' => Token::Quoted(quoted(at, &mut chars)?),
            '=' | '!' | '<' | '>' | '~' => {
                let mut symbol = c.to_string();
                if c != '=' && c != '~' && chars.next_if(|(_, next)| *next == '=').is_some() {
                    symbol.push('=');
                }
                let known = Operator::ALL.iter().find(|(_, known)| *known == symbol);
                let why = || BadFilter {
                    at,
                    why: "expected \"!=\"; to turn a condition round, write \"not\"".to_owned(),
                };
                Token::Operator(known.ok_or_else(why)?.0)
            }
            c if is_word_char(c) => {
                let mut word = c.to_string();
                while let Some((_, c)) = chars.next_if(|(_, c)| is_word_char(*c)) {
                    word.push(c);
                }
                Token::Word(word)
            }
            other => {
                let why = format!(
                    "{other:?} means nothing here; values with such characters go in quotation marks"
                );
                return Err(BadFilter { at, why });
            }
        };
        tokens.push((at, token));
    }
    Ok(tokens)
}

fn quoted(at: usize, chars: &mut impl Iterator<Item = (usize, char)>) -> Result<String, BadFilter> {
    let mut value = String::new();
    loop {
        let open = || BadFilter { at, why: "the quotation mark that opens here is not closed".to_owned() };
        match chars.next().ok_or_else(open)? {
            (_, '"') => return Ok(value),
            (_, '\\') => value.push(chars.next().ok_or_else(open)?.1),
            (_, c) => value.push(c),
        }
    }
}

struct Parser<I: Iterator<Item = (usize, Token)>> {
    tokens: std::iter::Peekable<I>,
    end: usize,
    terms: usize,
}

impl<I: Iterator<Item = (usize, Token)>> Parser<I> {
    fn any(&mut self, depth: usize) -> Result<Filter, BadFilter> {
        let mut parts = vec![self.all(depth)?];
        while self.keyword("or") {
            parts.push(self.all(depth)?);
        }
        Ok(single(parts, Filter::Any))
    }

    fn all(&mut self, depth: usize) -> Result<Filter, BadFilter> {
        let mut parts = vec![self.not(depth)?];
        while self.keyword("and") {
            parts.push(self.not(depth)?);
        }
        Ok(single(parts, Filter::All))
    }

    fn not(&mut self, depth: usize) -> Result<Filter, BadFilter> {
        let at = self.tokens.peek().map_or(self.end, |(at, _)| *at);
        if depth > MAX_DEPTH {
            return Err(BadFilter { at, why: format!("it is nested more than {MAX_DEPTH} deep") });
        }
        if self.keyword("not") {
            return Ok(Filter::Not(Box::new(self.not(depth.saturating_add(1))?)));
        }
        match self.tokens.next() {
            Some((open, Token::Open)) => {
                let inner = self.any(depth.saturating_add(1))?;
                match self.tokens.next() {
                    Some((_, Token::Close)) => Ok(inner),
                    _ => Err(BadFilter {
                        at: open,
                        why: "the bracket that opens here is not closed".to_owned(),
                    }),
                }
            }
            Some((_, Token::Word(field))) if !is_keyword(&field) => self.term(at, &field),
            _ => Err(BadFilter { at, why: "expected a field, \"not\" or \"(\"".to_owned() }),
        }
    }

    fn term(&mut self, at: usize, field: &str) -> Result<Filter, BadFilter> {
        self.terms = self.terms.saturating_add(1);
        if self.terms > MAX_TERMS {
            return Err(BadFilter { at, why: format!("it has more than {MAX_TERMS} comparisons") });
        }
        let compared = match self.tokens.next_if(|(_, token)| matches!(token, Token::Operator(_))) {
            Some((at, Token::Operator(operator))) => Some((operator, self.value(at)?)),
            _ => None,
        };
        Ok(Filter::Term(Term { field: field.to_ascii_lowercase(), compared }))
    }

    fn value(&mut self, at: usize) -> Result<String, BadFilter> {
        match self.tokens.next() {
            Some((_, Token::Quoted(value))) => Ok(value),
            Some((_, Token::Word(value))) if !is_keyword(&value) => Ok(value),
            _ => Err(BadFilter { at, why: "expected a value behind this".to_owned() }),
        }
    }

    fn keyword(&mut self, keyword: &str) -> bool {
        let is = |token: &(usize, Token)| matches!(&token.1, Token::Word(word) if word.eq_ignore_ascii_case(keyword));
        self.tokens.next_if(is).is_some()
    }
}

fn single(mut parts: Vec<Filter>, several: fn(Vec<Filter>) -> Filter) -> Filter {
    match (parts.pop(), parts.is_empty()) {
        (Some(only), true) => only,
        (last, _) => {
            parts.extend(last);
            several(parts)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_tells_the_place() {
        for (text, at) in [
            ("kind =", 6),
            ("kind = ,", 8),
            ("(kind = a", 1),
            ("name = \"abc", 8),
            ("a and", 6),
            ("a b", 3),
            ("a !b", 3),
            ("= a", 1),
            ("a = and", 3),
            ("()", 2),
            ("a)", 2),
            ("ä = 'x'", 5),
        ] {
            assert_eq!(parse(text).unwrap_err().at, at, "{text}: {}", parse(text).unwrap_err());
        }
    }

    #[test]
    fn filter_above_its_limits_is_refused() {
        assert!(parse(&format!("a = {}", "x".repeat(MAX_FILTER_BYTES))).is_err());
        assert!(parse(&vec!["a"; MAX_TERMS].join(" or ")).is_ok());
        assert!(parse(&vec!["a"; MAX_TERMS + 1].join(" or ")).is_err());
        let nested = |depth| format!("{}a{}", "(".repeat(depth), ")".repeat(depth));
        assert!(parse(&nested(MAX_DEPTH)).is_ok());
        assert!(parse(&nested(MAX_DEPTH + 1)).is_err());
        assert!(parse(&format!("{}a", "not ".repeat(MAX_DEPTH + 1))).is_err());
    }

    #[test]
    fn filters_out_of_mutated_text_never_panic_and_read_back() {
        let seeds = [
            "kind = production and (name ~ \"lab-*\" or not disabled)",
            "a<=1 or b>=\"\\\"x\" and not (c!=d)",
        ];
        let mutator = mutate::Mutator::new(seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect(), 300);
        mutator.run(20_000, |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Ok(filter) = parse(text) {
                assert_eq!(parse(&filter.to_string()), Ok(filter));
            }
        });
    }
}
