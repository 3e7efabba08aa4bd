//! What is refused before any change, and what is no rotation's business.

use super::*;

/// Refused, with these words, and no file is another one.
async fn refuses(bench: &Bench, options: &Options, ahead: SignedDuration, words: &str) {
    let before = bench.files();
    let (done, _) = bench.rotate_at(options, ahead).await;
    let error = done.unwrap_err();
    let told = crate::controllers::concern::chain(&error);
    assert!(error.is_refusal() && told.contains(words), "{told}");
    assert_eq!(bench.files(), before);
    assert!(!bench.has_marker());
}

fn with_signer(flags: &str) -> Bench {
    let flags = flags.to_owned();
    let bench = Bench::controller();
    // Over the one its leaves are of.
    bench.openssl.authority("var/lib/stratum/pki/ca", &flags);
    bench
}

#[tokio::test]
async fn a_signer_that_cannot_sign_is_named() {
    let all = forced(Keys::New);
    let (none, year) = (SignedDuration::ZERO, DAY * 365);
    let bench = Bench::controller();
    refuses(&bench, &all, year * 11, "rotate-ca --force").await;
    refuses(&bench, &all, -year, "set the clock").await;
    let bench = Bench::controller();
    std::fs::remove_file(bench.pki("ca.key")).unwrap();
    refuses(&bench, &all, none, "the CA ca is not on this machine").await;
    refuses(&bench, &renewal(), DAY * 300, "ca.key is missing").await;
    // As long as there is nothing to sign nobody misses it.
    assert!(bench.rotate(&renewal()).await.unwrap().reissued.is_empty());
    let bench = Bench::controller();
    std::fs::remove_file(bench.pki("etcd/ca.crt")).unwrap();
    refuses(&bench, &all, none, "etcd/ca.crt is missing").await;
    let bench = with_signer("-newkey ed25519");
    refuses(&bench, &all, none, "no ECDSA key on P-256 or P-384").await;
    let bench = Bench::controller();
    put(&bench.pki("ca.key"), &std::fs::read(bench.pki("etcd/ca.key")).unwrap());
    refuses(&bench, &all, none, "does not belong to its certificate").await;
    let bench = Bench::controller();
    let two = [bench.pki("ca.crt"), bench.pki("etcd/ca.crt")].map(|path| std::fs::read(path).unwrap());
    put(&bench.pki("ca.crt"), &two.concat());
    refuses(&bench, &all, none, "2 certificates").await;
    let bench = Bench::controller();
    let key = bench.pki("ca.key");
    bench.openssl.run(&format!(
        "pkey -in {0} -aes256 -passout pass:x -out {0}.new",
        key.display()
    ));
    std::fs::rename(key.with_extension("key.new"), &key).unwrap();
    refuses(&bench, &all, none, "encrypted").await;
}

#[tokio::test]
async fn leaves_end_with_their_signer_and_a_renewal_that_would_not_end_later_is_none() {
    let bench = Bench::of(&examples::one_controller(), |openssl| {
        for name in ["ca", "etcd/ca", "front-proxy-ca"] {
            openssl.authority(&format!("var/lib/stratum/pki/{name}"), "-days 40");
        }
    });
    let before = bench.files();
    let rotated = bench.rotate(&renewal()).await.unwrap();
    assert!(rotated.idle.unwrap().contains("ends with its signer"));
    assert_eq!(bench.files(), before);
    bench.rotate(&forced(Keys::New)).await.unwrap();
    bench.judge(None);
    for name in bench.pairs() {
        let signer = match name.as_str() {
            "front-proxy-client" => "front-proxy-ca",
            name if name.contains("etcd") => "etcd/ca",
            _ => "ca",
        };
        let (leaf, signer) = (bench.certificate(&name), bench.certificate(signer));
        assert_eq!(leaf.details().not_after, signer.details().not_after, "{name}");
    }
}

#[tokio::test]
async fn whoever_else_is_at_it_is_named() {
    let bench = Bench::controller();
    atomic_file::create_folder(&bench.layout().run(), Access::Secret).unwrap();
    let Attempt::Taken(lock) = Lock::attempt(&bench.layout().node_lock(), "stratum upgrade").unwrap() else {
        panic!("nobody has it");
    };
    refuses(&bench, &forced(Keys::New), SignedDuration::ZERO, "(stratum upgrade)").await;
    // A caller that has it goes on.
    let held = Options {
        lock: NodeLock::Held,
        ..forced(Keys::New)
    };
    assert!(!bench.rotate(&held).await.unwrap().reissued.is_empty());
    drop(lock);
    let online = Options {
        offline: false,
        ..forced(Keys::New)
    };
    refuses(&bench, &online, SignedDuration::ZERO, "go on with --offline").await;
    atomic_file::create_folder(&bench.pki("rotation/r1"), Access::Secret).unwrap();
    refuses(&bench, &forced(Keys::New), SignedDuration::ZERO, "rotate-ca --cluster").await;
}

#[tokio::test]
async fn a_foreign_profile_is_refused_before_anything_is_looked_at() {
    let bench = Bench::controller();
    let path = bench.layout().node_state();
    let text = std::fs::read_to_string(&path).unwrap();
    put(&path, text.replace("profile: default", "profile: pro").as_bytes());
    refuses(&bench, &forced(Keys::New), SignedDuration::ZERO, "\"pro\"").await;
}

#[tokio::test]
async fn a_worker_has_nothing_to_rotate() {
    let state = NodeState {
        role: node_state::Role::Worker,
        etcd: None,
        ..examples::one_controller()
    };
    let openssl = Openssl::new();
    let layout = Layout::under(openssl.path());
    atomic_file::create_folder(&layout.state(), Access::Secret).unwrap();
    node_state::save(&layout.node_state(), &state).unwrap();
    let machine = Machine::load(layout).unwrap();
    let bench = Bench { openssl, machine };
    for options in [forced(Keys::New), renewal()] {
        let rotated = bench.rotate(&options).await.unwrap();
        assert!(rotated.reissued.is_empty() && rotated.idle.unwrap().contains("a worker's are its kubelet's"));
    }
    let rekey = Options {
        rekey_shared: true,
        offline: false,
        ..forced(Keys::New)
    };
    let error = bench.rotate(&rekey).await.unwrap_err();
    assert!(
        error.is_refusal() && error.to_string().contains("on a worker"),
        "{error}"
    );
}
