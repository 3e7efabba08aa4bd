//! In which order kinds are applied, and in which they are pruned (the reverse).

use crate::reconcilers::object::GroupResource;

/// A stage of a pass. The objects of one stage go to the API server in parallel; the next stage begins when all have
/// been answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::EnumIter)]
pub enum Stage {
    /// CustomResourceDefinitions and Namespaces: others cannot exist before them, so they are also waited for.
    Definitions,
    /// Everything else.
    Objects,
    /// What can refuse the objects of the stage before, when it is not served yet: webhook configurations, admission
    /// policies, aggregated API services.
    Admission,
}

impl Stage {
    /// The stage a resource belongs to.
    #[must_use]
    pub fn of(resource: &GroupResource) -> Self {
        match (resource.group.as_str(), resource.resource.as_str()) {
            ("", "namespaces") | ("apiextensions.k8s.io", "customresourcedefinitions") => Self::Definitions,
            ("admissionregistration.k8s.io", _) | ("apiregistration.k8s.io", "apiservices") => Self::Admission,
            _ => Self::Objects,
        }
    }
}

/// The order of pruning: smaller first. Admission goes first, so that a webhook whose backend is being pruned cannot
/// refuse the rest; workloads go before what they mount and bind; definitions and namespaces last, with a
/// CustomResourceDefinition after its own objects.
#[must_use]
pub fn prune_rank(resource: &GroupResource) -> u8 {
    match (Stage::of(resource), resource.group.as_str(), resource.resource.as_str()) {
        (Stage::Admission, _, _) => 0,
        (Stage::Objects, "apps" | "batch" | "autoscaling" | "policy", _) => 1,
        (Stage::Objects, "rbac.authorization.k8s.io", _) => 4,
        (Stage::Objects, "", "configmaps" | "secrets" | "serviceaccounts" | "persistentvolumeclaims") => 3,
        (Stage::Objects, _, _) => 2,
        (Stage::Definitions, "apiextensions.k8s.io", _) => 5,
        (Stage::Definitions, _, _) => 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pruning_takes_definitions_and_namespaces_last() {
        let rank = |group: &str, resource: &str| prune_rank(&GroupResource::new(group, resource));
        let order = [
            rank("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
            rank("apps", "deployments"),
            rank("", "services"),
            rank("", "secrets"),
            rank("rbac.authorization.k8s.io", "roles"),
            rank("apiextensions.k8s.io", "customresourcedefinitions"),
            rank("", "namespaces"),
        ];
        assert!(order.is_sorted_by(|a, b| a < b), "{order:?}");
        for (same, others) in [
            (
                rank("apps", "deployments"),
                [("batch", "jobs"), ("autoscaling", "x"), ("policy", "x")],
            ),
            (
                rank("", "secrets"),
                [
                    ("", "configmaps"),
                    ("", "serviceaccounts"),
                    ("", "persistentvolumeclaims"),
                ],
            ),
        ] {
            for (group, resource) in others {
                assert_eq!(rank(group, resource), same, "{group}/{resource}");
            }
        }
        assert!(rank("example.com", "widgets") < rank("apiextensions.k8s.io", "customresourcedefinitions"));
    }

    #[test]
    fn what_others_need_is_applied_first_and_what_can_refuse_them_last() {
        let stage = |group: &str, resource: &str| Stage::of(&GroupResource::new(group, resource));
        for (group, resource, expected) in [
            ("", "namespaces", Stage::Definitions),
            ("apiextensions.k8s.io", "customresourcedefinitions", Stage::Definitions),
            ("example.com", "namespaces", Stage::Objects),
            ("", "configmaps", Stage::Objects),
            ("apps", "deployments", Stage::Objects),
            (
                "admissionregistration.k8s.io",
                "validatingadmissionpolicies",
                Stage::Admission,
            ),
            (
                "admissionregistration.k8s.io",
                "mutatingwebhookconfigurations",
                Stage::Admission,
            ),
            ("apiregistration.k8s.io", "apiservices", Stage::Admission),
        ] {
            assert_eq!(stage(group, resource), expected, "{group}/{resource}");
        }
        assert!(Stage::Definitions < Stage::Objects && Stage::Objects < Stage::Admission);
    }
}
