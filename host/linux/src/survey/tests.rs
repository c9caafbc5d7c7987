//! A machine of files: two nodes, four processors, one process.

use std::path::PathBuf;

use super::*;

struct Tree(PathBuf);

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let place =
            std::env::temp_dir().join(format!("sluice-survey-{}-{name}", std::process::id()));
        for (path, text) in files {
            let path = place.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        Self(place)
    }

    fn survey(&self) -> Survey {
        Survey::at(&self.0)
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn lists_are_read_as_the_kernel_writes_them() {
    assert_eq!(list("0-3,8\n"), [0, 1, 2, 3, 8]);
    assert!(list("").is_empty() && list("x-y").is_empty());
}

#[test]
fn memory_and_huge_pages_are_found() {
    let folder = "sys/devices/system/node/node1/hugepages/hugepages-2048kB";
    let tree = Tree::new(
        "memory",
        &[
            ("proc/meminfo", "MemTotal:  8000 kB\nMemAvailable: 4000 kB\nHugepagesize: 2048 kB\n"),
            (&format!("{folder}/nr_hugepages"), "64\n"),
            (&format!("{folder}/free_hugepages"), "60\n"),
            ("sys/devices/system/node/possible", "0-1\n"),
            (
                "proc/self/mounts",
                "none /dev/huge\\040pages hugetlbfs rw,pagesize=2M 0 0\nx / ext4 rw 0 0\n",
            ),
        ],
    );
    let survey = tree.survey();
    let expected = Memory { total_kib: 8000, available_kib: 4000, huge_page_kib: 2048 };
    assert_eq!(survey.memory(), Some(expected));
    let pages = HugePages { node: 1, size_kib: 2048, total: 64, free: 60 };
    assert_eq!(survey.huge_pages(), [pages]);
    let mounts = survey.mounts();
    assert_eq!(
        (&*mounts[0].kind, mounts[0].place.to_str()),
        ("hugetlbfs", Some("/dev/huge pages"))
    );
    let of = |path: &str| mount_of(&mounts, Path::new(path)).map(|mount| mount.kind.clone());
    assert_eq!(of("/dev/huge pages/x").as_deref(), Some("hugetlbfs"));
    assert_eq!(of("/dev/huge").as_deref(), Some("ext4"));
}

#[test]
fn processors_know_their_node_and_their_siblings() {
    let cpu = "sys/devices/system/cpu";
    let tree = Tree::new(
        "cpus",
        &[
            (&format!("{cpu}/online"), "0-1,3\n"),
            (&format!("{cpu}/isolated"), "3\n"),
            (&format!("{cpu}/cpu3/topology/thread_siblings_list"), "1,3\n"),
            (&format!("{cpu}/cpu3/cpufreq/scaling_governor"), "powersave\n"),
            ("sys/devices/system/node/node1/cpulist", "2-3\n"),
        ],
    );
    let cpus = tree.survey().cpus();
    assert_eq!(cpus.by_number.keys().copied().collect::<Vec<_>>(), [0, 1, 3]);
    let third = Cpu { node: 1, siblings: vec![1, 3], governor: Some("powersave".to_owned()) };
    assert_eq!(cpus.by_number[&3], third);
    assert_eq!((cpus.by_number[&0].node, cpus.isolated), (0, vec![3]));
}

#[test]
fn processes_are_found_by_name_with_what_they_may() {
    let limits = "Limit  Soft Limit\nMax locked memory  8388608  8388608  bytes\n";
    let tree = Tree::new(
        "process",
        &[
            ("proc/12/comm", "sluiced\n"),
            ("proc/12/limits", limits),
            ("proc/12/status", "Name:\tsluiced\nCapEff:\t0000008000003000\nSeccomp:\t2\n"),
            ("proc/sys/net/ipv4/conf/eth0.10/rp_filter", "1\n"),
        ],
    );
    let survey = tree.survey();
    assert_eq!(survey.processes("sluiced"), [12]);
    let process = survey.process(12).expect("it is there");
    assert_eq!((process.locked_bytes, process.filtered), (Some(8 << 20), true));
    let may = [Capability::NetAdmin, Capability::NetRaw, Capability::Bpf].map(|it| process.may(it));
    assert_eq!(may, [true; 3]);
    assert!(!process.may(Capability::SysAdmin) && survey.process(13).is_none());
    assert_eq!(survey.sysctl("net/ipv4/conf/eth0.10/rp_filter").as_deref(), Some("1"));
    assert_eq!(survey.sysctl("net.ipv4.ip_forward"), None);
}

/// Fields of this very process, against what it knows of itself.
#[test]
fn this_machine_can_be_looked_at() {
    let survey = Survey::default();
    assert!(survey.memory().is_some_and(|memory| memory.total_kib > memory.available_kib));
    assert!(!survey.cpus().by_number.is_empty());
    assert!(survey.process(std::process::id()).is_some());
    assert!(survey.mounts().iter().any(|mount| mount.place == Path::new("/")));
}
