//! The values that helm is given: documents in an order in which the later one wins, and single values after them.
//!
//! chart: `valuesContent`, `values`, `valuesConfigMaps`, `valuesSecrets`; HelmChartConfig: `valuesContent`, `values`,
//! `valuesSecrets`; then `set`. The order is that of `helm.cattle.io/v1`.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::refusal::Refusal;
use super::spec::{ChartSpec, ConfigSpec, SetValue, ValuesSource};
use crate::text::yaml_fault;

/// The data of one Secret or ConfigMap.
pub type Data = BTreeMap<String, Vec<u8>>;

/// What the HelmChart and its config name, as far as it is there.
#[derive(Clone, Default)]
pub struct Sources {
    /// Secrets of the HelmChart's namespace, by name.
    pub secrets: BTreeMap<String, Data>,
    /// ConfigMaps of the HelmChart's namespace, by name.
    pub config_maps: BTreeMap<String, Data>,
}

/// One document of values.
#[derive(Clone, Debug)]
pub struct Document {
    /// The YAML.
    pub text: SecretString,
    /// Whether another text asks for another revision.
    pub counts: bool,
}

/// The documents, in their order.
///
/// # Errors
/// When one is not YAML or no map, or what holds one is not there.
pub fn documents(
    namespace: &str,
    chart: &ChartSpec,
    config: Option<&ConfigSpec>,
    sources: &Sources,
) -> Result<Vec<Document>, Refusal> {
    let mut found = Vec::new();
    inline(
        &mut found,
        "spec",
        chart.values_content.as_deref(),
        chart.values.as_ref(),
    )?;
    for source in &chart.values_config_maps {
        held(&mut found, Holder("ConfigMap", namespace, &sources.config_maps), source)?;
    }
    let secrets = Holder("Secret", namespace, &sources.secrets);
    for source in &chart.values_secrets {
        held(&mut found, secrets, source)?;
    }
    if let Some(config) = config {
        inline(
            &mut found,
            "the HelmChartConfig",
            config.values_content.as_deref(),
            config.values.as_ref(),
        )?;
        for source in &config.values_secrets {
            held(&mut found, secrets, source)?;
        }
    }
    Ok(found)
}

/// The arguments of helm for single values.
///
/// They stand in the HelmChart, where everybody who may read it sees them; what is secret belongs in a Secret.
#[must_use]
pub fn set_arguments(set: &BTreeMap<String, SetValue>) -> Vec<String> {
    let mut arguments = Vec::new();
    for (key, value) in set {
        let (flag, text) = match value {
            SetValue::Number(number) => ("--set", number.to_string()),
            SetValue::Text(text) if is_typed(text) => ("--set", text.clone()),
            SetValue::Text(text) => ("--set-string", escape(text)),
        };
        arguments.extend([flag.to_owned(), format!("{key}={text}")]);
    }
    arguments
}

/// What `--set` takes for something else than a text.
fn is_typed(text: &str) -> bool {
    matches!(text, "true" | "false" | "null") || text.parse::<i64>().is_ok_and(|number| number.to_string() == text)
}

/// A text that helm's own syntax gives another meaning: a comma ends a value, a brace begins a list.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '\\' | ',' | '{' | '}') {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

fn inline(
    found: &mut Vec<Document>,
    owner: &str,
    content: Option<&str>,
    values: Option<&Value>,
) -> Result<(), Refusal> {
    if let Some(content) = content.filter(|content| !content.trim().is_empty()) {
        found.push(document(&format!("{owner}.valuesContent"), content, true)?);
    }
    match values {
        None | Some(Value::Null) => {}
        // JSON is YAML.
        Some(values) if values.is_object() => found.push(Document {
            text: values.to_string().into(),
            counts: true,
        }),
        Some(_) => return Err(Refusal::NotAMap(format!("{owner}.values"))),
    }
    Ok(())
}

/// What kind holds values, where, and what is there.
#[derive(Clone, Copy)]
struct Holder<'a>(&'static str, &'a str, &'a BTreeMap<String, Data>);

fn held(found: &mut Vec<Document>, holder: Holder<'_>, source: &ValuesSource) -> Result<(), Refusal> {
    let Holder(kind, namespace, all) = holder;
    let Some(data) = all.get(&source.name) else {
        return match source.ignore_updates {
            true => Ok(()),
            false => Err(Refusal::Missing {
                kind,
                namespace: namespace.to_owned(),
                name: source.name.clone(),
            }),
        };
    };
    let keys: Vec<&String> = match source.keys.is_empty() {
        true => data.keys().collect(),
        false => source.keys.iter().collect(),
    };
    for key in keys {
        let Some(bytes) = data.get(key) else {
            if source.ignore_updates {
                continue;
            }
            return Err(Refusal::MissingKey {
                kind,
                name: source.name.clone(),
                key: key.clone(),
            });
        };
        let place = format!("{kind} {}, key {key}", source.name);
        let text = std::str::from_utf8(bytes).map_err(|_| Refusal::NotYaml {
            place: place.clone(),
            reason: "it is not UTF-8".to_owned(),
        })?;
        found.push(document(&place, text, !source.ignore_updates)?);
    }
    Ok(())
}

/// Judged before helm sees it, since helm's error names a file that is gone by then, and may quote what is secret.
fn document(place: &str, text: &str, counts: bool) -> Result<Document, Refusal> {
    let parsed: Value = serde_saphyr::from_str(text).map_err(|error| Refusal::NotYaml {
        place: place.to_owned(),
        reason: yaml_fault(&error),
    })?;
    match parsed {
        Value::Null | Value::Object(_) => Ok(Document {
            text: text.to_owned().into(),
            counts,
        }),
        _ => Err(Refusal::NotAMap(place.to_owned())),
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        self.counts == other.counts && self.text.expose_secret() == other.text.expose_secret()
    }
}
