package backends

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
)

// xdpBackend is the XDP renderer over a plane: memory in the heap, which is read by the algorithm
// of the program in the kernel.
type xdpBackend struct {
	tap     *xdptest.Tap
	options xdp.Options
	xdp     *xdp.Renderer
}

var (
	_ Backend = (*xdpBackend)(nil)
	_ Tabled  = (*xdpBackend)(nil)
)

func newXDP(prompt func()) (Backend, error) { return overPlane(xdp.NewHeap(), prompt) }

func overPlane(plane xdp.Dataplane, prompt func()) (*xdpBackend, error) {
	s := &xdpBackend{tap: &xdptest.Tap{Dataplane: plane}}
	s.options = xdp.Options{Dataplane: s.tap, Interfaces: interfacesOf, OnChange: prompt}
	return s, s.Restart()
}

// interfacesOf gives every pod an interface, as if it had just been attached. Its number is
// a function of the pod.
func interfacesOf(pod api.PodID, _ []netip.Addr) []uint32 {
	return []uint32{crc32.ChecksumIEEE([]byte(pod.String())) | 1}
}

func (s *xdpBackend) Renderer() renderer.Renderer { return s.xdp }
func (s *xdpBackend) Operations() int             { return s.tap.Operations() }
func (s *xdpBackend) FailNext(n int)              { s.tap.FailNext(n) }

func (s *xdpBackend) Verdict(f api.Flow) api.Action {
	a, err := s.xdp.Verdict(f)
	if err != nil {
		panic(fmt.Sprintf("the plane does not answer: %v", err)) // no backend can continue then
	}
	return a
}

func (s *xdpBackend) Has(a netip.Addr) bool { return s.xdp.Has(a) }

func (s *xdpBackend) Trace(f api.Flow) string {
	var b strings.Builder
	for _, d := range s.xdp.Explain(f) {
		fmt.Fprintf(&b, "%s: rule %d %s, %s\n", d.Table, d.Rule, d.Match, d.Action)
	}
	return b.String() + s.Verdict(f).String()
}

func (s *xdpBackend) Installed() (string, error) { return xdptest.Installed(s.xdp) }
func (s *xdpBackend) Dangling() []string         { return s.tap.Dangling() }

// Restart implements Backend.
func (s *xdpBackend) Restart() (err error) {
	if s.xdp != nil {
		if err := s.xdp.Close(); err != nil {
			return err
		}
	}
	s.xdp, err = xdp.New(s.options)
	return err
}

func (s *xdpBackend) Close() error { return s.xdp.Close() }

// Tables implements Tabled.
func (s *xdpBackend) Tables() []Table {
	var out []Table
	for _, t := range s.xdp.State().Tables {
		table := Table{Pods: slices.SortedFunc(slices.Values(t.Pods), api.PodID.Compare)}
		for _, r := range t.Rules {
			table.Rules = append(table.Rules, r.String())
		}
		out = append(out, table)
	}
	return out
}
