//! What can be seen without the processes; the rest is in `tests/cluster`.

use super::material::Material;
use super::*;
use crate::pki::certificate::Certificate;

fn prepared(layout: &Layout, now: Timestamp) -> Result<Material, MaterialError> {
    Material::prepare(layout, KeyKind::default(), now)
}

fn new_layout() -> (tempfile::TempDir, Layout) {
    let folder = tempfile::tempdir().unwrap();
    let layout = Layout::under(folder.path());
    take(&layout).unwrap();
    (folder, layout)
}

fn read(layout: &Layout, name: &str) -> Vec<u8> {
    std::fs::read(layout.pki().join(name)).unwrap()
}

#[test]
fn certificates_stay_until_they_need_renewal_and_keys_stay_then() {
    let (_folder, layout) = new_layout();
    let now = clock::now();
    let names = [
        "ca.crt",
        "apiserver.crt",
        "apiserver.key",
        "admin.crt",
        "etcd/server.crt",
        "sa.key",
        "sa.pub",
    ];
    let all = |layout: &Layout| names.map(|name| read(layout, name));
    prepared(&layout, now).unwrap();
    let first = all(&layout);
    prepared(&layout, now + SignedDuration::from_hours(24 * 200)).unwrap();
    assert_eq!(all(&layout), first);
    let late = now + SignedDuration::from_hours(24 * 300);
    prepared(&layout, late).unwrap();
    let second = all(&layout);
    let changed: Vec<&str> = (0..names.len())
        .filter(|index| first[*index] != second[*index])
        .map(|index| names[index])
        .collect();
    assert_eq!(changed, ["apiserver.crt", "admin.crt", "etcd/server.crt"]);
    assert!(
        Certificate::from_pem(&second[1])
            .unwrap()
            .is_in_date(late + SignedDuration::from_hours(24 * 364))
    );
}

#[test]
fn half_an_authority_is_never_replaced() {
    let (_folder, layout) = new_layout();
    let now = clock::now();
    prepared(&layout, now).unwrap();
    let before = read(&layout, "ca.crt");
    std::fs::remove_file(layout.pki().join("ca.key")).unwrap();
    let error = prepared(&layout, now).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("{} is missing", layout.pki().join("ca.key").display())),
        "{error}"
    );
    assert_eq!(read(&layout, "ca.crt"), before);
}

#[test]
fn no_written_credential_is_a_master_and_the_bootstrap_one_is_short() {
    let (_folder, layout) = new_layout();
    let now = clock::now();
    let material = prepared(&layout, now).unwrap();
    for identity in super::IDENTITIES {
        let certificate = Certificate::from_pem(&read(&layout, &format!("{}.crt", identity.name()))).unwrap();
        assert!(
            !certificate
                .details()
                .organizations
                .contains(&"system:masters".to_owned()),
            "{identity:?}"
        );
    }
    let credential = material.bootstrap(BOOTSTRAP_LIFETIME, now).unwrap();
    let certificate = Certificate::from_pem(credential.certificate.as_bytes()).unwrap();
    assert_eq!(certificate.details().organizations, ["system:masters"]);
    assert!(!certificate.is_in_date(now + SignedDuration::from_mins(11)));
    assert!(!format!("{credential:?}").contains("PRIVATE KEY"));
}

#[test]
fn ports_are_remembered_while_they_are_free() {
    let (_folder, layout) = new_layout();
    let first = Ports::choose(&layout.state(), false).unwrap();
    assert_eq!(Ports::choose(&layout.state(), false).unwrap(), first);
    let taken = std::net::TcpListener::bind(("127.0.0.1", first.etcd)).unwrap();
    let second = Ports::choose(&layout.state(), false).unwrap();
    assert_ne!(second.etcd, first.etcd);
    drop(taken);
    atomic_file::write(&layout.state().join("dev-ports.json"), b"[]", Access::Public).unwrap();
    assert!(matches!(
        Ports::choose(&layout.state(), false),
        Err(PortError::Nonsense { .. })
    ));
}

#[test]
fn one_folder_serves_one_control_plane() {
    let (folder, layout) = new_layout();
    let held = take(&layout).unwrap();
    let error = take(&layout).unwrap_err().to_string();
    let expected = format!(
        "{} is in use by process {} (control plane)",
        folder.path().display(),
        std::process::id()
    );
    assert!(error.starts_with(&expected), "{error}");
    drop(held);
}
