package main

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
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
	flag.Parse()
	if err := run(strings.Split(*sets, ","), *sizes, *reps); err != nil {
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
}

func run(sets []string, most, reps int) error {
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
		if err := table(spec, kind, sizes, reps); err != nil {
			return err
		}
	}
	return nil
}

// table prints one kind of addresses.
func table(spec *ebpf.CollectionSpec, kind string, sizes []int, reps int) error {
	fmt.Printf("\n### %s\n\n| design | packets |", kind)
	for _, n := range sizes {
		fmt.Printf(" %d |", n)
	}
	fmt.Printf("\n|---|---|")
	for range sizes {
		fmt.Printf("--:|")
	}
	fmt.Println()
	cells := map[string]string{}
	for _, n := range sizes {
		if err := column(spec, kind, n, reps, cells); err != nil {
			return err
		}
	}
	for _, d := range designs {
		for _, mode := range modes {
			fmt.Printf("| %s | %s |", d.name, mode)
			for _, n := range sizes {
				fmt.Printf(" %s |", cells[fmt.Sprint(d.name, mode, n)])
			}
			fmt.Println()
		}
	}
	return nil
}

// column measures everything for one number of addresses.
func column(spec *ebpf.CollectionSpec, kind string, n, reps int, cells map[string]string) error {
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
		if err := fill(c, what, peers, both); err != nil {
			return err
		}
		for _, d := range designs {
			if d.both != both {
				continue
			}
			for _, mode := range modes {
				cell := "–"
				if n <= d.atMost {
					ns, err := measure(c, d.program, peers, mode, reps)
					if err != nil {
						return fmt.Errorf("%s: %w", d.name, err)
					}
					cell = fmt.Sprintf("%.0f", ns)
				}
				cells[fmt.Sprint(d.name, mode, n)] = cell
			}
		}
		c.Close()
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
