package policymap

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
)

// Grace waits for packets in flight. It is safe for concurrent use.
type Grace struct {
	outer, inner *ebpf.Map // an update of outer returns when all programs have ended that ran when it began
}

// NewGrace creates the maps that Wait uses.
func NewGrace() (g *Grace, err error) {
	g = &Grace{}
	spec := &ebpf.MapSpec{Name: "sluice_inner", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: 1}
	if g.inner, err = ebpf.NewMap(spec); err != nil {
		return nil, fmt.Errorf("map for grace periods: %w", err)
	}
	g.outer, err = ebpf.NewMap(&ebpf.MapSpec{Name: "sluice_grace", Type: ebpf.ArrayOfMaps, KeySize: 4, ValueSize: 4, MaxEntries: 1, InnerMap: spec})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("map for grace periods: %w", err), g.inner.Close())
	}
	return g, nil
}

// Wait returns when all packets have been judged that were in flight when it was called.
func (g *Grace) Wait() error {
	if err := g.outer.Put(uint32(0), g.inner); err != nil {
		return fmt.Errorf("wait for packets in flight: %w", err)
	}
	return nil
}

// Maps returns the maps that Wait uses.
func (g *Grace) Maps() []*ebpf.Map { return []*ebpf.Map{g.outer, g.inner} }

// Close closes the maps.
func (g *Grace) Close() error {
	if g == nil {
		return nil
	}
	return errors.Join(g.outer.Close(), g.inner.Close())
}
