package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// compare measures designs by the same packets. They take turns, so that a time in which the
// machine is slow affects all designs alike.
func compare(c *ebpf.Collection, f family, designs []design, peers []netip.Prefix, mode string, reps int, r results) error {
	m := &meter{c: c, family: f, peers: peers, mode: mode, best: map[string]time.Duration{}}
	for range (reps + inTurn - 1) / inTurn {
		if err := m.turn(f.empty); err != nil {
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
		now := took{float64(m.best[d.program]), float64(m.best[f.empty])}
		if d.program == nftables {
			var used uint64
			var err error
			if now, used, err = measureNFT(c, peers, mode, reps); errors.Is(err, errNoNFT) {
				continue
			} else if err != nil {
				return fmt.Errorf("%s: %w", d.name, err)
			}
			r.bytes[key{d.name, "", len(peers)}] = used
		}
		r.measured(key{d.name, mode, len(peers)}, now)
	}
	return nil
}

// perRun is how many packets a run has, and inTurn how many runs a design has before the next one:
// all flows are met once.
const (
	perRun = 16384
	inTurn = flowTable / perRun
)

// meter records the best run of every program.
type meter struct {
	c      *ebpf.Collection
	family family
	peers  []netip.Prefix
	mode   string
	best   map[string]time.Duration
	begun  uint64
}

// turn sends all flows to a program. New flows send their first packets. The others start in one
// order and continue in another, so that the caches hold only what this program leaves there.
func (m *meter) turn(program string) error {
	seed := uint64(2)
	if m.mode == opening {
		m.begun++
		seed += m.begun
	}
	rng := rand.New(rand.NewPCG(1, seed))
	all := flows(m.peers, m.mode, rng)
	if err := m.offer(all); err != nil {
		return err
	}
	if m.mode != opening {
		if _, err := m.run(program, flowTable); err != nil {
			return err
		}
		rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if err := m.offer(all); err != nil {
			return err
		}
		if _, err := m.run(program, flowTable); err != nil {
			return err
		}
	}
	for range inTurn {
		d, err := m.run(program, perRun)
		if err != nil {
			return err
		}
		if best, ok := m.best[program]; !ok || d < best {
			m.best[program] = d
		}
	}
	return nil
}

// offer sets the flows of the next packets, in this order.
func (m *meter) offer(all []flow) error {
	if err := table65536(m.c.Maps[m.family.flows], m.family.rows(all)); err != nil {
		return err
	}
	return m.c.Variables["bench_at"].Set(uint32(0))
}

// run runs a program so many times and returns the time of one run.
func (m *meter) run(program string, times int) (time.Duration, error) {
	packet := xdp.Frame(api.Flow{Src: m.peers[0].Addr(), Dst: m.family.pod, Protocol: api.TCP, SrcPort: 1, DstPort: 80}, false)
	_, d, err := m.c.Programs[program].Benchmark(append(packet, make([]byte, 64-len(packet)%64)...), times, nil)
	return d, err
}

// table65536 writes the rows of flows.
func table65536(m *ebpf.Map, rows any) error {
	keys := make([]uint32, flowTable)
	for i := range keys {
		keys[i] = uint32(i)
	}
	_, err := m.BatchUpdate(keys, rows, nil)
	return err
}
