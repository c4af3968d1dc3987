package main

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodsHaveDistinctAddresses(t *testing.T) {
	for _, args := range []string{"-w init -dual", "-w dense -n 10000 -dual -nostats", "-w churn -n 3000 -dual -nostats"} {
		t.Run(args, func(t *testing.T) {
			dir := generate(t, strings.Fields(args)...)
			owner := map[string]string{}
			s := readState(t, dir)
			check := func() {
				for name, p := range s.pods {
					for _, a := range p.Status.PodIPs {
						if netip.MustParseAddr(a.IP); owner[a.IP] != "" && owner[a.IP] != name {
							t.Fatalf("%s and %s have the address %s", owner[a.IP], name, a.IP)
						}
						owner[a.IP] = name
					}
				}
			}
			check()
			s.replay(t, dir)
			check()
		})
	}
}

// replay applies the events and fails if one does not fit the state before it.
func (s *state) replay(tb testing.TB, dir string) (byTag map[string]int) {
	tb.Helper()
	byTag = map[string]int{}
	i := 0
	for line := range strings.Lines(read(tb, dir, "events.jsonl")) {
		var e struct {
			I       int
			Op, Tag string
			Object  json.RawMessage
		}
		decode(tb, []byte(line), &e, true)
		known := s.apply(tb, e.Object, e.Op == "delete")
		if e.I != i || known == (e.Op == "add") || !slices.Contains([]string{"add", "update", "delete"}, e.Op) {
			tb.Fatalf("event %d does not fit (the object was there: %t): %s", i, known, line)
		}
		byTag[e.Tag]++
		i++
	}
	return byTag
}

func TestEventsFitState(t *testing.T) {
	for args, kinds := range map[string]int{
		"-w churn -n 3000":            6,
		"-w churn -size XL -nostats":  6,
		"-w policy -n 500":            6,
		"-w nslabel -n 10":            1,
		"-w churn -n 1":               1,
		"-w init":                     0,
		"-w policy -size M -n 300":    6,
		"-w churn -n 2000 -seed 1234": 6,
	} {
		t.Run(args, func(t *testing.T) {
			if testing.Short() && strings.Contains(args, "XL") {
				t.Skip("makes 100 000 pods")
			}
			dir := generate(t, strings.Fields(args)...)
			got := readStats(t, dir)
			s := readState(t, dir)
			byTag := s.replay(t, dir)
			if diff := cmp.Diff(byTag, got.EventsByTag); diff != "" || len(byTag) < kinds {
				t.Errorf("%d kinds of events, want at least %d (-events +stats):\n%s", len(byTag), kinds, diff)
			}
			total := 0
			for n := range maps.Values(byTag) {
				total += n
			}
			if total != got.Events {
				t.Errorf("%d events, the stats have %d", total, got.Events)
			}
		})
	}
}
