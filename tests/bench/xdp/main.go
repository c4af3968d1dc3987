package main

import (
	"bytes"
	_ "embed" // the programs
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/tests/bench/plot"
)

// programs are those of all designs, for the kernel.
//
//go:embed bench_bpfel.o
var programs []byte

func main() {
	least := flag.Int("min", 10, "addresses at least")
	most := flag.Int("max", 100000, "addresses at most")
	var e effort
	flag.IntVar(&e.rounds, "rounds", 3, "rounds, each with maps that lie elsewhere in memory, of which the best counts")
	flag.IntVar(&e.reps, "reps", 16, "runs in a round, of which the best counts")
	sets := flag.String("sets", "pods,blocks,pods6", "kinds of addresses")
	plots := flag.String("plots", "", "folder to write a plot of each kind of addresses to, as SVG")
	flag.Parse()
	if err := run(strings.Split(*sets, ","), decades(*least, *most), e, *plots); err != nil {
		fmt.Fprintln(os.Stderr, "bench/xdp:", err)
		os.Exit(1)
	}
}

// effort is how often a thing is measured.
type effort struct{ rounds, reps int }

// design is a program and what it is called.
type design struct {
	program, name string
	kind          kind
	atMost        int // addresses
}

// kind is what a design is compared with.
type kind int

const (
	own       kind = iota // one direction is isolated: what the pod sends passes, and replies need no tracked connection
	ownBoth               // the pod's own traffic is restricted, too, so that replies need a tracked connection
	stateless             // does not know answers
	stateful
	floor // no design
)

// rivals reports whether a design does what an own one does.
func (k kind) rivals(o kind) bool { return k == stateful || k == stateless && o == own }

var designs = []design{
	{"bench_sluice", "**sluice**, ingress isolated", own, 1 << 30},
	{"bench_both", "**sluice**, both directions isolated", ownBoth, 1 << 30},
	{"bench_lpm", "prefixes with port lists", stateful, 1 << 30},
	{"bench_identity", "identity, then policy", stateful, 1 << 30},
	{"bench_linear", "rule by rule, no connections", stateless, 1000},
	{nftables, "nftables, a set, no connections", stateless, 1 << 30},
	{"bench_connected", "a table of connections, no policy", floor, 1 << 30},
}

// designs6 are those that were made for IPv6, too.
var designs6 = []design{
	{"bench_sluice6", "**sluice**, ingress isolated", own, 1 << 30},
	{"bench_both6", "**sluice**, both directions isolated", ownBoth, 1 << 30},
}

// decades are the powers of ten from least to most.
func decades(least, most int) (out []int) {
	for n := 10; n <= most; n *= 10 {
		if n >= least {
			out = append(out, n)
		}
	}
	return out
}

func run(sets []string, sizes []int, e effort, plots string) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(programs))
	if err != nil {
		return err
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !strings.HasPrefix(name, "bench_") }) // others need to know the kernel
	memory := bpf.Sizes{Lines: 1 << 18, Slots: 64, Buckets: 1 << 16, CPUs: ebpf.MustPossibleCPU()}
	if err := errors.Join(memory.Apply(spec), spec.Variables[bpf.SluiceVarReorders].Set(uint32(0))); err != nil {
		return err
	}
	fmt.Printf("ns per packet over an empty program, best of %d rounds of %d runs; %s, %d processors\n", e.rounds, e.reps, runtime.GOARCH, runtime.NumCPU())
	for _, kind := range sets {
		r, err := table(spec, kind, sizes, e)
		if err != nil {
			return err
		}
		if plots == "" {
			continue
		}
		if err := plot.Write(plots, map[string]string{"xdp-" + kind + ".svg": r.plot(kind)}); err != nil {
			return err
		}
	}
	return nil
}

// column measures everything for one number of addresses, once.
func column(spec *ebpf.CollectionSpec, kind string, n, reps int, r results) error {
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		return err
	}
	defer c.Close()
	peers := members(kind, n)
	used, err := fill(c, peers)
	if err != nil {
		return err
	}
	var here []design
	for _, d := range familyOf(kind).designs() {
		if n > d.atMost {
			continue
		}
		if here = append(here, d); used[d.program] > 0 {
			r.bytes[key{d.name, "", n}] = used[d.program]
		}
	}
	for _, mode := range modes {
		if err := compare(c, familyOf(kind), here, peers, mode, reps, r); err != nil {
			return err
		}
	}
	return nil
}
