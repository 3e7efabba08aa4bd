use futures::FutureExt;

use super::*;

/// What a subscriber has been told since it last asked.
fn told(changes: &mut BoxStream<'static, Change>) -> Vec<Change> {
    // A task may not receive for ever without pausing, which would look like the end here.
    let next = || tokio::task::unconstrained(changes.next()).now_or_never().flatten();
    std::iter::from_fn(next).collect()
}

fn of(name: &str) -> Vec<Change> {
    vec![Change::Of(name.into())]
}

fn one(name: &str, value: u32) -> (Arc<str>, u32) {
    (name.into(), value)
}

#[tokio::test]
async fn only_a_changed_value_is_told() {
    let mirror = Mirror::default();
    let mut changes = mirror.changes();
    let mut listing = Kept::new();
    let mut take = |event| mirror.take(&mut listing, event);

    assert!(!take(Event::Init));
    assert!(!take(Event::InitApply(one("a", 1))));
    assert!(!take(Event::InitApply(one("b", 2))));
    assert!(mirror.get("a").is_none() && !mirror.is_ready(), "half a list is none");
    assert!(mirror.ready().now_or_never().is_none());
    assert_eq!(told(&mut changes), []);
    assert!(take(Event::InitDone));
    assert_eq!((mirror.count(), mirror.is_ready()), (2, true));
    assert!(mirror.ready().now_or_never().is_some());
    assert_eq!(told(&mut changes), [Change::OfAny]);

    take(Event::Apply(one("a", 1)));
    assert_eq!(told(&mut changes), [], "nothing new");
    take(Event::Apply(one("a", 9)));
    assert_eq!(told(&mut changes), of("a"));
    assert_eq!(mirror.get("a").as_deref(), Some(&9));
    take(Event::Apply(one("c", 3)));
    assert_eq!(told(&mut changes), of("c"));
    take(Event::Delete(one("b", 2)));
    assert_eq!(told(&mut changes), of("b"));
    take(Event::Delete(one("b", 2)));
    assert_eq!(told(&mut changes), []);
    mirror.put("a", Some(9));
    mirror.put("x", None);
    assert_eq!(told(&mut changes), []);
    mirror.put("a", Some(10));
    assert_eq!(told(&mut changes), of("a"));
    let names: Vec<_> = mirror.all().into_iter().map(|(name, _)| name.to_string()).collect();
    assert_eq!(names, ["a", "c"]);
}

#[tokio::test]
async fn a_new_list_replaces_the_old_one_and_shares_what_is_the_same() {
    let mirror = Mirror::default();
    let mut listing = Kept::new();
    let mut list = |listed: &[(&str, u32)]| {
        mirror.take(&mut listing, Event::Init);
        for (name, value) in listed {
            mirror.take(&mut listing, Event::InitApply(one(name, *value)));
        }
        mirror.take(&mut listing, Event::InitDone);
    };
    list(&[("a", 1), ("b", 2)]);
    let mut changes = mirror.changes();
    let before = mirror.get("a").unwrap();
    list(&[("a", 1), ("b", 2)]);
    assert_eq!(told(&mut changes), [], "the same list");
    assert!(Arc::ptr_eq(&before, &mirror.get("a").unwrap()));
    list(&[("a", 1)]);
    assert_eq!(told(&mut changes), [Change::OfAny]);
    assert_eq!(mirror.count(), 1);
}

#[tokio::test]
async fn a_broken_list_is_forgotten() {
    let mirror = Mirror::default();
    let mut listing = Kept::new();
    mirror.take(&mut listing, Event::Init);
    mirror.take(&mut listing, Event::InitApply(one("gone", 1)));
    mirror.take(&mut listing, Event::Init);
    mirror.take(&mut listing, Event::InitApply(one("a", 1)));
    mirror.take(&mut listing, Event::InitDone);
    assert!(mirror.get("gone").is_none() && mirror.get("a").is_some());
}

/// Whoever is woken decides by the index, so it must not come later than the news.
#[tokio::test]
async fn the_index_is_there_before_anybody_is_told() {
    let sum = Arc::new(std::sync::Mutex::new(0));
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (index, seen) = (Arc::clone(&sum), Arc::clone(&told));
    let mirror = Mirror::<u32>::indexed(move |kept, change| {
        *index.lock().unwrap() = kept.values().map(|value| **value).sum::<u32>();
        seen.lock().unwrap().push(change.clone());
    });
    let mut changes = mirror.changes();
    let mut listing = Kept::new();
    for event in [Event::Init, Event::InitApply(one("a", 1)), Event::InitDone] {
        mirror.take(&mut listing, event);
    }
    assert_eq!((changes.next().await, *sum.lock().unwrap()), (Some(Change::OfAny), 1));
    mirror.put("b", Some(2));
    assert_eq!(
        (changes.next().await, *sum.lock().unwrap()),
        (Some(Change::Of("b".into())), 3)
    );
    mirror.put("a", None);
    assert_eq!(
        (changes.next().await, *sum.lock().unwrap()),
        (Some(Change::Of("a".into())), 2)
    );
    mirror.put("a", None);
    assert_eq!(told.lock().unwrap().len(), 3, "nothing new, nothing to index");
}

#[tokio::test]
async fn a_slow_subscriber_is_told_to_look_at_all() {
    let mirror = Mirror::default();
    let mut changes = mirror.changes();
    for number in 0..=BACKLOG {
        mirror.put("n", Some(number));
    }
    let told = told(&mut changes);
    assert_eq!(told[0], Change::OfAny);
    assert_eq!(told.len(), 1 + BACKLOG);
}
