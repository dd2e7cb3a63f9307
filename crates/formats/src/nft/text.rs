//! The text form.

use std::iter::Peekable;

use sexton_core::model::{NftChain, NftElement, NftFamily, NftRule, NftSet, NftState, NftValue, Problem};

use super::{
    family,
    lex::{Kind, Lexer, Token},
    rule,
    value::{self, apply_timeout, milliseconds, type_of},
};
use crate::problems::Problems;

/// Reads what `nft list ruleset` (or `nft list table`) prints, with or without handles.
///
/// What cannot be read is a problem at its line and is left out. Where the text ends inside a table, what came before
/// the cut is kept.
pub fn read_text(path: &str, text: &str) -> (NftState, Vec<Problem>) {
    let mut parser = Parser {
        text,
        tokens: Lexer::new(text).peekable(),
        line: 1,
        state: NftState::default(),
        problems: Problems::new(path),
    };
    if parser.ruleset().is_none() {
        let lines = text.lines().count().max(1);
        parser
            .problems
            .push(lines, "the ruleset is cut off: a block is not closed".to_owned());
    }
    (parser.state, parser.problems.finish())
}

/// The names before an opening brace, and the handle after it.
type Head<'t> = (Vec<&'t str>, Option<u64>);

struct Parser<'t, 'p> {
    text: &'t str,
    tokens: Peekable<Lexer<'t>>,
    line: usize,
    state: NftState,
    problems: Problems<'p>,
}

/// The end of the text inside of a block is `None` everywhere below.
impl<'t> Parser<'t, '_> {
    fn next(&mut self) -> Option<Token<'t>> {
        let token = self.tokens.next()?;
        self.line = token.line;
        Some(token)
    }

    fn ruleset(&mut self) -> Option<()> {
        while let Some(token) = self.next() {
            match token.kind {
                Kind::Newline | Kind::Semicolon | Kind::Handle(_) => {}
                Kind::Word("table") => self.table()?,
                _ => {
                    let what = self.rest_of_line(token);
                    self.problems
                        .push(token.line, format!("expected a table, found {what:?}"));
                }
            }
        }
        Some(())
    }

    /// The names before an opening brace, and the handle after it; an error for anything else.
    fn names(&mut self) -> Option<Result<Head<'t>, Token<'t>>> {
        let mut names = Vec::new();
        loop {
            let token = self.next()?;
            match token.kind {
                Kind::Word(name) | Kind::Quoted(name) => names.push(name),
                Kind::Open => break,
                _ => return Some(Err(token)),
            }
        }
        let mut handle = None;
        if let Some(Token {
            kind: Kind::Handle(number),
            ..
        }) = self.tokens.peek()
        {
            handle = Some(*number);
            self.next()?;
        }
        Some(Ok((names, handle)))
    }

    fn table(&mut self) -> Option<()> {
        let line = self.line;
        let head = self.names()?;
        let (family, name) = match head.as_ref().map(|(names, _)| &names[..]) {
            Ok([name]) => (NftFamily::Ip, *name),
            Ok([word, name]) => match family(word) {
                Some(family) => (family, *name),
                None => {
                    self.problems
                        .push(line, format!("a table of an unknown family: {word:?}"));
                    return self.skip_block();
                }
            },
            Ok(_) => {
                self.problems
                    .push(line, "expected a table's family and name".to_owned());
                return self.skip_block();
            }
            Err(_) => {
                self.problems.push(line, "expected a table's block".to_owned());
                return Some(());
            }
        };
        self.state.tables.push((family, name.to_owned()));
        loop {
            let token = self.next()?;
            match token.kind {
                Kind::Close => return Some(()),
                Kind::Word(kind @ ("set" | "map" | "meter")) => self.set(family, name, kind == "map")?,
                Kind::Word("chain") => self.chain(family, name)?,
                Kind::Newline | Kind::Semicolon | Kind::Handle(_) => {}
                // comment, flags, counter, quota, limit, ct helper, flowtable, synproxy, secmark, ...
                _ => self.skip_statement()?,
            }
        }
    }

    fn set(&mut self, family: NftFamily, table: &str, is_map: bool) -> Option<()> {
        let line = self.line;
        let name = match self.names()? {
            Ok((names, _)) => names.last().copied().unwrap_or_default(),
            Err(_) => {
                self.problems
                    .push(line, "expected the block of a set or map".to_owned());
                return Some(());
            }
        };
        let mut set = NftSet {
            family,
            table: table.to_owned(),
            name: name.to_owned(),
            is_map,
            key_type: String::new(),
            data_type: None,
            elements: Vec::new(),
        };
        let mut timeout = None;
        let whole = self.set_body(&mut set, &mut timeout);
        apply_timeout(&mut set.elements, timeout);
        self.state.sets.push(set);
        whole
    }

    fn set_body(&mut self, set: &mut NftSet, timeout: &mut Option<u64>) -> Option<()> {
        loop {
            let token = self.next()?;
            match token.kind {
                Kind::Close => return Some(()),
                Kind::Newline | Kind::Semicolon | Kind::Handle(_) => {}
                Kind::Word(word @ ("type" | "typeof")) => {
                    let text = self.words()?.join(" ");
                    let (key, data) = match text.split_once(" : ") {
                        Some((key, data)) => (key, Some(data.strip_prefix("interval ").unwrap_or(data))),
                        None => (text.as_str(), None),
                    };
                    let name = if word == "type" { str::to_owned } else { type_of };
                    set.key_type = name(key);
                    set.data_type = data.map(name);
                }
                Kind::Word("timeout") => {
                    *timeout = self.words()?.first().and_then(|text| milliseconds(text));
                }
                Kind::Word("elements") => {
                    match self.names()? {
                        Ok(_) => self.elements(set)?,
                        Err(_) => self
                            .problems
                            .push(token.line, "expected elements in braces".to_owned()),
                    };
                }
                _ => self.skip_statement()?,
            }
        }
    }

    /// Elements up to the closing brace. The last one before a cut may be half of one and is left out.
    fn elements(&mut self, set: &mut NftSet) -> Option<()> {
        let keys = value::Kind::parts(&set.key_type);
        let data = set
            .data_type
            .as_deref()
            .map(value::Kind::parts)
            .unwrap_or_default();
        let mut tokens: Vec<Token<'t>> = Vec::new();
        let mut depth = 0_usize;
        loop {
            let token = self.next()?;
            let ends = match token.kind {
                Kind::Open => {
                    depth += 1;
                    false
                }
                Kind::Close if depth > 0 => {
                    depth -= 1;
                    false
                }
                Kind::Close => true,
                Kind::Comma => depth == 0,
                _ => false,
            };
            if !ends {
                if token.kind != Kind::Newline {
                    tokens.push(token);
                }
                continue;
            }
            if let Some(first) = tokens.first() {
                match element(&tokens, &keys, &data, set.is_map) {
                    Ok(element) => set.elements.push(element),
                    Err(what) => self.problems.push(first.line, what),
                }
                tokens.clear();
            }
            if token.kind == Kind::Close {
                return Some(());
            }
        }
    }

    fn chain(&mut self, family: NftFamily, table: &str) -> Option<()> {
        let line = self.line;
        let (name, handle) = match self.names()? {
            Ok((names, handle)) => (names.last().copied().unwrap_or_default(), handle),
            Err(_) => {
                self.problems.push(line, "expected a chain's block".to_owned());
                return Some(());
            }
        };
        let at = self.state.chains.len();
        self.state.chains.push(NftChain {
            family,
            table: table.to_owned(),
            name: name.to_owned(),
            hook: None,
            device: None,
            handle,
        });
        loop {
            let token = self.next()?;
            match token.kind {
                Kind::Close => return Some(()),
                Kind::Newline | Kind::Semicolon | Kind::Handle(_) => {}
                Kind::Word("type") => {
                    let (hook, device) = self.base()?;
                    if let Some(chain) = self.state.chains.get_mut(at) {
                        (chain.hook, chain.device) = (hook, device);
                    }
                }
                Kind::Word("comment" | "policy") => self.skip_statement()?,
                _ => {
                    if self.rule(family, table, name, token)? {
                        return Some(());
                    }
                }
            }
        }
    }

    /// `filter hook ingress device "eth0" priority 0; policy accept;`
    fn base(&mut self) -> Option<(Option<String>, Option<String>)> {
        let words = self.words()?;
        let after = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            words.get(at + 1).map(|word| (*word).to_owned())
        };
        let devices = words.iter().position(|word| *word == "devices").map(|at| {
            let listed = words.iter().skip(at + 2).take_while(|word| **word != "priority");
            listed.copied().collect::<Vec<_>>().join(",")
        });
        Some((after("hook"), after("device").or(devices)))
    }

    /// A rule, up to the end of its line. True if the chain ended with it.
    fn rule(&mut self, family: NftFamily, table: &str, chain: &str, first: Token<'t>) -> Option<bool> {
        let mut tokens = vec![first];
        let mut depth = usize::from(first.kind == Kind::Open);
        let mut handle = None;
        let ended = loop {
            let token = self.next()?;
            match token.kind {
                Kind::Open => depth += 1,
                Kind::Close if depth > 0 => depth -= 1,
                Kind::Close => break true,
                Kind::Handle(number) => {
                    handle = Some(number);
                    continue;
                }
                Kind::Newline if depth == 0 => break false,
                Kind::Newline => continue,
                _ => {}
            }
            tokens.push(token);
        };
        let end = tokens.last().map_or(first.end, |last| last.end);
        let mut text = self.text.get(first.start..end).unwrap_or_default().to_owned();
        if text.contains('\n') {
            text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        }
        let mut rule = NftRule::bare(family, table, chain, text);
        rule::fill(&mut rule, &tokens);
        rule.handle = handle;
        self.state.rules.push(rule);
        Some(ended)
    }

    /// The words up to the end of the line; the end itself is left. Braces and commas are left out.
    fn words(&mut self) -> Option<Vec<&'t str>> {
        let mut words = Vec::new();
        let mut depth = 0_usize;
        loop {
            match self.tokens.peek()?.kind {
                Kind::Newline | Kind::Semicolon | Kind::Close if depth == 0 => return Some(words),
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                _ => {}
            }
            words.extend(self.next()?.text());
        }
    }

    /// A statement that is not kept, with the blocks in it.
    fn skip_statement(&mut self) -> Option<()> {
        self.words().map(|_| ())
    }

    /// A block of which the opening brace was read.
    fn skip_block(&mut self) -> Option<()> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.next()?.kind {
                Kind::Open => depth += 1,
                Kind::Close => depth -= 1,
                _ => {}
            }
        }
        Some(())
    }

    /// The line that begins with this token, for a message; it is skipped.
    fn rest_of_line(&mut self, first: Token<'t>) -> String {
        while self.tokens.peek().is_some_and(|t| t.kind != Kind::Newline) {
            self.next();
        }
        let line = self.text.get(first.start..).unwrap_or_default();
        line.lines().next().unwrap_or_default().chars().take(60).collect()
    }
}

/// `10.0.0.1 . 80 timeout 1m expires 59s comment "text" : 10.1.0.1 . 8080`
fn element(
    tokens: &[Token<'_>],
    keys: &[value::Kind],
    data: &[value::Kind],
    is_map: bool,
) -> Result<NftElement, String> {
    let colon = tokens.iter().position(|t| t.is(":"));
    let (left, right) = match colon {
        Some(at) => (
            tokens.get(..at).unwrap_or_default(),
            tokens.get(at + 1..).unwrap_or_default(),
        ),
        None => (tokens, &[][..]),
    };
    if is_map && right.is_empty() {
        return Err(format!("expected a key and its data, found {:?}", joined(tokens)));
    }
    let options = left
        .iter()
        .skip(1)
        .position(|t| {
            matches!(
                t.kind,
                Kind::Word(
                    "timeout" | "expires" | "comment" | "counter" | "limit" | "quota" | "connlimit" | "last"
                )
            )
        })
        .map_or(left.len(), |at| at + 1);
    let mut element = NftElement {
        key: values(left.get(..options).unwrap_or_default(), keys),
        data: values(right, data),
        comment: None,
        timeout_ms: None,
        expires_ms: None,
    };
    let mut rest = left.get(options..).unwrap_or_default();
    while let [option, tail @ ..] = rest {
        rest = tail;
        let Some(text) = tail.first().and_then(Token::text) else {
            continue;
        };
        let time = || milliseconds(text).ok_or_else(|| format!("not a time: {text:?}"));
        match option.kind {
            Kind::Word("timeout") => element.timeout_ms = Some(time()?),
            Kind::Word("expires") => element.expires_ms = Some(time()?),
            Kind::Word("comment") => element.comment = Some(text.to_owned()),
            _ => {}
        }
    }
    if element.key.is_empty() {
        return Err(format!("expected an element, found {:?}", joined(tokens)));
    }
    Ok(element)
}

/// The parts of a concatenation, each of its kind.
fn values(tokens: &[Token<'_>], kinds: &[value::Kind]) -> Vec<NftValue> {
    if tokens.is_empty() {
        return Vec::new();
    }
    let parts = tokens.split(|token| token.is("."));
    let kinds = kinds.iter().copied().chain(std::iter::repeat(value::Kind::Other));
    parts
        .zip(kinds)
        .map(|(part, kind)| value::value(kind, &joined(part)))
        .collect()
}

fn joined(tokens: &[Token<'_>]) -> String {
    tokens
        .iter()
        .filter_map(Token::text)
        .collect::<Vec<_>>()
        .join(" ")
}
