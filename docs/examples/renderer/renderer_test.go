package device

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// memory is a device in memory, with a renderer above it. It implements renderertest.Subject,
// Inspector and Restarter.
type memory struct {
	renderer   *Renderer
	tables     map[api.PodID]Table
	operations int
	failing    int // the number of the call that fails, 1 being the next; 0 is none
}

// TestRendererKeepsContract is all that a new renderer needs.
func TestRendererKeepsContract(t *testing.T) {
	renderertest.Run(t, func(testing.TB) renderertest.Subject {
		m := &memory{tables: map[api.PodID]Table{}}
		m.renderer = New(m)
		return m
	})
}

var errDevice = errors.New("the device failed")

func (m *memory) call() error {
	if m.failing == 0 {
		return nil
	}
	if m.failing--; m.failing == 0 {
		return errDevice
	}
	return nil
}

func (m *memory) Tables() (map[api.PodID]Table, error) { return maps.Clone(m.tables), m.call() }

func (m *memory) Put(pod api.PodID, t Table) error {
	if err := m.call(); err != nil {
		return err
	}
	m.operations++
	m.tables[pod] = t
	return nil
}

func (m *memory) Delete(pod api.PodID) error {
	if err := m.call(); err != nil {
		return err
	}
	m.operations++
	delete(m.tables, pod)
	return nil
}

func (m *memory) Renderer() renderer.Renderer { return m.renderer }
func (m *memory) Operations() int             { return m.operations }
func (m *memory) FailNext(n int)              { m.failing = n }

func (m *memory) Restart() error {
	m.renderer = New(m)
	return nil
}

// Verdict forwards a packet: the tables of both ends must permit it. What a pod sends to itself
// does not come here.
func (m *memory) Verdict(f api.Flow) api.Action {
	for _, t := range m.tables {
		sends, receives := slices.Contains(t.IPs, f.Src), slices.Contains(t.IPs, f.Dst)
		if sends && !receives && !permits(t.FromPod, f, f.Dst) || receives && !sends && !permits(t.ToPod, f, f.Src) {
			return api.Deny
		}
	}
	return api.Permit
}

func permits(rules []Rule, f api.Flow, peer netip.Addr) bool {
	for _, r := range rules {
		match := api.ContivRule{Protocol: r.Protocol, SrcPort: r.SrcPort, DstPort: r.DstPort}
		if match.Matches(f, nil) && (len(r.Peers) == 0 || slices.ContainsFunc(r.Peers, func(p netip.Prefix) bool { return p.Contains(peer) })) {
			return r.Permit
		}
	}
	return rules == nil
}

func (m *memory) Installed() (string, error) {
	var out string
	for _, pod := range slices.SortedFunc(maps.Keys(m.tables), api.PodID.Compare) {
		out += fmt.Sprintf("%s: %+v\n", pod, m.tables[pod])
	}
	return out, nil
}

func (m *memory) Dangling() []string { return nil }
