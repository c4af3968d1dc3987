package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-net/sluice/internal/lib/scratch"
)

// Options of a run.
type Options struct {
	Parallel int
	Every    bool          // continue after the first suite that fails
	Unit     bool          // run the tests of the mutated package, too
	Seed     uint64        // of random tests; 0 draws one for each run
	Limit    time.Duration // of one run of a suite, at least; slow suites get more
	// Progress is called from one goroutine at a time. It may be nil.
	Progress func(done, all int, r Result)
}

// Verdict is what became of a fault.
type Verdict string

// The verdicts. TimedOut means that the only sign of the fault is a suite that did not end; Broken
// that it does not fit or does not compile.
const (
	Caught   Verdict = "caught"
	TimedOut Verdict = "timed out"
	Survived Verdict = "survived"
	Broken   Verdict = "broken"
)

// Result is a fault and the suites that caught it.
type Result struct {
	Fault   string  `json:"fault"`
	Area    string  `json:"area"`
	File    string  `json:"file"`
	Verdict Verdict `json:"verdict"`
	By      []Catch `json:"by,omitempty"` // in the order of the runs; only the first unless all suites were asked
	Error   string  `json:"error,omitempty"`
	Unit    string  `json:"unit,omitempty"` // what the tests of the package say
	Seconds float64 `json:"seconds"`        // builds and all runs
}

// Catch is a run of a suite that failed.
type Catch struct {
	Suite    string  `json:"suite"`
	Short    bool    `json:"short"`
	Test     string  `json:"test"`
	Seconds  float64 `json:"seconds"` // of this run
	TimedOut bool    `json:"timedOut,omitempty"`
	Output   string  `json:"output,omitempty"` // the end of it, when it timed out
}

// errBaseline says that a suite fails without any fault.
var errBaseline = errors.New("the harness fails without a fault")

// runner runs suites on faults.
type runner struct {
	Options
	tree
	suites []*contestant // cheapest first
	folder *scratch.Folder
	work   string // its path
	tmp    string // for the temporary files of tests
}

// contestant is a suite that was built and has passed without a fault.
type contestant struct {
	Suite
	contents map[string]bool
	binary   string
	took     [2]func() (time.Duration, error) // by mode; the long run happens when it is first needed
}

// mode is how much of a suite is run.
type mode int

const (
	short mode = iota
	full
)

// newRunner builds the suites and runs them with -short.
func newRunner(ctx context.Context, t tree, suites []Suite, o Options) (*runner, error) {
	folder, err := scratch.New("mutation-")
	if err != nil {
		return nil, err
	}
	work := folder.Path
	r := &runner{Options: o, tree: t, folder: folder, work: work, tmp: filepath.Join(work, "tmp")}
	if err := os.Mkdir(r.tmp, 0o700); err != nil {
		return r, err
	}
	for _, s := range suites {
		c := &contestant{Suite: s}
		if c.contents, err = t.contents(ctx, s); err != nil {
			return r, err
		}
		if c.binary, err = t.build(ctx, s.Folder, "", work); err != nil {
			return r, err
		}
		for _, m := range []mode{short, full} {
			c.took[m] = sync.OnceValues(func() (time.Duration, error) { return r.baseline(ctx, c, m) })
		}
		if _, err := c.took[short](); err != nil {
			return r, err
		}
		r.suites = append(r.suites, c)
	}
	slices.SortStableFunc(r.suites, func(a, b *contestant) int {
		x, _ := a.took[short]() // have passed, so there is no error
		y, _ := b.took[short]()
		return cmp.Compare(x, y)
	})
	return r, nil
}

// close removes what the runner has written.
func (r *runner) close() error { return r.folder.Remove() }

// baselineLimit is how long a suite may take without a fault.
const baselineLimit = 10 * time.Minute

// baseline runs a suite without a fault and returns how long it takes.
func (r *runner) baseline(ctx context.Context, c *contestant, m mode) (time.Duration, error) {
	out, err := r.invoke(c, c.binary, m, baselineLimit).run(ctx)
	switch {
	case err != nil:
		return 0, err
	case out.failed:
		return 0, fmt.Errorf("%w: %s: %s\n%s", errBaseline, c.name(), out.test, out.output)
	}
	return out.took, nil
}

// invoke returns how a binary of a suite is run.
func (r *runner) invoke(c *contestant, binary string, m mode, limit time.Duration) invocation {
	i := invocation{binary: binary, dir: filepath.Join(r.root, filepath.FromSlash(c.Folder)), tmp: r.tmp, limit: limit, kernel: c.Kernel}
	if m == short {
		i.args = append(i.args, "-test.short")
		if c.Long != "" {
			i.args = append(i.args, "-test.skip="+c.Long)
		}
	} else {
		i.long = "usual"
	}
	if c.contents["pgregory.net/rapid"] {
		// What fails need not be small, only soon: no shrinking, and no files in the tree.
		i.args = append(i.args, "-rapid.seed="+strconv.FormatUint(r.Seed, 10), "-rapid.nofailfile", "-rapid.shrinktime=0s")
	}
	return i
}

// slack is how much longer than without a fault a suite may take.
const slack = 4

// limit is how long a suite may run on a fault.
func (r *runner) limit(c *contestant, m mode) (time.Duration, error) {
	took, err := c.took[m]()
	return max(r.Limit, slack*took), err
}

// run tries all faults, some of them at a time, and returns the results in their order.
func (r *runner) run(ctx context.Context, faults []Fault) ([]Result, error) {
	results, errs := make([]Result, len(faults)), make([]error, len(faults))
	next := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex // of done and of Progress
	done := 0
	for range max(1, r.Parallel) {
		workers.Go(func() {
			for i := range next {
				results[i], errs[i] = r.try(ctx, faults[i])
				mu.Lock()
				if done++; r.Progress != nil {
					r.Progress(done, len(faults), results[i])
				}
				mu.Unlock()
			}
		})
	}
	for i := range faults {
		next <- i
	}
	close(next)
	workers.Wait()
	return results, errors.Join(errs...)
}

// try runs the suites on one fault. An error ends the whole run: it says nothing about
// the fault.
func (r *runner) try(ctx context.Context, f Fault) (Result, error) {
	start := time.Now()
	out := Result{Fault: f.Name, Area: f.Area, File: f.File, Verdict: Survived}
	dir, err := os.MkdirTemp(r.work, "fault-")
	if err != nil {
		return out, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // the folder around it is removed, too
	a := attempt{runner: r, fault: f, dir: dir, binaries: map[string]string{}}
	if a.overlay, err = r.overlay(ctx, f, dir); err == nil {
		out.By, err = a.suites(ctx)
	}
	if err == nil && r.Unit {
		out.Unit, err = a.unit(ctx)
	}
	var build *buildError
	switch {
	case errors.Is(err, errFault) || errors.As(err, &build):
		out.Verdict, out.Error = Broken, err.Error()
		err = nil
	case slices.ContainsFunc(out.By, func(c Catch) bool { return !c.TimedOut }):
		out.Verdict = Caught
	case len(out.By) > 0:
		out.Verdict = TimedOut
	}
	out.Seconds = time.Since(start).Seconds()
	return out, cmp.Or(err, ctx.Err())
}
