//! Payloads of small files; `tar` and `openssl` judge the images, and `tests/nodes` lets containerd do so.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::super::assets::Source;
use super::super::atomic_file::{self, Access};
use super::super::child::Program;
use super::*;

/// A folder of programs that only know their version.
struct Kit {
    folder: tempfile::TempDir,
}

impl Kit {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kit = Self { folder };
        atomic_file::create_folder(&kit.path("programs"), Access::Public).unwrap();
        for tool in Tool::iter() {
            kit.write(
                &format!("programs/{tool}"),
                program(tool, tool.version()).as_bytes(),
                Access::Executable,
            );
        }
        kit
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, bytes: &[u8], access: Access) {
        let path = self.path(name);
        atomic_file::create_folder(path.parent().unwrap(), Access::Public).unwrap();
        atomic_file::write(&path, bytes, access).unwrap();
    }

    async fn build(&self, to: &str, recipe: &Recipe) -> Result<Built, Error> {
        let source = Source::Folder(self.path("programs"));
        build(&source, recipe, &self.path(to), Progress::Quiet).await
    }

    fn verify(&self, name: &str) -> Result<Verified, Error> {
        verify(&self.path(name), &Needs::controller(false), Progress::Quiet)
    }

    fn problems(&self, name: &str) -> Vec<String> {
        match self.verify(name) {
            Err(Error::Wrong { problems, .. }) => problems.iter().map(ToString::to_string).collect(),
            other => panic!("{other:?}"),
        }
    }

    async fn run(&self, command: &str) -> Vec<u8> {
        let mut words = command.split(' ');
        let program = Program::new(words.next().unwrap())
            .arguments(words)
            .folder(self.folder.path());
        let finished = program.run(Vec::new()).await.unwrap();
        assert!(
            finished.exit.is_success(),
            "{command}: {}",
            String::from_utf8_lossy(&finished.stderr)
        );
        finished.stdout
    }

    /// The image in an archive, as `tar` unpacks it: manifest, configuration, and the layer's path.
    async fn unpacked(&self, archive: &str) -> (serde_json::Value, serde_json::Value, String) {
        let to = format!("{archive}.unpacked");
        atomic_file::create_folder(&self.path(&to), Access::Public).unwrap();
        self.run(&format!("tar -xf {archive} -C {to}")).await;
        let json = |name: String| serde_json::from_slice(&std::fs::read(self.path(&name)).unwrap()).unwrap();
        let blob = |digest: &serde_json::Value| {
            format!(
                "{to}/blobs/sha256/{}",
                digest["digest"].as_str().unwrap().trim_start_matches("sha256:")
            )
        };
        let index: serde_json::Value = json(format!("{to}/index.json"));
        let manifest: serde_json::Value = json(blob(&index["manifests"][0]));
        let (config, layer) = (&manifest["config"], &manifest["layers"][0]);
        for described in [&index["manifests"][0], config, layer] {
            let sum = self.run(&format!("openssl dgst -sha256 -r {}", blob(described))).await;
            let digest = format!("sha256:{}", String::from_utf8(sum).unwrap().split(' ').next().unwrap());
            assert_eq!(described["digest"], digest.as_str());
            let size = std::fs::metadata(self.path(&blob(described))).unwrap().len();
            assert_eq!(described["size"], size);
        }
        (index.clone(), json(blob(config)), blob(layer))
    }
}

fn program(tool: Tool, version: &str) -> String {
    format!("#!/bin/sh\n# this is {tool}\necho {tool} v{version}+k3s\n")
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let below = |name: &str| std::fs::read_dir(folder.join(name)).unwrap();
    let all = below("").chain(below("bin")).chain(below("images"));
    let paths = all.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    paths
        .map(|path| {
            (
                path.strip_prefix(folder).unwrap().to_owned(),
                std::fs::read(&path).unwrap(),
            )
        })
        .collect()
}

#[tokio::test]
async fn the_same_programs_are_the_same_payload() {
    let kit = Kit::new();
    let built = kit.build("one", &Recipe::default()).await.unwrap();
    assert_eq!(built.left_out, [Image::KubeVip]);
    assert_eq!(built.strays, Vec::<String>::new());
    // Copied programs have other times.
    kit.write(
        "programs/etcd",
        program(Tool::Etcd, "3.7.3").as_bytes(),
        Access::Executable,
    );
    kit.build("two", &Recipe::default()).await.unwrap();
    assert_eq!(files(&kit.path("one")), files(&kit.path("two")));
    let verified = kit.verify("one").unwrap();
    assert_eq!(verified.lock(), &built.lock);
    assert_eq!(verified.strays, Vec::<String>::new());
    let kubelet = std::fs::read_to_string(verified.program(Tool::Kubelet)).unwrap();
    assert_eq!(kubelet, program(Tool::Kubelet, "1.37.2"));
    let names: Vec<String> = verified.images().map(|(image, _)| image.reference.clone()).collect();
    assert_eq!(names.len(), 7, "{names:?}");
    let mut text = std::fs::read_to_string(kit.path("one/payload.lock")).unwrap();
    // Which processor this runs on is no matter here.
    text = text.replace(&build::platform(), "PLATFORM");
    let entry = |name: &str| {
        let from = text.find(&format!("\"{name}\"")).unwrap();
        text[from..from + text[from..].find("\n    }").unwrap()].to_owned()
    };
    assert!(
        text.starts_with("{\n  \"version\": 1,\n  \"platform\": \"PLATFORM\",\n  \"files\": {"),
        "{text}"
    );
    insta::assert_snapshot!(entry("bin/kubelet"));
}

#[tokio::test]
async fn a_payload_is_kept_whole_or_is_none() {
    let kit = Kit::new();
    kit.build("out", &Recipe::default()).await.unwrap();
    let payload = kit.verify("out").unwrap();
    install(&payload, &kit.path("kept")).unwrap();
    assert_eq!(files(&kit.path("kept")), files(&kit.path("out")));
    kit.verify("kept").unwrap();
    // A stick that is pulled out.
    std::fs::remove_file(kit.path("kept").join(LOCK)).unwrap();
    std::fs::remove_file(kit.path("out/bin/runc")).unwrap();
    let error = install(&payload, &kit.path("kept")).unwrap_err().to_string();
    assert!(error.contains("bin/runc"), "{error}");
    assert!(!kit.path("kept").join(LOCK).exists());
}

#[tokio::test]
async fn an_image_is_what_others_read() {
    let kit = Kit::new();
    kit.write("lib/a.so", b"library", Access::Public);
    kit.write("lib/below/b.so", b"another", Access::Executable);
    std::os::unix::fs::symlink("a.so", kit.path("lib/a.so.1")).unwrap();
    let includes = BTreeMap::from([(Image::Etcd, vec![kit.path("lib"), kit.path("lib/a.so")])]);
    let recipe = Recipe {
        includes,
        ..Recipe::default()
    };
    let built = kit.build("out", &recipe).await.unwrap();
    let (index, config, layer) = kit.unpacked("out/images/etcd.tar").await;
    let pinned = built.lock.files["images/etcd.tar"].image.clone().unwrap();
    assert_eq!(index["manifests"][0]["digest"], pinned.digest.as_str());
    let annotations = &index["manifests"][0]["annotations"];
    assert_eq!(annotations["io.containerd.image.name"], Image::Etcd.reference());
    assert_eq!(config["config"]["Entrypoint"][0], "/usr/local/bin/etcd");
    assert_eq!(
        format!("linux/{}", config["architecture"].as_str().unwrap()),
        build::platform()
    );
    let list = String::from_utf8(kit.run(&format!("tar --numeric-owner -tvf {layer}")).await).unwrap();
    let column = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        assert_eq!((columns[1], columns[3]), ("0/0", "1970-01-01"), "{line}");
        format!("{} {}", columns[0], columns[5])
    };
    let listed: Vec<String> = list.lines().map(column).collect();
    let own = kit.folder.path().strip_prefix("/").unwrap().display().to_string();
    for expected in [
        "drwxrwxrwt tmp".to_owned(),
        "drwxr-xr-x etc".to_owned(),
        "drwxr-xr-x usr/local/bin".to_owned(),
        "-rwxr-xr-x usr/local/bin/etcd".to_owned(),
        "-rwxr-xr-x usr/local/bin/etcdctl".to_owned(),
        format!("-rw-r--r-- {own}/lib/a.so"),
        format!("-rw-r--r-- {own}/lib/a.so.1"),
        format!("-rwxr-xr-x {own}/lib/below/b.so"),
    ] {
        assert!(listed.contains(&expected), "{expected} is not in\n{list}");
    }
    let content = kit.run(&format!("tar -xOf {layer} {own}/lib/a.so.1")).await;
    assert_eq!(content, b"library");
    assert_eq!(
        config["rootfs"]["diff_ids"][0]
            .as_str()
            .unwrap()
            .trim_start_matches("sha256:"),
        layer.rsplit_once('/').unwrap().1
    );
}

#[tokio::test]
async fn everything_that_is_wrong_is_named_at_once() {
    let kit = Kit::new();
    kit.build("out", &Recipe::default()).await.unwrap();
    let whole = files(&kit.path("out"));
    std::fs::remove_file(kit.path("out/bin/runc")).unwrap();
    kit.write("out/bin/kubelet", &whole[Path::new("bin/kubelet")], Access::Public);
    let other = String::from_utf8(whole[Path::new("bin/kubectl")].clone())
        .unwrap()
        .replace("this", "that");
    kit.write("out/bin/kubectl", other.as_bytes(), Access::Executable);
    let archive = &whole[Path::new("images/pause.tar")];
    kit.write("out/images/pause.tar", &archive[..archive.len() - 512], Access::Public);
    std::fs::remove_file(kit.path("out/bin/ctr")).unwrap();
    std::fs::create_dir(kit.path("out/bin/ctr")).unwrap();
    let problems = kit.problems("out");
    let starts = [
        "bin/runc is missing",
        "bin/ctr cannot be read",
        &format!("bin/kubectl has {} bytes, sha256", other.len()),
        "images/pause.tar has ",
        "bin/kubelet is not executable",
    ];
    assert_eq!(problems.len(), starts.len(), "{problems:#?}");
    for start in starts {
        assert!(
            problems.iter().any(|problem| problem.starts_with(start)),
            "{start}: {problems:#?}"
        );
    }
    let error = kit.verify("out").unwrap_err().to_string();
    assert!(
        error.lines().count() == 1 && error.contains("bin/runc is missing; "),
        "{error}"
    );
    // Whole again, with something beside it.
    std::fs::remove_dir(kit.path("out/bin/ctr")).unwrap();
    kit.write("out/images/cilium.tar", b"", Access::Public);
    kit.write("out/notes", b"", Access::Public);
    let built = kit.build("out", &Recipe::default()).await.unwrap();
    let strays = ["images/cilium.tar", "notes"];
    assert_eq!(built.strays, strays);
    assert_eq!(kit.verify("out").unwrap().strays, strays);
}

#[tokio::test]
async fn a_lock_that_is_not_whole_or_not_ours_is_refused() {
    let kit = Kit::new();
    kit.build("out", &Recipe::default()).await.unwrap();
    let text = std::fs::read_to_string(kit.path("out/payload.lock")).unwrap();
    let refused = |text: &str| {
        kit.write("out/payload.lock", text.as_bytes(), Access::Public);
        let error = kit.verify("out").unwrap_err();
        assert_eq!(error.to_string().lines().count(), 1);
        error
    };
    for length in 0..text.trim_end().len() {
        let error = refused(&text[..length]);
        assert!(matches!(error, Error::Malformed { .. }), "{length}: {error}");
    }
    for (from, to) in [
        ("\"version\": 1,", ""),
        ("\"size\"", "\"colour\""),
        ("\"bin/runc\"", "\"bin/../../etc/passwd\""),
        ("\"bin/runc\"", "\"bin/.runc\""),
        ("\"images/etcd.tar\"", "\"images/etcd.zip\""),
        ("\"images/etcd.tar\"", "\"/etc/passwd\""),
    ] {
        let error = refused(&text.replacen(from, to, 1));
        assert!(matches!(error, Error::Malformed { .. }), "{to}: {error}");
    }
    let newer = refused(&text.replacen("\"version\": 1,", "\"version\": 2, \"surprise\": 1,", 1));
    assert!(matches!(newer, Error::NewerLock { found: 2, .. }), "{newer}");
    let other = text
        .replace("1.37.2", "1.36.1")
        .replace(&build::platform(), "linux/s390x")
        .replace("bin/runc", "bin/crun");
    refused(&other);
    let problems = kit.problems("out");
    let expected = [
        "the lock has no bin/runc (1.5.2)",
        "bin/kubelet is 1.36.1, and this binary needs 1.37.2",
        "images/kube-proxy.tar is registry.k8s.io/kube-proxy:v1.36.1, and this binary needs registry.k8s.io/kube-proxy:v1.37.2",
        &format!("payload is linux/s390x, and this binary needs {}", build::platform()),
        "bin/crun is missing",
    ];
    for line in expected {
        assert!(problems.iter().any(|problem| problem == line), "{line}: {problems:#?}");
    }
    std::fs::remove_file(kit.path("out/payload.lock")).unwrap();
    assert!(matches!(kit.verify("out"), Err(Error::NoLock { .. })));
    assert!(matches!(kit.verify("nowhere"), Err(Error::NoLock { .. })));
}

#[tokio::test]
async fn a_worker_needs_less_and_a_shared_address_more() {
    let kit = Kit::new();
    kit.build("out", &Recipe::default()).await.unwrap();
    let folder = kit.path("out");
    let vip = verify(&folder, &Needs::controller(true), Progress::Quiet).unwrap_err();
    assert!(vip.to_string().contains("the lock has no images/kube-vip.tar"), "{vip}");
    let text = std::fs::read_to_string(kit.path("out/payload.lock")).unwrap();
    let mut lock: serde_json::Value = serde_json::from_str(&text).unwrap();
    lock["files"]
        .as_object_mut()
        .unwrap()
        .remove("images/kube-apiserver.tar");
    kit.write("out/payload.lock", lock.to_string().as_bytes(), Access::Public);
    let worker = verify(&folder, &Needs::worker(), Progress::Quiet).unwrap();
    assert_eq!(worker.strays, ["images/kube-apiserver.tar"]);
    assert!(kit.problems("out")[0].contains("kube-apiserver"));
}

#[tokio::test]
async fn a_payload_that_was_kept_and_damaged_is_kept_anew() {
    let kit = Kit::new();
    kit.build("stick", &Recipe::default()).await.unwrap();
    let stick = kit.verify("stick").unwrap();
    let keep = || install(&stick, &kit.path("kept")).unwrap();
    keep();
    assert_eq!(files(&kit.path("kept")), files(&kit.path("stick")));
    kit.verify("kept").unwrap();
    let written = || {
        std::fs::metadata(kit.path("kept/bin/containerd"))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = written();
    keep();
    assert_eq!(written(), before, "a whole one is left alone");
    // As after a power failure: the lock is there, and not all of what it names.
    kit.write("kept/bin/containerd", b"", Access::Executable);
    std::fs::remove_file(kit.path("kept/bin/kubelet")).unwrap();
    keep();
    kit.verify("kept").unwrap();
}

#[tokio::test]
async fn nothing_is_put_beside_what_is_not_a_payload() {
    let kit = Kit::new();
    kit.write("home/letter", b"", Access::Public);
    kit.write("home/bin/ls", b"", Access::Executable);
    let error = kit.build("home", &Recipe::default()).await.unwrap_err();
    assert!(matches!(error, Error::Occupied { .. }), "{error}");
    assert_eq!(std::fs::read_dir(kit.path("home")).unwrap().count(), 2);
    // What was cut short has no lock, also where there was one.
    kit.build("out", &Recipe::default()).await.unwrap();
    let include = |path: PathBuf| Recipe {
        includes: BTreeMap::from([(Image::Coredns, vec![path])]),
        ..Recipe::default()
    };
    kit.build("out", &include(kit.path("nowhere"))).await.unwrap_err();
    assert!(matches!(kit.verify("out"), Err(Error::NoLock { .. })));
    kit.build("out", &Recipe::default()).await.unwrap();
    assert_eq!(
        kit.verify("out").unwrap().strays,
        Vec::<String>::new(),
        "gone on with, to the end"
    );
    let error = kit.build("new", &include("lib".into())).await.unwrap_err();
    assert!(matches!(error, Error::Relative { .. }), "{error}");
    assert!(!kit.path("new").exists());
    std::fs::remove_file(kit.path("programs/pause")).unwrap();
    let error = kit.build("new", &Recipe::default()).await.unwrap_err();
    assert!(matches!(error, Error::Asset(_)), "{error}");
    assert!(!kit.path("new").exists());
}

#[tokio::test]
async fn a_program_of_another_version_is_refused() {
    let kit = Kit::new();
    for (tool, version) in [
        (Tool::Kubelet, "1.36.2"),
        (Tool::Runc, "1.5.20"),
        (Tool::Etcd, "13.7.3"),
        (Tool::Ctr, ""),
    ] {
        kit.write(
            &format!("programs/{tool}"),
            program(tool, version).as_bytes(),
            Access::Executable,
        );
        let error = kit.build("out", &Recipe::default()).await.unwrap_err();
        assert!(
            matches!(&error, Error::OtherVersion { path, .. } if path.ends_with(tool.name())),
            "{error}"
        );
        assert!(!kit.path("out").exists());
        kit.write(
            &format!("programs/{tool}"),
            program(tool, tool.version()).as_bytes(),
            Access::Executable,
        );
    }
    kit.write("programs/crictl", b"", Access::Public);
    let error = kit.build("out", &Recipe::default()).await.unwrap_err();
    assert!(matches!(error, Error::Ask(_)), "{error}");
}

#[tokio::test]
async fn archives_of_others_are_taken_under_the_name_they_shall_have() {
    let kit = Kit::new();
    kit.build("one", &Recipe::default()).await.unwrap();
    let archives = BTreeMap::from([
        (Image::KubeVip.reference().to_owned(), kit.path("one/images/pause.tar")),
        (Image::Etcd.reference().to_owned(), kit.path("one/images/coredns.tar")),
        (
            "quay.io/cilium/cilium:v1.16".to_owned(),
            kit.path("one/images/pause.tar"),
        ),
    ]);
    let recipe = Recipe {
        archives,
        ..Recipe::default()
    };
    // What is given does not have to be made.
    std::fs::remove_file(kit.path("programs/etcdctl")).unwrap();
    let built = kit.build("two", &recipe).await.unwrap();
    assert_eq!(built.left_out, []);
    let image = |lock: &PayloadLock, file: &str| lock.files[file].image.clone().unwrap();
    let first = kit.verify("one").unwrap();
    for (file, from, reference) in [
        ("images/kube-vip.tar", "images/pause.tar", Image::KubeVip.reference()),
        ("images/etcd.tar", "images/coredns.tar", Image::Etcd.reference()),
        (
            "images/quay.io_cilium_cilium_v1.16.tar",
            "images/pause.tar",
            "quay.io/cilium/cilium:v1.16",
        ),
    ] {
        let taken = image(&built.lock, file);
        assert_eq!(taken.reference, reference);
        assert_eq!(taken.digest, image(first.lock(), from).digest, "{file}");
        let (index, ..) = kit.unpacked(&format!("two/{file}")).await;
        let annotations = &index["manifests"][0]["annotations"];
        assert_eq!(annotations["io.containerd.image.name"], reference);
        assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
    }
    assert_eq!(kit.verify("two").unwrap().images().count(), 9);
}

#[tokio::test]
async fn an_archive_that_is_no_image_is_refused() {
    let kit = Kit::new();
    kit.build("one", &Recipe::default()).await.unwrap();
    let good = std::fs::read(kit.path("one/images/pause.tar")).unwrap();
    let text = |from: &str, to: &str| {
        let at = good
            .windows(from.len())
            .position(|window| window == from.as_bytes())
            .unwrap();
        assert_eq!(from.len(), to.len());
        [&good[..at], to.as_bytes(), &good[at + from.len()..]].concat()
    };
    kit.write("old/manifest.json", b"[]", Access::Public);
    kit.run("tar -cf old.tar -C old manifest.json").await;
    kit.write(
        "two/index.json",
        br#"{"manifests": [{"digest": "sha256:1"}, {"digest": "sha256:2"}]}"#,
        Access::Public,
    );
    kit.run("tar -cf two.tar -C two ./index.json").await;
    kit.run("gzip -k one/images/pause.tar").await;
    let read = |name: &str| std::fs::read(kit.path(name)).unwrap();
    for (bytes, word) in [
        (b"text".to_vec(), "archive"),
        (read("one/images/pause.tar.gz"), "archive"),
        (read("old.tar"), "no OCI image layout"),
        (read("two.tar"), "2 images"),
        (text("this is pause", "that is pause"), "another content"),
        (text("\"manifests\"", "\"manifesta\""), "no image in it"),
        (good[..good.len() / 4].to_vec(), ""),
    ] {
        kit.write("bad.tar", &bytes, Access::Public);
        let archives = BTreeMap::from([("a/b:c".to_owned(), kit.path("bad.tar"))]);
        let recipe = Recipe {
            archives,
            ..Recipe::default()
        };
        let error = kit.build("out", &recipe).await.unwrap_err();
        let mut said = error.to_string();
        let mut source = std::error::Error::source(&error);
        while let Some(error) = source {
            said = format!("{said}: {error}");
            source = error.source();
        }
        assert!(said.contains(word), "{word}: {said}");
        assert!(matches!(kit.verify("out"), Err(Error::NoLock { .. })));
        assert!(!kit.path("out/images/a_b_c.tar").exists());
    }
}

#[test]
fn the_table_of_ctr_is_read() {
    let table = "REF                       TYPE                                       DIGEST        SIZE      PLATFORMS   LABELS \n\
                 registry.k8s.io/pause:3.10 application/vnd.oci.image.manifest.v1+json sha256:aa 1.2 MiB linux/amd64 io.cri-containerd.image=managed,io.cri-containerd.pinned=pinned \n\
                 registry.k8s.io/etcd:3.7.3-0 application/vnd.oci.image.index.v1+json sha256:bb 21.0 MiB linux/amd64,linux/arm64 - \n\
                 sha256:cc application/vnd.oci.image.manifest.v1+json sha256:aa 1.2 MiB linux/amd64 io.cri-containerd.pinned=pinned-not \n";
    let found = import::parse(table);
    let row = |name: &str| {
        let known = &found[name];
        (known.digest.as_str(), known.pinned)
    };
    assert_eq!(found.len(), 3);
    assert_eq!(row("registry.k8s.io/pause:3.10"), ("sha256:aa", true));
    assert_eq!(row("registry.k8s.io/etcd:3.7.3-0"), ("sha256:bb", false));
    assert_eq!(row("sha256:cc"), ("sha256:aa", false));
    assert!(import::parse("").is_empty());
}
