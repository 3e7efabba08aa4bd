//! A file's text -> its documents, each with the line it starts at.
//!
//! Splitting comes before parsing so that a byte order mark or an error belongs to one document, and so that nothing is
//! lost: kubectl drops what follows `...`, and refuses text that stands behind `---` on its line, as we do.

/// One piece of a file between two boundaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Document<'a> {
    /// Counted from 1, empty ones included, as an operator counts the `---` lines.
    pub(super) number: usize,
    /// The line of the first content, counted from 1.
    pub(super) line: usize,
    /// From the first content line on, the boundary excluded.
    pub(super) text: &'a str,
}

/// What a line is to the splitter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineKind {
    /// `---`, perhaps with a comment.
    Start,
    /// `...`, perhaps with a comment.
    End,
    /// Nothing, white space, or a comment.
    Blank,
    /// `%YAML ...`; only before any content.
    Directive,
    /// Starts with `---` and is no boundary: YAML and kubectl read it differently.
    Doubtful,
    /// Anything else.
    Content,
}

/// Classifies a line (its line break may be included).
pub(super) fn line_kind(line: &str) -> LineKind {
    let line = line.trim_start_matches('\u{feff}');
    let blank = |rest: &str| {
        let rest = rest.trim();
        rest.is_empty() || rest.starts_with('#')
    };
    let separate = |rest: &str| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']);
    if let Some(rest) = line.strip_prefix("---") {
        return if separate(rest) && blank(rest) {
            LineKind::Start
        } else {
            LineKind::Doubtful
        };
    }
    if let Some(rest) = line.strip_prefix("...")
        && separate(rest)
        && blank(rest)
    {
        return LineKind::End;
    }
    if blank(line) {
        LineKind::Blank
    } else if line.starts_with('%') {
        LineKind::Directive
    } else {
        LineKind::Content
    }
}

/// Splits a text. `Err` is the line (counted from 1) that starts with `---` and goes on.
pub(super) fn split(text: &str) -> Result<Vec<Document<'_>>, usize> {
    let mut documents = Vec::new();
    let mut number = 1;
    // Where the content of the open document starts, and where its directives did.
    let mut open: Option<(usize, usize)> = None;
    let mut directive: Option<(usize, usize)> = None;
    // Whether the open document already had its boundary, so that a first `---` does not count twice.
    let mut seen = false;
    let mut offset = 0;
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let marks = line.len() - line.trim_start_matches('\u{feff}').len();
        match line_kind(line) {
            LineKind::Doubtful => return Err(index + 1),
            kind @ (LineKind::Start | LineKind::End) => {
                if let Some((start, first)) = open.take() {
                    documents.push(Document {
                        number,
                        line: first,
                        text: &text[start..offset],
                    });
                    number += 1;
                } else if seen && kind == LineKind::Start {
                    number += 1;
                }
                // A directive belongs to the document that `---` opens; the readers here need none of it.
                directive = None;
                seen = kind == LineKind::Start;
            }
            LineKind::Blank => {}
            LineKind::Directive if open.is_none() => directive = directive.or(Some((offset + marks, index + 1))),
            LineKind::Directive | LineKind::Content => {
                open = open.or(directive.take()).or(Some((offset + marks, index + 1)));
            }
        }
        offset += line.len();
    }
    if let Some((start, first)) = open.or(directive) {
        documents.push(Document {
            number,
            line: first,
            text: &text[start..],
        });
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Vec<(usize, usize, String)> {
        split(text)
            .unwrap()
            .into_iter()
            .map(|d| (d.number, d.line, d.text.trim().to_owned()))
            .collect()
    }

    #[test]
    fn boundaries_of_every_spelling() {
        let text =
            "\u{feff}---\n# c\na: 1\n--- # c\r\nb: 1\r\n---  \n\u{feff}c: 1\n...\n\u{feff}--- \nd: 1\n...\ne: 1\n";
        assert_eq!(
            shape(text),
            [
                (1, 3, "a: 1"),
                (2, 5, "b: 1"),
                (3, 7, "c: 1"),
                (4, 10, "d: 1"),
                (5, 12, "e: 1")
            ]
            .map(|(n, l, t)| (n, l, t.to_owned()))
        );
    }

    #[test]
    fn empty_documents_are_skipped_but_counted() {
        assert_eq!(shape(""), []);
        assert_eq!(shape("---\n"), []);
        assert_eq!(shape("# only\n---\n\n---\n# x\n...\n"), []);
        assert_eq!(shape("---\n---\na: 1\n"), [(2, 3, "a: 1".to_owned())]);
        assert_eq!(shape("# c\n---\na: 1\n"), [(1, 3, "a: 1".to_owned())]);
    }

    #[test]
    fn directives_are_dropped_where_they_are_legal() {
        assert_eq!(shape("%YAML 1.2\n---\na: 1\n"), [(1, 3, "a: 1".to_owned())]);
        assert_eq!(shape("%YAML 1.2\na: 1\n"), [(1, 1, "%YAML 1.2\na: 1".to_owned())]);
    }

    #[test]
    fn text_behind_a_boundary_is_doubtful() {
        assert_eq!(split("a: 1\n--- b\n"), Err(2));
        assert_eq!(split("---{}\n"), Err(1));
        assert_eq!(split("-----BEGIN\n"), Err(1));
    }

    #[test]
    fn indented_separators_are_text() {
        assert_eq!(shape("a: |\n  ---\n  b\n"), [(1, 1, "a: |\n  ---\n  b".to_owned())]);
    }
}
