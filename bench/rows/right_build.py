"""The row on building: what a clean build of the demo's targets costs, against the build before precompiled headers."""
import os
import re
import resource

import results
from common import ENVIRONMENT, ROOT, Failed, run
from rows import judge

BEFORE = "1a720a8"
SHARE = 0.5
JOBS = "2"


def demo_targets():
    """The targets that scripts/demo.sh builds."""
    with open(os.path.join(ROOT, "scripts", "demo.sh")) as f:
        return re.search(r"^scripts/build\.sh (.+)$", f.read(), re.M)[1].split()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def clean_build_seconds(commit, folder):
    """CPU seconds, user and system, of configuring and building the demo's targets of `commit` without ccache."""
    source = os.path.join(folder, commit)
    environment = {**ENVIRONMENT, "CCACHE_DISABLE": "1"}
    run(["git", "-C", ROOT, "worktree", "add", "--detach", source, commit])
    try:
        start = cpu_seconds()
        run(["cmake", "--preset", "release"], cwd=source, env=environment)
        run(["ninja", "-C", "build", "-j", JOBS, *demo_targets()], cwd=source, env=environment, timeout=7200)
        return cpu_seconds() - start
    finally:
        run(["git", "-C", ROOT, "worktree", "remove", "--force", source])


def build(folder):
    if results.commit().endswith("-dirty"):
        raise Failed("the build of the last commit is measured, but files differ from it")
    before, after = (clean_build_seconds(c, folder) for c in (BEFORE, "HEAD"))
    return judge(after <= SHARE * before,
                 f"{after:.0f} CPU seconds, {BEFORE}: {before:.0f}: {after / before:.0%} of it, {JOBS} jobs, no ccache")
