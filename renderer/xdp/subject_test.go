package xdp_test

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/xdptest"
)

// subject is a renderer over a dataplane, in which every pod of the suite has an interface.
type subject struct {
	t       testing.TB
	tap     *xdptest.Tap
	options xdp.Options
	r       *xdp.Renderer
}

func newSubject(t testing.TB, dataplane xdp.Dataplane) *subject {
	s := &subject{t: t, tap: &xdptest.Tap{Dataplane: dataplane}}
	s.options = xdp.Options{Dataplane: s.tap, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{uint32(slices.Index(renderertest.PodIDs, pod)) + 1}
	}}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *subject) Renderer() renderer.Renderer { return s.r }
func (s *subject) Operations() int             { return s.tap.Operations() }
func (s *subject) FailNext(n int)              { s.tap.FailNext(n) }
func (s *subject) Close() error                { return errors.Join(s.r.Close(), s.tap.Close()) }

func (s *subject) Verdict(f api.Flow) api.Action {
	a, err := s.r.Verdict(f)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *subject) Restart() (err error) {
	if s.r != nil {
		if err := s.r.Close(); err != nil {
			return err
		}
	}
	s.r, err = xdp.New(s.options)
	return err
}

func (s *subject) Installed() (string, error) { return xdptest.Installed(s.r) }
func (s *subject) Dangling() []string         { return s.tap.Dangling() }

func TestConformanceInHeap(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSubject(t, xdp.NewHeap()) })
}
