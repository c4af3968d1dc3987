package stacks

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

// xdpStack is the XDP renderer over a plane: memory in the heap, which is read by the algorithm
// of the program in the kernel.
type xdpStack struct {
	tap     *xdptest.Tap
	options xdp.Options
	xdp     *xdp.Renderer
}

var (
	_ Stack  = (*xdpStack)(nil)
	_ Tabled = (*xdpStack)(nil)
)

func newXDP(prompt func()) (Stack, error) { return overPlane(xdp.NewHeap(), prompt) }

func overPlane(plane xdp.Plane, prompt func()) (*xdpStack, error) {
	s := &xdpStack{tap: &xdptest.Tap{Plane: plane}}
	s.options = xdp.Options{Plane: s.tap, Interfaces: interfacesOf, OnChange: prompt}
	return s, s.Restart()
}

// interfacesOf gives every pod an interface, as if it had just been attached. Its number is
// a function of the pod.
func interfacesOf(pod api.PodID, _ []netip.Addr) []uint32 {
	return []uint32{crc32.ChecksumIEEE([]byte(pod.String())) | 1}
}

func (s *xdpStack) Renderer() renderer.Renderer { return s.xdp }
func (s *xdpStack) Operations() int             { return s.tap.Operations() }
func (s *xdpStack) FailNext(n int)              { s.tap.FailNext(n) }

func (s *xdpStack) Verdict(f api.Flow) api.Action {
	a, err := s.xdp.Verdict(f)
	if err != nil {
		panic(fmt.Sprintf("the plane does not answer: %v", err)) // no stack can go on then
	}
	return a
}

func (s *xdpStack) Has(a netip.Addr) bool { return s.xdp.Has(a) }

func (s *xdpStack) Trace(f api.Flow) string {
	var b strings.Builder
	for _, d := range s.xdp.Explain(f) {
		fmt.Fprintf(&b, "%s: rule %d %s, %s\n", d.Table, d.Rule, d.Match, d.Action)
	}
	return b.String() + s.Verdict(f).String()
}

func (s *xdpStack) Installed() (string, error) { return xdptest.Installed(s.xdp) }
func (s *xdpStack) Dangling() []string         { return s.tap.Dangling() }

// Restart implements Stack.
func (s *xdpStack) Restart() (err error) {
	if s.xdp != nil {
		if err := s.xdp.Close(); err != nil {
			return err
		}
	}
	s.xdp, err = xdp.New(s.options)
	return err
}

func (s *xdpStack) Close() error { return s.xdp.Close() }

// Tables implements Tabled.
func (s *xdpStack) Tables() []Table {
	by := map[string]*Table{}
	var order []string
	for _, e := range s.xdp.Dump().Endpoints {
		for _, t := range e.Tables {
			var rules []string
			for _, r := range t.Rules {
				rules = append(rules, r.String())
			}
			key := t.Name + strings.Join(rules, "\n")
			if by[key] == nil {
				by[key] = &Table{Rules: rules}
				order = append(order, key)
			}
			by[key].Pods = append(by[key].Pods, e.Pod)
		}
	}
	slices.Sort(order)
	var out []Table
	for _, key := range order {
		slices.SortFunc(by[key].Pods, api.PodID.Compare)
		out = append(out, *by[key])
	}
	return out
}
