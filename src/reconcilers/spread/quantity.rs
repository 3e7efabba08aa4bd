//! Kubernetes quantities (`100m`, `70Mi`, `1e3`), read exactly. No crate in this program's tree reads them.
//!
//! The rules are apimachinery's `resource.ParseQuantity`: no number is larger than 2^63-1, and what is smaller than a
//! billionth is rounded away from zero.

use std::fmt;
use std::str::FromStr;

/// An amount of a resource, in billionths of its unit: a core, a byte, a piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(i128);

/// Billionths have so many decimal places.
const PLACES: i32 = 9;
const UNIT: i128 = 1_000_000_000;

/// A text that is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a quantity, such as 100m, 1.5 or 70Mi")]
pub struct NotAQuantity(String);

impl Amount {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// More than any node has.
    pub const MAX: Self = Self(i64::MAX as i128 * UNIT);

    /// This many whole units.
    #[must_use]
    pub fn units(units: usize) -> Self {
        Self(i128::try_from(units).unwrap_or(i128::MAX).saturating_mul(UNIT)).min(Self::MAX)
    }

    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        // Sums over a node's pods stay far below the range of i128.
        Self(self.0.saturating_add(other.0))
    }

    /// What is left of this without `other`; never less than nothing.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }
}

impl FromStr for Amount {
    type Err = NotAQuantity;

    fn from_str(text: &str) -> Result<Self, NotAQuantity> {
        let wrong = || NotAQuantity(text.to_owned());
        let (is_negative, unsigned) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let (whole, rest) = digits(unsigned);
        let (fraction, suffix) = rest.strip_prefix('.').map_or(("", rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(wrong());
        }
        let scale = Scale::read(suffix).ok_or_else(wrong)?;
        let number = format!("{whole}{fraction}");
        let number = number.trim_start_matches('0');
        let size = if number.is_empty() {
            0
        } else {
            let places = i32::try_from(fraction.len()).unwrap_or(i32::MAX);
            scaled(number, scale, places).unwrap_or(i128::MAX).min(Self::MAX.0)
        };
        Ok(Self(if is_negative { -size } else { size }))
    }
}

/// The digits at the beginning of a text, and the rest.
fn digits(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

/// What a suffix multiplies by.
#[derive(Clone, Copy)]
struct Scale {
    power_of_two: u32,
    power_of_ten: i32,
}

impl Scale {
    fn read(suffix: &str) -> Option<Self> {
        let ten = |power_of_ten| Self {
            power_of_two: 0,
            power_of_ten,
        };
        let two = |power_of_two| Self {
            power_of_two,
            power_of_ten: 0,
        };
        Some(match suffix {
            "" => ten(0),
            "n" => ten(-9),
            "u" => ten(-6),
            "m" => ten(-3),
            "k" => ten(3),
            "M" => ten(6),
            "G" => ten(9),
            "T" => ten(12),
            "P" => ten(15),
            "E" => ten(18),
            "Ki" => two(10),
            "Mi" => two(20),
            "Gi" => two(30),
            "Ti" => two(40),
            "Pi" => two(50),
            "Ei" => two(60),
            _ => {
                let exponent = suffix.strip_prefix(['e', 'E'])?;
                ten(exponent.parse::<i32>().ok()?)
            }
        })
    }
}

/// Digits without a leading zero, the last `places` of them after the point, times a scale, in billionths and rounded up.
/// None: it is larger than an i128.
fn scaled(number: &str, scale: Scale, places: i32) -> Option<i128> {
    let power = PLACES.saturating_sub(places).saturating_add(scale.power_of_ten);
    let number: i128 = number.parse().ok()?;
    let number = number.checked_mul(1 << scale.power_of_two)?;
    let factor = 10_i128.checked_pow(power.unsigned_abs());
    match (power >= 0, factor) {
        (true, factor) => number.checked_mul(factor?),
        (false, Some(divisor)) => Some(number / divisor + i128::from(number % divisor != 0)),
        // Divided by more than it can be.
        (false, None) => Some(1),
    }
}

/// In the largest of the usual units that says it exactly, else in thousandths.
impl fmt::Display for Amount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 % UNIT != 0 {
            let thousandth = UNIT / 1000;
            return write!(formatter, "{}m", self.0.div_euclid(thousandth));
        }
        let units = self.0 / UNIT;
        let suffixes = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
        match suffixes.iter().find(|(_, size)| units != 0 && units % size == 0) {
            Some((suffix, size)) => write!(formatter, "{}{suffix}", units / size),
            None => write!(formatter, "{units}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(text: &str) -> Amount {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn every_way_to_write_a_quantity_is_read_exactly() {
        for (text, billionths) in [
            ("0", 0),
            ("0m", 0),
            ("000", 0),
            ("1", UNIT),
            ("+1", UNIT),
            ("-1", -UNIT),
            ("007", 7 * UNIT),
            ("100m", UNIT / 10),
            ("0.1", UNIT / 10),
            (".5", UNIT / 2),
            ("5.", 5 * UNIT),
            ("0.5k", 500 * UNIT),
            ("1n", 1),
            ("1u", 1000),
            ("1k", 1000 * UNIT),
            ("1M", 1_000_000 * UNIT),
            ("1G", 1_000_000_000 * UNIT),
            ("1T", 1_000_000_000_000 * UNIT),
            ("1P", 1_000_000_000_000_000 * UNIT),
            ("1E", 1_000_000_000_000_000_000 * UNIT),
            ("1Ki", 1024 * UNIT),
            ("70Mi", 70 * 1_048_576 * UNIT),
            ("1.5Gi", 1_610_612_736 * UNIT),
            ("0.5Ki", 512 * UNIT),
            ("1Ti", (1 << 40) * UNIT),
            ("1Pi", (1 << 50) * UNIT),
            ("1Ei", (1 << 60) * UNIT),
            ("1e3", 1000 * UNIT),
            ("1E3", 1000 * UNIT),
            ("1.5e+3", 1500 * UNIT),
            ("1e-3", UNIT / 1000),
            ("12345678901e-10", 1_234_567_891),
            // Rounded up, never to nothing.
            ("0.0000000001", 1),
            ("1e-60", 1),
            ("0e-60", 0),
            ("1.0000000001", UNIT + 1),
            ("-0.0000000001", -1),
        ] {
            assert_eq!(amount(text).0, billionths, "{text}");
        }
        for text in ["1e60", "9223372036854775808", "16Ei", &"9".repeat(200), "1e2147483647"] {
            assert_eq!(amount(text), Amount::MAX, "{text}");
        }
    }

    #[test]
    fn anything_else_is_no_quantity() {
        for text in [
            "",
            " ",
            ".",
            "-",
            "+",
            "m",
            "Mi",
            "1 Mi",
            " 1",
            "1 ",
            "1mi",
            "1K",
            "1KI",
            "1i",
            "1e",
            "1e1.5",
            "1Mi2",
            "1.2.3",
            "--1",
            "0x10",
            "1,5",
            "NaN",
            "inf",
            "1e99999999999",
            "١",
        ] {
            assert!(text.parse::<Amount>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn amounts_are_compared_and_added_by_value() {
        assert_eq!(amount("1024"), amount("1Ki"));
        assert!(amount("999M") < amount("1G") && amount("1G") < amount("1Gi"));
        assert_eq!(amount("1900m").plus(amount("0.1")), amount("2"));
        assert_eq!(amount("2").without(amount("500m")), amount("1500m"));
        assert_eq!(amount("1").without(amount("2")), Amount::ZERO);
        assert_eq!(Amount::units(110), amount("110"));
    }

    #[test]
    fn amounts_are_shown_as_people_write_them() {
        for (text, shown) in [
            ("0", "0"),
            ("0.1", "100m"),
            ("1500m", "1500m"),
            ("3", "3"),
            ("1000", "1000"),
            ("71680Ki", "70Mi"),
            ("2048Mi", "2Gi"),
            ("1025", "1025"),
            ("1n", "0m"),
        ] {
            assert_eq!(amount(text).to_string(), shown);
        }
    }
}
