// Command shapes prints what the worst known manifests of one tenant cost a node: each shape of
// tests/lab/shapes goes through cache, processor, configurator and a renderer in a process of its own.
//
//	go run ./tests/bench/shapes                        # the table of docs/reference/limits.md
//	go run ./tests/bench/shapes -renderer acl
//	go run ./tests/bench/shapes -shape "NotIn by ports" -n 1000,2000,4000
//	go run ./tests/bench/shapes -plots docs/reference  # how they grow
//	go run ./tests/bench/shapes -flips 20s             # another tenant while each flips
//	go run ./tests/bench/shapes -search 1h             # for others that cost more
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
	"github.com/sluice-net/sluice/tests/lab/shapes"
)

// result is what one shape cost.
type result struct {
	Bytes            int           // of manifests: those of policies
	CPU, Wall        time.Duration // from the manifests to what is enforced
	Other            time.Duration // until a policy of another tenant is enforced that comes 10 ms later
	Turn             time.Duration // the longest turn of the event loop after the pods are there
	Stages           string        // of that turn
	Commit           time.Duration // the longest commit: processor time of its goroutine
	Look             time.Duration // of what the debug API answers from: processor time
	Delete           time.Duration // until nothing is left of the policies: processor time
	DeleteTurn       time.Duration // the longest turn meanwhile
	RSS, Heap, Image uint64        // bytes: the most memory the process had, what lives, and the dataplane's
	Refused          int           // rules of policies that are not enforced
	Err              string
}

type options struct {
	shape, sizes, renderer, profile string
	genome, plots                   string
	search                          time.Duration
	seed                            uint64
	memory                          uint64
	child                           bool
	limit, flips                    time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.shape, "shape", "", "one shape only")
	flag.StringVar(&o.sizes, "n", "", "sizes, separated by commas; those of the table when empty")
	flag.StringVar(&o.renderer, "renderer", "xdp", "dataplane: "+strings.Join(names(), ", ")+" or none")
	flag.Uint64Var(&o.memory, "policy-memory", 128, "MiB that rules may take in the kernel, as the setting of the agent")
	flag.StringVar(&o.profile, "profile", "", "file for a profile of the processor, of one shape")
	flag.DurationVar(&o.limit, "limit", 3*time.Minute, "after which a shape is given up")
	flag.DurationVar(&o.flips, "flips", 0, "how long to delete and add the policies of each shape all the time, and to measure how long those of another tenant take")
	flag.DurationVar(&o.search, "search", 0, "how long to look for the manifests that cost most")
	flag.StringVar(&o.plots, "plots", "", "folder to write plots to of how the costs of shapes grow, instead of a table")
	flag.Uint64Var(&o.seed, "seed", 1, "of the search")
	flag.StringVar(&o.genome, "genome", "", "with -child: manifests that a search made, as it prints them")
	flag.BoolVar(&o.child, "child", false, "measure in this process, and print JSON")
	flag.Parse()
	run := table
	switch {
	case o.child:
		run = child
	case o.search > 0:
		run = search
	case o.plots != "":
		run = growth
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func names() (out []string) {
	for _, k := range backends.All {
		if !k.Slow {
			out = append(out, k.Name)
		}
	}
	return out
}

// table measures shapes one after the other.
func table(o options) error {
	print := row
	if o.flips > 0 {
		print = flipsRow
		fmt.Println("| shape | n | changes of another tenant | median | longest |\n|---|---|---|---|---|")
	} else {
		fmt.Println("| shape | n | policies | CPU | wall | memory | heap after | image | other tenant | longest turn | longest commit | status | delete | not enforced |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|")
	}
	for _, s := range shapes.All {
		if o.shape != "" && s.Name != o.shape {
			continue
		}
		sizes := []int{s.Size}
		if o.sizes != "" {
			sizes = nil
			for text := range strings.SplitSeq(o.sizes, ",") {
				n, err := strconv.Atoi(text)
				if err != nil {
					return fmt.Errorf("-n: %w", err)
				}
				sizes = append(sizes, n)
			}
		}
		for _, n := range sizes {
			fmt.Println(print(s, n, o))
		}
	}
	return nil
}

// row measures one shape.
func row(s shapes.Shape, n int, o options) string {
	r, err := inProcess(s, n, o)
	if err != nil {
		return fmt.Sprintf("| %s | %d | | not done: %v |", s.Name, n, err)
	}
	return fmt.Sprintf("| %s | %d | %d KB | %.2f s | %.2f s | %d MiB | %d MiB | %d MiB | %d ms | %d ms (%s) | %d ms | %d ms | %.2f s | %d %s |", s.Name, n, r.Bytes>>10,
		r.CPU.Seconds(), r.Wall.Seconds(), r.RSS>>20, r.Heap>>20, r.Image>>20, r.Other.Milliseconds(), r.Turn.Milliseconds(), r.Stages, r.Commit.Milliseconds(), r.Look.Milliseconds(), r.Delete.Seconds(), r.Refused, r.Err)
}

// inProcess measures one shape in a process of its own.
func inProcess(s shapes.Shape, n int, o options) (r result, err error) {
	return r, decoded(s, n, o, &r)
}

// decoded measures one shape in a process of its own, and sets what that prints.
func decoded(s shapes.Shape, n int, o options, to any) error {
	cmd, err := measured(o, "-shape", s.Name, "-n", strconv.Itoa(n), "-profile", o.profile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(cmd.out, to); err != nil {
		return fmt.Errorf("%.1f s CPU, %d MiB, %w", cmd.cpu.Seconds(), cmd.memory>>20, errors.Join(cmd.err, err))
	}
	return nil
}

// process is one that has ended.
type process struct {
	out    []byte
	err    error
	late   bool // it was ended by the limit
	cpu    time.Duration
	memory uint64
}

// measured runs this program as a child.
func measured(o options, args ...string) (p process, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), o.limit)
	defer cancel()
	self, err := os.Executable()
	if err != nil {
		return p, err
	}
	args = append([]string{"-child", "-renderer", o.renderer, "-policy-memory", strconv.FormatUint(o.memory, 10), "-flips", o.flips.String()}, args...)
	cmd := exec.CommandContext(ctx, self, args...) //nolint:gosec // itself
	cmd.Stderr = os.Stderr
	p.out, p.err = cmd.Output()
	p.late = ctx.Err() != nil
	if st := cmd.ProcessState; st != nil {
		p.cpu = st.UserTime() + st.SystemTime()
		if usage, ok := st.SysUsage().(*syscall.Rusage); ok {
			p.memory = uint64(usage.Maxrss) << 10
		}
	}
	return p, nil
}

// objects returns the manifests that a child is to measure.
func (o options) objects() ([]any, error) {
	if o.genome != "" {
		var g shapes.Genome
		if err := json.Unmarshal([]byte(o.genome), &g); err != nil {
			return nil, fmt.Errorf("-genome: %w", err)
		}
		return g.Objects(searchBytes), nil
	}
	s, ok := shapes.Named(o.shape)
	if !ok {
		return nil, fmt.Errorf("there is no shape %q", o.shape)
	}
	n, err := strconv.Atoi(o.sizes)
	if err != nil {
		return nil, fmt.Errorf("-n: %w", err)
	}
	return s.Objects(n), nil
}

func child(o options) error {
	objects, err := o.objects()
	if err != nil {
		return err
	}
	if o.flips > 0 {
		took, err := underFlips(objects, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(took)
	}
	r, err := measure(objects, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(r)
}

// changes is objects as the plugin takes them; nil values delete them.
func changes(objects []any, resync, del bool) (c model.Changes, err error) {
	c.Resync = resync
	for _, o := range objects {
		m, problems := convert.ToModel(o)
		if len(problems) > 0 {
			return c, fmt.Errorf("an object of a shape has a problem: %w", problems[0])
		}
		id, err := model.IDOf(m)
		if err != nil {
			return c, err
		}
		if del {
			m = nil
		}
		c.Deltas = append(c.Deltas, model.Delta{ID: id, Value: m})
	}
	return c, nil
}

// otherAfter is when another tenant's policy comes.
const otherAfter = 10 * time.Millisecond

// measure applies the objects of a tenant to a node.
func measure(objects []any, o options) (r result, err error) {
	target, done, err := newRenderer(o.renderer, o.memory)
	if err != nil {
		return r, err
	}
	enforced := make(chan struct{})
	var longest atomic.Int64
	for i, t := range target {
		first := sync.OnceFunc(func() { close(enforced) })
		target[i] = &witness{Renderer: t, longest: &longest, enforced: func(isolated bool) {
			if isolated {
				first()
			}
		}}
	}
	defer func() { err = errors.Join(err, done()) }()
	var turns turns
	p := policy.New(policy.Deps{Node: shapes.Node, Renderers: target, ApplyTimeout: time.Hour, Observer: turns.observer()})
	if err := errors.Join(p.Init(), p.AfterInit()); err != nil {
		return r, err
	}
	r.Bytes = shapes.Bytes(shapes.Policies(objects))
	isPolicy := func(o any) bool { _, pod := o.(*corev1.Pod); return !pod }
	pods, err := changes(append(slices.DeleteFunc(slices.Clone(objects), isPolicy), shapes.Bystander()), true, false)
	if err != nil {
		return r, err
	}
	policies, err := changes(shapes.Policies(objects), false, false)
	if err != nil {
		return r, err
	}
	other, err := changes([]any{shapes.Bystanding()}, false, false)
	if err != nil {
		return r, err
	}
	gone, err := changes(shapes.Policies(objects), false, true)
	if err != nil {
		return r, err
	}
	debug.FreeOSMemory()
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return r, err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		if err := pprof.StartCPUProfile(f); err != nil {
			return r, err
		}
	}
	apply := func(c model.Changes) time.Duration {
		began := used()
		if e := p.Apply(context.Background(), c); e != nil {
			r.Err = e.Error()
		}
		return used() - began
	}
	apply(pods)
	turns.forget()
	longest.Store(0)
	start := time.Now()
	var wg sync.WaitGroup
	if len(target) > 0 {
		wg.Add(1)
		time.AfterFunc(otherAfter, func() {
			defer wg.Done()
			begin := time.Now()
			wg.Go(func() { _ = p.Apply(context.Background(), other) }) // a failure is in the status
			<-enforced
			r.Other = time.Since(begin)
		})
	}
	r.CPU = apply(policies)
	wg.Wait()
	r.Wall = time.Since(start)
	r.Turn, r.Stages = turns.longest()
	pprof.StopCPUProfile()
	for _, s := range p.Status().Renderers {
		r.Err += s.Error
	}
	r.Refused = p.Status().Unenforced
	for _, t := range target {
		if i, ok := renderer.As[renderer.Inspector](t); ok {
			r.Image = i.State().Memory.Needed
		}
	}
	began := used()
	if _, err := p.Snapshot(context.Background()); err != nil {
		return r, err
	}
	r.Look = used() - began
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	r.Heap, r.RSS = m.HeapAlloc, peak()
	if o.profile != "" {
		f, err := os.Create(o.profile + ".heap")
		if err != nil {
			return r, err
		}
		if err := errors.Join(pprof.WriteHeapProfile(f), f.Close()); err != nil {
			return r, err
		}
	}
	turns.forget()
	r.Delete = apply(gone)
	r.DeleteTurn, _ = turns.longest()
	r.Commit = time.Duration(longest.Load())
	return r, p.Close()
}

// newRenderer returns the dataplane's renderer; the name none selects no renderer.
func newRenderer(name string, memory uint64) (r []renderer.Renderer, done func() error, err error) {
	done = func() error { return nil }
	switch name {
	case "none":
		return nil, done, nil
	case "xdp":
		x, err := xdp.New(xdp.Options{Dataplane: xdp.NewHeap(), Interfaces: interfaces(), PolicyMemory: memory << 20})
		if err != nil {
			return nil, nil, err
		}
		return []renderer.Renderer{x}, x.Close, nil
	}
	i := slices.IndexFunc(backends.All, func(k backends.Kind) bool { return k.Name == name })
	if i < 0 {
		return nil, nil, fmt.Errorf("there is no renderer %q", name)
	}
	s, err := backends.All[i].New(func() {})
	if err != nil {
		return nil, nil, err
	}
	return []renderer.Renderer{s.Renderer()}, s.Close, nil
}

// witness is a renderer that says when a change of the other tenant's pod is committed, and whether
// that isolates it.
type witness struct {
	renderer.Renderer
	enforced func(isolated bool)
	longest  *atomic.Int64 // commit
}

func (w *witness) Unwrap() renderer.Renderer { return w.Renderer }

func (w *witness) Apply(ctx context.Context, c renderer.Changes) error {
	rendered, isolated := false, false
	for pod, cfg := range c.Pods {
		if pod.Namespace == shapes.Other && cfg != nil {
			rendered, isolated = true, cfg.Egress != nil
		}
	}
	runtime.LockOSThread()
	began := usedBy(syscall.RUSAGE_THREAD)
	err := w.Renderer.Apply(ctx, c)
	took := usedBy(syscall.RUSAGE_THREAD) - began
	runtime.UnlockOSThread()
	w.longest.Store(max(w.longest.Load(), int64(took)))
	if rendered {
		w.enforced(isolated)
	}
	return err
}

// interfaces gives every pod a number.
func interfaces() func(api.PodID, []netip.Addr) []uint32 {
	numbers := map[api.PodID]uint32{}
	return func(pod api.PodID, _ []netip.Addr) []uint32 {
		if numbers[pod] == 0 {
			numbers[pod] = uint32(len(numbers) + 1)
		}
		return []uint32{numbers[pod]}
	}
}

// used is the processor time of this process.
func used() time.Duration { return usedBy(syscall.RUSAGE_SELF) }

func usedBy(who int) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// peak is the most memory this process had.
func peak() uint64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return uint64(u.Maxrss) << 10
}
