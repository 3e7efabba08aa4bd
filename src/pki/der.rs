//! The little DER that rcgen does not write as it stands: names with repeated attributes (X.690, RFC 5280 section 4.1).

pub(super) const SEQUENCE: u8 = 0x30;
pub(super) const SET: u8 = 0x31;
pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
pub(super) const UTF8_STRING: u8 = 0x0c;
pub(super) const BIT_STRING: u8 = 0x03;

/// One element: tag, length, and the parts one after the other.
pub(super) fn element(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut element = vec![tag];
    match u8::try_from(content.len()) {
        Ok(short) if short < 0x80 => element.push(short),
        Ok(_) | Err(_) => {
            let bytes = content.len().to_be_bytes();
            let significant: Vec<u8> = bytes.into_iter().skip_while(|byte| *byte == 0).collect();
            // At most the eight bytes of a usize.
            element.push(0x80 | u8::try_from(significant.len()).unwrap_or(8));
            element.extend(significant);
        }
    }
    element.extend(content);
    element
}

/// The elements inside of the first element of `bytes`, each with its own tag and length. `None` if the bytes do not
/// add up.
pub(super) fn children(bytes: &[u8]) -> Option<Vec<&[u8]>> {
    let mut rest = inside(bytes)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let (child, after) = rest.split_at_checked(content(rest)?.1)?;
        found.push(child);
        rest = after;
    }
    Some(found)
}

/// The content of the first element of `bytes`.
pub(super) fn inside(bytes: &[u8]) -> Option<&[u8]> {
    let (start, end) = content(bytes)?;
    bytes.get(start..end)
}

/// Where the content of the first element starts and ends.
fn content(bytes: &[u8]) -> Option<(usize, usize)> {
    let first = usize::from(*bytes.get(1)?);
    let (start, length) = if first < 0x80 {
        (2, first)
    } else {
        let count = first & 0x7f;
        let digits = bytes.get(2..2 + count).filter(|digits| digits.len() <= 4)?;
        (
            2 + count,
            digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)),
        )
    };
    Some((start, start.checked_add(length)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for length in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0x1_0000] {
            let inner = element(UTF8_STRING, &[&vec![7; length]]);
            let outer = element(SEQUENCE, &[&inner, &inner]);
            assert_eq!(children(&outer).unwrap(), [&inner[..], &inner[..]], "{length}");
            assert_eq!(children(&outer[..outer.len() - 1]), None, "{length}");
        }
    }
}
