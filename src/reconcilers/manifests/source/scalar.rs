//! What kubectl makes of a plain (unquoted, untagged) YAML scalar.
//!
//! kubectl reads YAML 1.1 the way its Go library does. This is that reading, written down once, so that [`super::value`]
//! can compare it with what the YAML parser in use says, and refuse a scalar on which the two differ.

use serde_json::{Number, Value};

/// A plain scalar as kubectl reads it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Plain {
    /// `~`, `null` or nothing.
    Null,
    /// `true`, `yes`, `on`, `y` and their opposites.
    Bool(bool),
    /// An integer or a float.
    Number(Number),
    /// Infinity or not-a-number: JSON has neither, kubectl fails.
    NotJson,
    /// Anything else.
    Text,
}

impl Plain {
    /// The value of a scalar of this text.
    pub(super) fn value(self, text: &str) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Bool(b) => Some(Value::Bool(b)),
            Self::Number(n) => Some(Value::Number(n)),
            Self::NotJson => None,
            Self::Text => Some(Value::String(text.to_owned())),
        }
    }
}

/// Reads a plain scalar as kubectl does.
pub(super) fn plain(text: &str) -> Plain {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Plain::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Plain::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Plain::Bool(false);
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" | "-.inf" | "-.Inf"
        | "-.INF" => return Plain::NotJson,
        _ => {}
    }
    match text.as_bytes()[0] {
        // Go's `ParseFloat` lets an underscore stand between two digits.
        b'.' => float(&text.replace('_', "")).map_or(Plain::Text, Plain::Number),
        b'0'..=b'9' | b'+' | b'-' => {
            let digits = text.replace('_', "");
            integer(&digits)
                .or_else(|| float(&digits))
                .map_or(Plain::Text, Plain::Number)
        }
        _ => Plain::Text,
    }
}

/// Go's `ParseInt(text, 0, 64)`, then `ParseUint`: a prefix names the base, and a leading zero is octal.
fn integer(text: &str) -> Option<Number> {
    let (sign, magnitude) = match text.as_bytes().first()? {
        b'-' => ("-", &text[1..]),
        b'+' => ("+", &text[1..]),
        _ => ("", text),
    };
    let lower = magnitude.get(..2).unwrap_or_default().to_ascii_lowercase();
    let (base, digits) = match lower.as_str() {
        "0x" => (16, &magnitude[2..]),
        "0o" => (8, &magnitude[2..]),
        "0b" => (2, &magnitude[2..]),
        two if two.len() == 2 && two.starts_with('0') => (8, &magnitude[1..]),
        _ => (10, magnitude),
    };
    // The library takes `0b` off by hand and parses what is left, a sign included.
    if base == 2 && sign.is_empty() && digits.starts_with(['+', '-']) {
        return i64::from_str_radix(digits, base).ok().map(Number::from);
    }
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = u64::from_str_radix(digits, base).ok()?;
    match sign {
        "-" => 0i64.checked_sub_unsigned(value).map(Number::from),
        "+" => i64::try_from(value).ok().map(Number::from),
        _ => Some(Number::from(value)),
    }
}

/// A decimal float; whole ones below 2^63 become integers, as they do on kubectl's way through JSON.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at + 1..])),
        None => (unsigned, None),
    };
    let (whole, part) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    let exponent_is_good = exponent.is_none_or(|e| {
        let e = e.strip_prefix(['+', '-']).unwrap_or(e);
        !e.is_empty() && digits(e)
    });
    if !digits(whole) || !digits(part) || whole.len() + part.len() == 0 || !exponent_is_good {
        return None;
    }
    let value: f64 = text.parse().ok().filter(|v: &f64| v.is_finite())?;
    whole_number(value).or_else(|| Number::from_f64(value))
}

/// `1000.0` -> `1000`: the API server refuses a number with a fraction where a field is an integer.
pub(super) fn whole_number(value: f64) -> Option<Number> {
    // 2^53: every whole float below is exactly one integer.
    if value.fract() == 0.0 && value.abs() <= 9_007_199_254_740_992.0 {
        format!("{value:.0}").parse::<i64>().ok().map(Number::from)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn as_kubectl_reads_it() {
        for (text, want) in [
            ("0644", json!(420)),
            ("00123", json!(83)),
            ("0o644", json!(420)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            ("-0b101", json!(-5)),
            ("089", json!(89)),
            ("1_000", json!(1000)),
            ("+5", json!(5)),
            ("-5", json!(-5)),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            (".5", json!(0.5)),
            ("1.", json!(1)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("12345678901234567890123", json!(1.2345678901234568e22)),
            ("1e999", json!("1e999")),
            ("12:30:45", json!("12:30:45")),
            ("2001-12-14", json!("2001-12-14")),
            ("1.2.3", json!("1.2.3")),
            ("100m", json!("100m")),
            ("0x", json!("0x")),
            ("-", json!("-")),
            ("0-5", json!("0-5")),
            ("e3", json!("e3")),
            ("nan", json!("nan")),
            ("inf", json!("inf")),
            ("yEs", json!("yEs")),
            ("on", json!(true)),
            ("y", json!(true)),
            ("off", json!(false)),
            ("~", json!(null)),
        ] {
            assert_eq!(plain(text).value(text), Some(want), "{text}");
        }
        assert_eq!(plain(".inf"), Plain::NotJson);
    }
}
