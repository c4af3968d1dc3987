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
	{"bench_lpm", "prefixes with port lists, connections first", false, 1 << 30},
	{"bench_identity", "identity, then policy, connections first", false, 1 << 30},
	{"bench_linear", "rule by rule", false, 1000},
	{nftables, "nftables, a set, no connections", false, 1 << 30},
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
		for _, d := range designs {
			if d.both != both || n > d.atMost {
				continue
			}
			if err := d.column(c, peers, reps, used, r); err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
		}
		c.Close()
	}
	return nil
}

// column measures one design.
func (d design) column(c *ebpf.Collection, peers []netip.Prefix, reps int, used map[string]uint64, r results) error {
	n := len(peers)
	for _, mode := range modes {
		ns, err := 0.0, error(nil)
		if d.program == nftables {
			ns, err = measureNFT(c, peers, mode, reps)
		} else {
			ns, err = measure(c, d.program, peers, mode, reps)
		}
		if errors.Is(err, errNoNFT) {
			return nil
		}
		if err != nil {
			return err
		}
		r.ns[key{d.name, mode, n}] = ns
	}
	if b, ok := used[d.program]; ok {
		r.bytes[key{d.name, "", n}] = b
	}
	return nil
}

// perRun is how many packets a run has; a run through all flows comes before.
const perRun = 16384

// measure returns what a packet costs more than an empty program's.
func measure(c *ebpf.Collection, program string, peers []netip.Prefix, mode string, reps int) (float64, error) {
	rng := rand.New(rand.NewPCG(1, 2))
	packet := xdp.Frame(api.Flow{
		Src: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Dst: netip.AddrFrom4([4]byte{10, 255, 0, 1}), Protocol: api.TCP, SrcPort: 1, DstPort: 80,
	}, false)
	packet = append(packet, make([]byte, 64-len(packet)%64)...)
	load := func() error { return table65536(c.Maps["bench_flows"], flows(peers, mode, rng)) }
	if err := load(); err != nil {
		return 0, err
	}
	mask := uint32(flowTable - 1)
	if err := c.Variables["bench_mask"].Set(mask); err != nil {
		return 0, err
	}
	best := map[string]time.Duration{"bench_empty": time.Hour, program: time.Hour}
	if mode != opening {
		if _, err := bench(c.Programs[program], packet, flowTable); err != nil {
			return 0, err
		}
	}
	for i := range reps {
		if mode == opening && i%4 == 0 { // flows that nobody has seen
			if err := load(); err != nil {
				return 0, err
			}
		}
		for name := range best {
			d, err := bench(c.Programs[name], packet, perRun)
			if err != nil {
				return 0, err
			}
			best[name] = min(best[name], d)
		}
	}
	return float64(best[program] - best["bench_empty"]), nil
}

// bench runs a program so many times and returns the time of one run.
func bench(p *ebpf.Program, packet []byte, times int) (time.Duration, error) {
	_, d, err := p.Benchmark(packet, times, nil)
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
