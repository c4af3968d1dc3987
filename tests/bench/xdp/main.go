package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
)

func main() {
	sizes := flag.Int("max", 100000, "addresses at most")
	reps := flag.Int("reps", 20, "runs of which the best counts")
	sets := flag.String("sets", "pods,blocks", "kinds of addresses")
	plots := flag.String("plots", "", "folder to write a plot of each kind of addresses to, as SVG")
	flag.Parse()
	if err := run(strings.Split(*sets, ","), *sizes, *reps, *plots); err != nil {
		fmt.Fprintln(os.Stderr, "bench/xdp:", err)
		os.Exit(1)
	}
}

// design is a program and what it is called.
type design struct {
	program, name string
	both          bool // the pod's own traffic is closed, so that answers need evidence
	atMost        int  // addresses
}

var designs = []design{
	{"bench_sluice", "**sluice**, ingress isolated", false, 1 << 30},
	{"bench_sluice", "**sluice**, both directions isolated", true, 1 << 30},
	{"bench_lpm", "prefixes with port lists", false, 1 << 30},
	{"bench_identity", "identity, then policy", false, 1 << 30},
	{"bench_linear", "rule by rule, no connections", false, 1000},
	{nftables, "nftables, a set, no connections", false, 1 << 30},
	{"bench_connected", "a table of connections, no policy", false, 1 << 30},
}

func run(sets []string, most, reps int, plots string) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	spec, err := LoadBench()
	if err != nil {
		return err
	}
	spec.Maps["mem"].MaxEntries = 1 << 20
	spec.Maps["hits"].MaxEntries = 64
	spec.Maps["flows"].MaxEntries = 1 << 16
	if err := errors.Join(spec.Variables["flow_mask"].Set(uint32(1<<16-1)), spec.Variables["reorders"].Set(uint32(0))); err != nil {
		return err
	}
	var sizes []int
	for n := 10; n <= most; n *= 10 {
		sizes = append(sizes, n)
	}
	fmt.Printf("ns per packet over an empty program, best of %d runs; %s, %d processors\n", reps, runtime.GOARCH, runtime.NumCPU())
	for _, kind := range sets {
		r, err := table(spec, kind, sizes, reps)
		if err != nil {
			return err
		}
		if plots == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(plots, "xdp-"+kind+".svg"), []byte(r.plot(kind)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// results are what was measured, by the name of the design, what packets are, and addresses.
type results struct {
	sizes []int
	ns    map[key]float64
	bytes map[key]uint64 // of memory
}

type key struct {
	design, packets string
	size            int
}

// table prints one kind of addresses.
func table(spec *ebpf.CollectionSpec, kind string, sizes []int, reps int) (results, error) {
	r := results{sizes: sizes, ns: map[key]float64{}, bytes: map[key]uint64{}}
	for _, n := range sizes {
		if err := column(spec, kind, n, reps, r); err != nil {
			return r, err
		}
	}
	r.print(kind, "design | packets", "|---|---|", func(d design) (rows [][]string) {
		for _, mode := range modes {
			row := []string{d.name + " | " + mode}
			for _, n := range sizes {
				row = append(row, cell(r.ns, key{d.name, mode, n}, func(ns float64) string { return fmt.Sprintf("%.0f", ns) }))
			}
			rows = append(rows, row)
		}
		return rows
	})
	r.print(kind+", memory in KiB", "design", "|---|", func(d design) [][]string {
		row := []string{d.name}
		for _, n := range sizes {
			row = append(row, cell(r.bytes, key{d.name, "", n}, func(b uint64) string { return fmt.Sprintf("%d", (b+1023)>>10) }))
		}
		return [][]string{row}
	})
	return r, nil
}

// cell is what was measured, or says that it was not.
func cell[T any](of map[key]T, k key, text func(T) string) string {
	if v, ok := of[k]; ok {
		return text(v)
	}
	return "–"
}

// print writes a table with the rows of every design.
func (r results) print(title, first, line string, rows func(design) [][]string) {
	fmt.Printf("\n### %s\n\n| %s |", title, first)
	for _, n := range r.sizes {
		fmt.Printf(" %d |", n)
	}
	fmt.Printf("\n%s%s\n", line, strings.Repeat("--:|", len(r.sizes)))
	for _, d := range designs {
		for _, row := range rows(d) {
			fmt.Printf("| %s |\n", strings.Join(row, " | "))
		}
	}
}

// column measures everything for one number of addresses.
func column(spec *ebpf.CollectionSpec, kind string, n, reps int, r results) error {
	peers := members(kind, n)
	for _, both := range []bool{false, true} {
		c, err := ebpf.NewCollection(spec)
		if err != nil {
			return err
		}
		what := "all"
		if both {
			what = "own"
		}
		used, err := fill(c, what, peers, both)
		if err != nil {
			return err
		}
		var here []design
		for _, d := range designs {
			if d.both != both || n > d.atMost {
				continue
			}
			if here = append(here, d); used[d.program] > 0 {
				r.bytes[key{d.name, "", n}] = used[d.program]
			}
		}
		for _, mode := range modes {
			if err := compare(c, here, peers, mode, reps, r); err != nil {
				return err
			}
		}
		c.Close()
	}
	return nil
}

// compare measures designs by the same packets. They take turns, so that nobody has all of a time in
// which the machine is slow.
func compare(c *ebpf.Collection, designs []design, peers []netip.Prefix, mode string, reps int, r results) error {
	m := &meter{c: c, peers: peers, mode: mode, best: map[string]time.Duration{}}
	for range (reps + inTurn - 1) / inTurn {
		if err := m.turn("bench_empty"); err != nil {
			return err
		}
		for _, d := range designs {
			if d.program == nftables {
				continue
			}
			if err := m.turn(d.program); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
	}
	for _, d := range designs {
		ns := float64(m.best[d.program] - m.best["bench_empty"])
		if d.program == nftables {
			var used uint64
			var err error
			if ns, used, err = measureNFT(c, peers, mode, reps); errors.Is(err, errNoNFT) {
				continue
			} else if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			r.bytes[key{d.name, "", len(peers)}] = used
		}
		r.ns[key{d.name, mode, len(peers)}] = ns
	}
	return nil
}

// perRun is how many packets a run has, and inTurn how many runs a design has before the next one: all
// flows are met once.
const (
	perRun = 16384
	inTurn = flowTable / perRun
)

// meter has the best run of every program.
type meter struct {
	c     *ebpf.Collection
	peers []netip.Prefix
	mode  string
	best  map[string]time.Duration
	turns uint64
}

// turn has a program see all flows, each for the first time where they are new; else they have been
// seen, and caches are the program's.
func (m *meter) turn(program string) error {
	seed := uint64(2)
	if m.mode == opening {
		m.turns++
		seed += m.turns
	}
	if err := table65536(m.c.Maps["bench_flows"], flows(m.peers, m.mode, rand.New(rand.NewPCG(1, seed)))); err != nil {
		return err
	}
	if err := m.c.Variables["bench_at"].Set(uint32(0)); err != nil {
		return err
	}
	if m.mode != opening {
		if _, err := bench(m.c.Programs[program], flowTable); err != nil {
			return err
		}
	}
	for range inTurn {
		d, err := bench(m.c.Programs[program], perRun)
		if err != nil {
			return err
		}
		if best, ok := m.best[program]; !ok || d < best {
			m.best[program] = d
		}
	}
	return nil
}

// bench runs a program so many times and returns the time of one run.
func bench(p *ebpf.Program, times int) (time.Duration, error) {
	packet := xdp.Frame(api.Flow{
		Src: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Dst: netip.AddrFrom4([4]byte{10, 255, 0, 1}), Protocol: api.TCP, SrcPort: 1, DstPort: 80,
	}, false)
	_, d, err := p.Benchmark(append(packet, make([]byte, 64-len(packet)%64)...), times, nil)
	return d, err
}

// table65536 writes the flows.
func table65536(m *ebpf.Map, all []flow) error {
	keys := make([]uint32, len(all))
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := m.BatchUpdate(keys, all, nil)
	return err
}
