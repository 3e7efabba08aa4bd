use super::super::report::RefusalReason;
use super::*;
use crate::reconcilers::object::GroupResource;

fn id() -> ObjectId {
    ObjectId {
        resource: GroupResource::new("", "configmaps"),
        namespace: Some("default".into()),
        name: "a".into(),
    }
}

fn refusal() -> Refusal {
    Refusal {
        file: "s/a.yaml".into(),
        line: None,
        object: None,
        stack: None,
        reason: RefusalReason::Rejected,
        message: String::new(),
    }
}

#[test]
fn waits_grow_per_object_and_an_early_failure_does_not_count() {
    let mut memory = Memory::default();
    let start = Timestamp::UNIX_EPOCH;
    memory.fail(id(), [0; 32], refusal(), start);
    let first = memory.failed(&id()).unwrap().retry_at;
    assert_eq!(first.duration_since(start).as_secs(), 2);
    memory.fail(id(), [0; 32], refusal(), start);
    assert_eq!(memory.failed(&id()).unwrap().times, 1, "woken early by another event");
    memory.fail(id(), [0; 32], refusal(), first);
    assert_eq!(memory.failed(&id()).unwrap().times, 2);
    memory.fail(id(), [1; 32], refusal(), first);
    assert_eq!(memory.failed(&id()).unwrap().times, 1, "new content starts anew");
    for _ in 0..40 {
        let at = memory.failed(&id()).unwrap().retry_at;
        memory.fail(id(), [1; 32], refusal(), at);
        let failed = memory.failed(&id()).unwrap();
        assert!(failed.retry_at.duration_since(at).as_secs() <= 300);
    }
}
