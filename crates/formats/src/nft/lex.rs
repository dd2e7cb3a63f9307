//! Words of a ruleset.

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind<'t> {
    /// Anything between white space that is not one of the others.
    Word(&'t str),
    /// Between double quotes; nft knows no escapes.
    Quoted(&'t str),
    /// `{`
    Open,
    /// `}`
    Close,
    /// A comma before white space. One inside a word (`established,related`) is a part of it.
    Comma,
    /// A semicolon before white space.
    Semicolon,
    /// The end of a line.
    Newline,
    /// `# handle 7`, which `-a` adds at the end of a line.
    Handle(u64),
}

/// A token with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token<'t> {
    pub(super) kind: Kind<'t>,
    /// Its line, from 1.
    pub(super) line: usize,
    /// Its bytes in the text.
    pub(super) start: usize,
    /// The end of them.
    pub(super) end: usize,
}

impl<'t> Token<'t> {
    /// The word, with or without quotes.
    pub(super) fn text(&self) -> Option<&'t str> {
        match self.kind {
            Kind::Word(text) | Kind::Quoted(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is(&self, word: &str) -> bool {
        matches!(self.kind, Kind::Word(text) if text == word)
    }
}

/// The tokens of a text, in order.
pub(super) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: usize,
}

impl<'t> Lexer<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self { text, at: 0, line: 1 }
    }

    fn token(&mut self, kind: Kind<'t>, start: usize, end: usize) -> Option<Token<'t>> {
        let token = Token {
            kind,
            line: self.line,
            start,
            end,
        };
        self.at = end;
        if kind == Kind::Newline {
            self.line += 1;
        }
        Some(token)
    }
}

impl<'t> Iterator for Lexer<'t> {
    type Item = Token<'t>;

    fn next(&mut self) -> Option<Token<'t>> {
        loop {
            let rest = self.text.get(self.at..)?;
            let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\r']).len();
            let start = self.at + blank;
            let rest = rest.get(blank..)?;
            let first = *rest.as_bytes().first()?;
            if first == b'#' {
                let line_end = memchr::memchr(b'\n', rest.as_bytes()).unwrap_or(rest.len());
                let comment = rest.get(1..line_end)?.trim();
                if let Some(handle) = comment.strip_prefix("handle ").and_then(|n| n.parse().ok()) {
                    return self.token(Kind::Handle(handle), start, start + line_end);
                }
                // nft without iptables' libraries prints `# xt_comment` amid a rule and goes on.
                if comment.starts_with("xt_") {
                    return self.token(Kind::Word("#"), start, start + 1);
                }
                self.at = start + line_end;
                continue;
            }
            return match first {
                b'\n' => self.token(Kind::Newline, start, start + 1),
                b'{' => self.token(Kind::Open, start, start + 1),
                b'}' => self.token(Kind::Close, start, start + 1),
                b',' => self.token(Kind::Comma, start, start + 1),
                b';' => self.token(Kind::Semicolon, start, start + 1),
                b'"' => {
                    let body = rest.get(1..)?;
                    match memchr::memchr2(b'"', b'\n', body.as_bytes()) {
                        Some(end) if body.as_bytes().get(end) == Some(&b'"') => {
                            self.token(Kind::Quoted(body.get(..end)?), start, start + end + 2)
                        }
                        // a quote without its end is a word, to the end of the line
                        end => {
                            let end = end.map_or(rest.len(), |end| end + 1);
                            self.token(Kind::Word(rest.get(..end)?), start, start + end)
                        }
                    }
                }
                _ => {
                    let end = rest.find([' ', '\t', '\r', '\n']).unwrap_or(rest.len());
                    let word = rest.get(..end)?;
                    let word = word.trim_end_matches([',', ';']);
                    self.token(Kind::Word(word), start, start + word.len())
                }
            };
        }
    }
}
