package vpptest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// processors is a library by which a program finds 64 processors, and pins no thread.
const processors = `#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
	CPU_ZERO_S(size, set);
	for (int i = 0; i < 64; i++)
		CPU_SET_S(i, size, set);
	return 0;
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *set) { return 0; }
`

// LaunchWorkers is LaunchWith with so many workers. VPP wants a processor for each of its threads.
// Where there are too few, they share them, by a library that VPP is started with. The test is skipped
// where that cannot be compiled.
func LaunchWorkers(tb testing.TB, workers int, config string, plugins ...string) *Process {
	tb.Helper()
	if runtime.NumCPU() > workers {
		return LaunchWith(tb, fmt.Sprintf("%scpu { workers %d }\n", config, workers), plugins...)
	}
	library := shared(tb, processors)
	start := func(c *exec.Cmd) error {
		c.Env = append(c.Environ(), "LD_PRELOAD="+library)
		return c.Start()
	}
	return LaunchBy(tb, start, fmt.Sprintf("%scpu { relative main-core 0 corelist-workers 1-%d }\n", config, workers), plugins...)
}

// shared compiles a shared library, which the test removes.
func shared(tb testing.TB, source string) (path string) {
	tb.Helper()
	compilers := []string{"clang-14", "clang", "gcc", "cc"}
	i := slices.IndexFunc(compilers, func(name string) bool { _, err := exec.LookPath(name); return err == nil })
	if i < 0 {
		tb.Skip("there is no C compiler, and too few processors for the threads of VPP")
	}
	path = filepath.Join(tb.TempDir(), "shared.so")
	c := exec.CommandContext(tb.Context(), compilers[i], "-O2", "-Wall", "-shared", "-fPIC", "-x", "c", "-o", path, "-")
	c.Stdin = strings.NewReader(source)
	if out, err := c.CombinedOutput(); err != nil {
		tb.Fatalf("%s: %v\n%s", compilers[i], err, out)
	}
	return path
}
