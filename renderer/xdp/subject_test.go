package xdp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

var errInjected = errors.New("injected failure")

// tap stands before a plane, counts what packets can notice, and fails on demand.
type tap struct {
	xdp.Plane
	preparing bool
	ops       int
	failAt    int // counts down to the call that fails; 0 for none
}

func (t *tap) step(changes bool) error {
	if t.failAt > 0 {
		if t.failAt--; t.failAt == 0 {
			return errInjected
		}
	}
	if changes {
		t.ops++
	}
	return nil
}

// has says whether packets of an endpoint are decided.
func (t *tap) has(id uint32) bool {
	ids, err := t.Plane.Attached()
	return err != nil || slices.Contains(ids, id)
}

func (t *tap) SetMark(m xdp.Mark) error {
	if err := t.step(false); err != nil {
		return err
	}
	return t.Plane.SetMark(m)
}

func (t *tap) Prepare(lines, slots int) error {
	if err := t.step(false); err != nil {
		return err
	}
	t.preparing = true
	return t.Plane.Prepare(lines, slots)
}

func (t *tap) Write(line uint32, content []compile.Line) error {
	if err := t.step(false); err != nil {
		return err
	}
	return t.Plane.Write(line, content)
}

func (t *tap) Store(word, value uint32) error {
	if err := t.step(!t.preparing); err != nil {
		return err
	}
	return t.Plane.Store(word, value)
}

func (t *tap) Flip(id, record uint32) error {
	if err := t.step(!t.preparing && t.has(id)); err != nil {
		return err
	}
	return t.Plane.Flip(id, record)
}

func (t *tap) Switch() error {
	ids, _ := t.Plane.Attached()
	if err := t.step(len(ids) > 0); err != nil {
		return err
	}
	t.preparing = false
	return t.Plane.Switch()
}

func (t *tap) Attach(e compile.Endpoint) error {
	if err := t.step(true); err != nil {
		return err
	}
	return t.Plane.Attach(e)
}

func (t *tap) Detach(id uint32) error {
	if err := t.step(true); err != nil {
		return err
	}
	return t.Plane.Detach(id)
}

func (t *tap) Attached() ([]uint32, error) {
	if err := t.step(false); err != nil {
		return nil, err
	}
	return t.Plane.Attached()
}

// subject is a renderer over a plane, in which every pod of the suite has an interface.
type subject struct {
	t       testing.TB
	tap     *tap
	options xdp.Options
	r       *xdp.Renderer
}

func newSubject(t testing.TB, plane xdp.Plane) *subject {
	s := &subject{t: t, tap: &tap{Plane: plane}}
	s.options = xdp.Options{Plane: s.tap, Interfaces: func(pod api.PodID, _ []netip.Addr) []uint32 {
		return []uint32{uint32(slices.Index(renderertest.PodIDs, pod)) + 1}
	}}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *subject) Renderer() renderer.Renderer { return s.r }
func (s *subject) Operations() int             { return s.tap.ops }
func (s *subject) FailNext(n int)              { s.tap.failAt = n }
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

func (s *subject) Installed() (string, error) {
	d := s.r.Dump()
	if d.Error != "" {
		return "", errors.New(d.Error)
	}
	var b strings.Builder
	for _, e := range d.Endpoints {
		text, err := json.Marshal(e)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "%s\n", text)
	}
	return b.String(), nil
}

func (s *subject) Dangling() (out []string) {
	ids, err := s.tap.Plane.Attached()
	if err != nil {
		return []string{err.Error()}
	}
	for _, id := range ids {
		if s.tap.Plane.Record(id) == 0 {
			out = append(out, fmt.Sprintf("interface %d is attached and has no record", id))
		}
	}
	return out
}

func TestConformanceInTheHeap(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSubject(t, xdp.NewHeap()) })
}
