//! `docs/reasons.md` says what the code says. Regenerate it with `UPDATE_DOCS=1 cargo test -p
//! sluice reasons`.

use sluice_director::Reason;
use std::path::Path;

const HEAD: &str = "# Reasons

A reason says why a packet was dropped or given to the kernel. Each reason is a counter:

```
sluice drops                  # counts of each reason, with its meaning
sluice drops --service web    # those of one service
```

The same names are the `reason` label of `sluice_packets_dropped_total` and
`sluice_packets_to_kernel_total` ([metrics.md](metrics.md)), and are in `sluice replay`'s
`counters.json`. To follow single packets, use `sluice trace --reason REASON`
([trace.md](trace.md)). The list is generated from the code.

**Limits.** The list is fixed, so that no traffic creates more counters.

";

#[test]
fn the_page_is_up_to_date() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reasons.md");
    let wanted = format!("{HEAD}{}", Reason::markdown());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &wanted).expect("docs/reasons.md can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(found == wanted, "docs/reasons.md is out of date: see the head of this test");
}
